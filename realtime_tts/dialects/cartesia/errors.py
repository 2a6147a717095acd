"""Errors in Cartesia's format."""

from __future__ import annotations

from http import HTTPStatus

from typing_extensions import TypedDict

from realtime_tts.errors import RealtimeTTSError, TextTooLong

_BUSY = frozenset({"overloaded", "too_many_contexts", "too_many_sessions"})  # Cartesia has one code for all


class CartesiaError(TypedDict):
    """Body of every error response, and the fields of an error event."""

    error_code: str
    title: str
    message: str
    error: str
    request_id: str


def cartesia_problem(error: RealtimeTTSError, request_id: str) -> tuple[int, CartesiaError]:
    """Return the status and the body of an HTTP error response."""
    status = error_status(error.code, error.http_status)
    return status, error_body(error.code, status, error.message, request_id)


def error_status(code: str, status: int) -> int:
    """Return Cartesia's status for a native error with this code and status."""
    return HTTPStatus.BAD_REQUEST.value if code == TextTooLong.code else status


def error_body(code: str, status: int, message: str, request_id: str) -> CartesiaError:
    title = HTTPStatus(status).phrase
    return {
        "error_code": "concurrency_limited" if code in _BUSY else code,
        "title": title,
        "message": message,
        "error": f"{title}: {message}",  # read by clients of older versions
        "request_id": request_id,
    }
