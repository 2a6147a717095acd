"""Requests that are expensive to read do not delay the speech of others."""

from __future__ import annotations

from pathlib import Path

import pytest
from honest_client import Attack, attacked_server, compare
from hostile_requests import many_headers, many_trailers, one_byte_chunks, one_byte_chunks_everywhere


@pytest.mark.slow
@pytest.mark.parametrize("attack", [one_byte_chunks, one_byte_chunks_everywhere, many_headers, many_trailers])
async def test_an_honest_client_is_served_beside(tmp_path: Path, attack: Attack) -> None:
    with attacked_server(tmp_path) as server:
        comparison = await compare(server, attack)
    comparison.check()
