"""Request ids, which the client receives in the header ``x-request-id``."""

from __future__ import annotations

import re
import uuid

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_RESPONSE_STARTS = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
_KEY = "realtime_tts.request_id"  # in a request's scope


def request_id(scope: Scope) -> str:
    """Return the id of the request that has this scope; "" at the port of the metrics, which has no ids."""
    return str(scope.get(_KEY, ""))


class RequestIds:
    """ASGI middleware: each response and each handshake carries ``x-request-id``, the client's own if it sent one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        request_id = given if _REQUEST_ID.fullmatch(given) else str(uuid.uuid4())
        scope[_KEY] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] in _RESPONSE_STARTS:
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)
