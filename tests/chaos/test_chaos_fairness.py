"""One key that takes what it can get, in each way that costs it nothing: another key's speech is as it is alone.

`python -m pytest tests/chaos/test_chaos_fairness.py -m slow -s` prints the figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from honest_client import Site, attacked_server, compare
from raw_http import port_of

NUM_CONNECTIONS = 128

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def small_requests(site: Site, end: float) -> int:
    """Requests for a word of speech on many connections, each as soon as the last is answered."""
    body = json.dumps({"input": "Hi.", "response_format": "pcm"})
    return await on_many_connections(lambda: asking(site, end, "POST", "/v1/audio/speech", body))


async def on_many_connections(one: Callable[[], Coroutine[Any, Any, int]]) -> int:
    return sum(await asyncio.gather(*(one() for _ in range(NUM_CONNECTIONS))))


async def asking(site: Site, end: float, method: str, path: str, body: str) -> int:
    """One client that comes back at once when it is thrown out. Returns its number of answers."""
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {site.key}\r\n"
    request = f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
    num_answers = 0
    while time.monotonic() < end:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(site.url))
            try:
                while time.monotonic() < end:
                    writer.write(request)
                    await asyncio.wait_for(_read_answer(reader), max(0.0, end - time.monotonic()))
                    num_answers += 1
            finally:
                writer.transport.abort()
    return num_answers


async def _read_answer(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"transfer-encoding: chunked" in head:
        while (size := int(await reader.readline(), 16)) > 0:
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
    else:
        await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))


@pytest.mark.parametrize("attack", [small_requests], ids=lambda attack: attack.__name__)
async def test_an_honest_key_is_heard_beside_it(tmp_path: Path, attack: Any) -> None:
    with attacked_server(tmp_path) as server:
        comparison = await compare(server, attack)
    comparison.check()
