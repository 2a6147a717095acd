"""HTTP error responses: ``{"code", "message", "retryable"}`` with the matching status, for every failure.

A router of another service's dialect selects its own error shape: see `vendors/router.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TypeAlias

from fastapi import FastAPI, Request, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope

from realtime_tts.dialects.json_input import invalid
from realtime_tts.errors import InternalError, InvalidRequest, RealtimeTTSError, Unauthorized
from realtime_tts.server.logs import log_crash

RETRY_AFTER_S = 1
_MAX_PATH_CHARS = 100  # of a path in a message


# Returns status and JSON body of an error, from the error and the request's id; a dialect's shape is pure.
ProblemShape: TypeAlias = Callable[[RealtimeTTSError, str], tuple[int, Mapping[str, object]]]
ProblemHeaders: TypeAlias = Callable[[RealtimeTTSError, str], Mapping[str, str]]
SHAPE = "realtime_tts.problem_shape"  # in a request's scope
REQUEST_ID = "realtime_tts.request_id"  # in a request's scope


def request_id(scope: Scope) -> str:
    """Return the id of the request that has this scope; "" where it has none."""
    return str(scope.get(REQUEST_ID, ""))


def native_problem(error: RealtimeTTSError, request_id: str) -> tuple[int, dict[str, object]]:
    """Return status and body of an error in the native interface."""
    content = {"code": error.code, "message": error.message, "retryable": error.retryable}
    return error.http_status, content if error.field is None else {**content, "field": error.field}


def problem_response(error: RealtimeTTSError, scope: Scope) -> JSONResponse:
    """Return an error as the response to a request or a handshake, with `retry-after` if it is retryable."""
    headers: dict[str, str] = {}
    if error.retryable or error.http_status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        headers["retry-after"] = str(math.ceil(error.retry_after_s or RETRY_AFTER_S))
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    if error.delay_s:
        headers["connection"] = "close"
    return _rendered(error, scope, headers)


def _rendered(error: RealtimeTTSError, scope: Scope, headers: Mapping[str, str] | None) -> JSONResponse:
    shape, more = scope.get(SHAPE, (native_problem, None))
    status, content = shape(error, request_id(scope))
    return JSONResponse(content, status, {**(headers or {}), **(more(error, request_id(scope)) if more else {})})


async def delay_answer(error: RealtimeTTSError, receive: Receive) -> None:
    """Wait for the delay of an error's answer, or until the client disconnects."""
    if error.delay_s:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(until_gone(receive), error.delay_s)


async def until_gone(receive: Receive) -> None:
    """Wait until the client disconnects. `receive`: ASGI receive of its request or handshake."""
    while not (await receive())["type"].endswith(".disconnect"):
        pass


def error_code(status: int) -> str:
    """Return the code of an HTTP status without an error class of its own, e.g. ``request_timeout`` for 408."""
    return HTTPStatus(status).phrase.lower().replace(" ", "_")


def install_problem_handlers(app: FastAPI) -> None:
    """Install handlers that turn every failure of `app` into a typed error response."""

    @app.exception_handler(RealtimeTTSError)
    async def ours(connection: Request | WebSocket, error: RealtimeTTSError) -> JSONResponse:
        if isinstance(error, InternalError):  # for example a full disk, which only the operator can mend
            log_crash("request_failed", error.__cause__ or error, reason=error.message)
        await delay_answer(error, connection.receive)
        return problem_response(error, connection.scope)

    @app.exception_handler(HTTPException)
    async def http(connection: HTTPConnection, error: HTTPException) -> JSONResponse:
        detail = str(error.detail)
        if detail == HTTPStatus.NOT_FOUND.phrase:  # the framework's text for an address without a route
            detail = f"there is nothing at {connection.scope['path'][:_MAX_PATH_CHARS]!r}"
        named = RealtimeTTSError(detail)
        named.code, named.http_status = error_code(error.status_code), error.status_code
        return _rendered(named, connection.scope, error.headers)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        return problem_response(invalid(InvalidRequest, error.errors()[0], skipped=1), request.scope)
