"""Requests that are expensive to read, or that ask for impossible numbers, do not disturb the speech of others.

`python -m pytest tests/chaos/test_chaos_requests.py -m slow -s` prints the figures.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from honest_client import Attack, attacked_server, compare
from hostile_requests import (
    many_headers,
    many_trailers,
    one_byte_chunks,
    one_byte_chunks_everywhere,
    pipelined_requests,
    unbounded_tokens,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "attack", [one_byte_chunks, one_byte_chunks_everywhere, many_headers, many_trailers, pipelined_requests]
)
async def test_an_honest_client_is_served_beside(tmp_path: Path, attack: Attack) -> None:
    with attacked_server(tmp_path) as server:
        comparison = await compare(server, attack)
    comparison.check()


async def test_no_gateway_ends_by_a_number(tmp_path: Path) -> None:
    with attacked_server(tmp_path, gateways=2) as server:
        comparison = await compare(server, unbounded_tokens, rounds=1)
    comparison.check()
