"""A WebSocket whose client sends its API key with the first message, as ElevenLabs' interface allows.

The handshake is answered before the key is known. The first message is read within a time limit, and then passed to
the dialect too. The rest of the server sees a handshake with a key in its headers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from fastapi import WebSocket
from starlette.types import Message

from realtime_tts.session.connection import POLICY_VIOLATION


async def with_key_of_first_message(
    websocket: WebSocket, timeout_s: float, read_key: Callable[[str | bytes], str]
) -> WebSocket | None:
    """Answer the handshake, read the first message, and return the socket as if its handshake had had the key.

    Args:
        timeout_s: time limit for the client's first message.
        read_key: returns the key in that message, "" if there is none.

    Returns:
        None if the client is gone or sent nothing in time.
    """
    await websocket.accept()
    try:
        first = await asyncio.wait_for(websocket.receive(), timeout_s)
    except TimeoutError:
        with contextlib.suppress(RuntimeError):  # the client disconnected at the same time
            await websocket.close(POLICY_VIOLATION, "no key")
        return None
    if first["type"] != "websocket.receive":
        return None
    frame = first["text"] if first.get("text") is not None else first["bytes"]
    headers = [*websocket.scope["headers"], (b"xi-api-key", read_key(frame).encode("latin-1", "replace"))]
    pending: list[Message] = [{"type": "websocket.connect"}, first]

    async def receive() -> Message:
        return pending.pop(0) if pending else await websocket.receive()

    async def send(message: Message) -> None:
        if message["type"] != "websocket.accept":  # it was answered
            await websocket.send(message)

    return WebSocket({**websocket.scope, "headers": headers}, receive, send)
