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

import httpx
import pytest
from honest_client import Site, attacked_server, compare
from raw_http import port_of
from websockets.exceptions import WebSocketException

from realtime_tts.bench.native_stream import open_stream, speak
from realtime_tts.contract.speech_params import MAX_FLOW_STEPS

NUM_CONNECTIONS = 128
SLOW_TEXT = "It takes a few seconds until all of this has been said. " * 5

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
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
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


async def previews_that_are_hung_up(site: Site, end: float) -> int:
    """Previews for a token of one session, on many connections at a time, each given up before it can be made."""
    async with httpx.AsyncClient(base_url=site.url, headers=_bearer(site.key), trust_env=False) as http:
        token = (await http.post("/v1/tokens", json={"max_sessions": 1})).json()["token"]
    num_requests = 0
    while time.monotonic() < end:
        asking = [_give_up(site, token, ("slt", "rms")[number % 2]) for number in range(NUM_CONNECTIONS)]
        await asyncio.gather(*asking)
        num_requests += len(asking)
        await asyncio.sleep(0.5)
    return num_requests


async def _give_up(site: Site, token: str, voice: str) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(site.url))
    writer.write(f"GET /v1/voices/{voice}/preview HTTP/1.1\r\nhost: localhost\r\n".encode())
    writer.write(f"authorization: Bearer {token}\r\n\r\n".encode())
    await asyncio.sleep(0.1)
    writer.transport.abort()


async def many_flow_steps(site: Site, end: float) -> int:
    """Four contexts at a time, each with as many flow steps as can be asked for."""
    return sum(await asyncio.gather(*(_speak_slowly(site, f"c{number}", end) for number in range(4))))


async def _speak_slowly(site: Site, name: str, end: float) -> int:
    num_turns = 0
    while time.monotonic() < end:
        with contextlib.suppress(OSError, WebSocketException):
            async with await open_stream(site.ws_url, api_key=site.key, params={"steps": MAX_FLOW_STEPS}) as socket:
                num_turns += 1
                await asyncio.wait_for(speak(socket, name, SLOW_TEXT), max(0.0, end - time.monotonic()))
    return num_turns


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize("attack", [small_requests, previews_that_are_hung_up], ids=lambda attack: attack.__name__)
async def test_an_honest_key_is_heard_beside_it(tmp_path: Path, attack: Any) -> None:
    with attacked_server(tmp_path) as server:
        comparison = await compare(server, attack)
    comparison.check()


@pytest.mark.gpu  # a CPU has too few streams for three honest clients beside; `test_flow_step_work.py` is of any device
async def test_an_honest_key_is_heard_beside_many_flow_steps(tmp_path: Path) -> None:
    with attacked_server(tmp_path, worker={"model": "starter-voice", "device": "cuda:0"}) as server:
        comparison = await compare(server, many_flow_steps)
    comparison.check()
