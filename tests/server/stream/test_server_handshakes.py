"""Handshakes that have no answer yet when the server or the connection ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from raw_http import RawConnection
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from realtime_tts.server.stream.socket_protocol import StreamProtocol
from realtime_tts.session.connection import GOING_AWAY

REFUSAL = [
    {"type": "websocket.http.response.start", "status": 503, "headers": [(b"retry-after", b"1")]},
    {"type": "websocket.http.response.body", "body": b"draining"},
]
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
EARLY_FRAMES = {
    "close": Frame(Opcode.CLOSE, b"\x03\xe8").serialize(mask=True),
    "malformed": b"\xff\xff",
    "none": b"",
    "not UTF-8": 2 * Frame(Opcode.TEXT, b"\xff").serialize(mask=True),
}


@contextlib.asynccontextmanager
async def served(application: Any) -> AsyncIterator[tuple[uvicorn.Server, int]]:
    """A server of an application, and its port."""
    server = uvicorn.Server(uvicorn.Config(application, port=0, ws=StreamProtocol, lifespan="off", log_config=None))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    yield server, server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await asyncio.wait_for(serving, 20)


@pytest.mark.parametrize("num_sent", [0, 1], ids=["no answer yet", "half an answer"])
@pytest.mark.parametrize("is_refused", [True, False], ids=["refused", "accepted"])
async def test_the_application_answers_though_the_server_ends(
    num_sent: int, is_refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()
    answer: list[dict[str, Any]] = REFUSAL if is_refused else [{"type": "websocket.accept"}]

    async def application(scope: Any, receive: Any, send: Any) -> None:
        for message in answer[:num_sent]:
            await send(message)
        asked.set()
        await may_answer.wait()
        for message in answer[num_sent:]:
            await send(message)
        while not is_refused and (await receive())["type"] != "websocket.disconnect":
            pass

    async def call(port: int) -> Any:
        async with connect(f"ws://127.0.0.1:{port}/", proxy=None) as socket:
            return await socket.recv()

    with caplog.at_level(logging.ERROR):
        async with served(application) as (server, port):
            calling = asyncio.create_task(call(port))
            await asyncio.wait_for(asked.wait(), 20)
            [protocol] = server.server_state.connections
            protocol.shutdown()
            may_answer.set()
            if is_refused:
                with pytest.raises(InvalidStatus) as refused:
                    await asyncio.wait_for(calling, 20)
                assert (refused.value.response.status_code, refused.value.response.body) == (503, b"draining")
            else:
                with pytest.raises(ConnectionClosed) as closed:
                    await asyncio.wait_for(calling, 20)
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == GOING_AWAY
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("name", EARLY_FRAMES)
@pytest.mark.parametrize("is_refused", [True, False], ids=["refused", "accepted"])
async def test_a_peer_that_ends_before_the_answer_gets_none(
    name: str, is_refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    asked, is_over = asyncio.Event(), asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        try:
            await receive()  # the request to connect
            asked.set()
            assert (await receive())["type"] == "websocket.disconnect"
            for message in REFUSAL if is_refused else [{"type": "websocket.accept"}]:
                await send(message)  # at once, before asyncio reports the end of the connection
        finally:
            is_over.set()

    with caplog.at_level(logging.ERROR):
        async with served(application) as (_, port), RawConnection(f"http://127.0.0.1:{port}") as connection:
            connection.send(HANDSHAKE)
            await asyncio.wait_for(asked.wait(), 20)
            connection.send(EARLY_FRAMES[name])
            connection.end()
            assert await connection.read_all() == b""
            await asyncio.wait_for(is_over.wait(), 20)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
