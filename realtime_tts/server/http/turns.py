"""Turns of requests, so that the event loop has other work in between."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from realtime_tts.server.stream.socket_protocol import SOCKET_EXTENSION, RequestProtocol, StreamProtocol


class Turns:
    """One turn in each iteration of the event loop.

    Hundreds of requests may become due at once. Each takes a millisecond or two, and audio is due in between.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def next(self) -> None:
        """Wait for the caller's turn; turns are given in order."""
        async with self._lock:
            await asyncio.sleep(0)


class InTurns:
    """ASGI middleware: requests and handshakes begin in turns. One whose client has gone meanwhile does not begin."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._turns = app, Turns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._turns.next()
        socket: RequestProtocol | StreamProtocol | None = scope.get("extensions", {}).get(SOCKET_EXTENSION)
        if socket is None or not socket.is_lost:
            await self._app(scope, receive, send)
