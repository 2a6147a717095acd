"""Handshakes that have no answer yet when the server ends."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
import uvicorn
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from realtime_tts.server.stream.socket_protocol import StreamProtocol
from realtime_tts.session.connection import GOING_AWAY

REFUSAL = [
    {"type": "websocket.http.response.start", "status": 503, "headers": [(b"retry-after", b"1")]},
    {"type": "websocket.http.response.body", "body": b"draining"},
]


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

    config = uvicorn.Config(application, port=0, ws=StreamProtocol, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]

    async def call() -> Any:
        async with connect(f"ws://127.0.0.1:{port}/", proxy=None) as socket:
            return await socket.recv()

    with caplog.at_level(logging.ERROR):
        calling = asyncio.create_task(call())
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
        server.should_exit = True
        await asyncio.wait_for(serving, 20)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
