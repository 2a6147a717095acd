"""ASGI middleware around every request and handshake: turns, ids, and containment of crashes."""

from __future__ import annotations

import re
import uuid

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from realtime_tts.errors import InternalError, RealtimeTTSError
from realtime_tts.server.admission.auth import Authenticator
from realtime_tts.server.admission.turns import Turns
from realtime_tts.server.http.problems import REQUEST_ID, problem_response
from realtime_tts.server.logs import log_crash
from realtime_tts.server.stream.socket_protocol import SOCKET_EXTENSION, RequestProtocol, StreamProtocol

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_RESPONSE_STARTS = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})


class InTurns:
    """ASGI middleware: one request or handshake begins at a time, of each API key in turn; see `Turns`.

    Hundreds may become due at once. Each takes a millisecond or two, and audio is due in between. One whose client has
    gone meanwhile does not begin. Those without an active key share one turn.
    """

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app, self._authenticator, self._turns = app, authenticator, Turns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._turns.wait(self._tenant(HTTPConnection(scope)))
            socket: RequestProtocol | StreamProtocol = scope["extensions"][SOCKET_EXTENSION]
            if socket.is_lost:
                return
        await self._app(scope, receive, send)

    def _tenant(self, connection: HTTPConnection) -> str:
        try:
            return self._authenticator.authenticate(connection.headers, connection.query_params).tenant
        except RealtimeTTSError:
            return ""


class Containment:
    """ASGI middleware: a request or handshake has an id, and an unexpected exception in it is answered with 500.

    The id is the client's own ``x-request-id`` if it sent one; the response carries it. An exception is logged once,
    without its message. Starlette would raise it again for the server to log, with a message that may quote a user's
    input.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        scope[REQUEST_ID] = request_id = given if _REQUEST_ID.fullmatch(given) else str(uuid.uuid4())
        begun = False

        async def send_with_id(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] in _RESPONSE_STARTS:
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except (ClientDisconnect, ClientDisconnected, WebSocketDisconnect):
            pass  # the peer has disconnected, which is no error
        except Exception as error:
            log_crash("request_crashed", error)
            answer = problem_response(InternalError("the request failed on our side"), scope)
            if not begun:
                await answer(scope, receive, send_with_id)
