"""Conversion of the client's errors to LiveKit's, which determine whether LiveKit retries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from livekit.agents import APIConnectionError, APIError, APIStatusError, APITimeoutError
from realtime_tts_client import (
    ConnectionFailed,
    MissingDependency,
    ProtocolError,
    RealtimeTTSError,
    ResumeGap,
    ServerError,
)

# HTTP statuses of refused handshakes, and the same error codes within a session (docs/protocol/native.md).
_STATUS_OF_CODE = {
    "unauthorized": 401,
    "forbidden": 403,
    "voice_not_found": 404,
    "adapter_not_found": 404,
    "session_not_found": 404,
    "slow_consumer": 408,
    "context_closed": 409,
    "text_too_long": 413,
    "request_too_large": 413,
    "too_many_contexts": 429,
    "too_many_sessions": 429,
    "rate_limited": 429,
    "too_many_errors": 429,
    "limit_exceeded": 429,
    "numerical_error": 500,
    "engine_error": 500,
    "internal_error": 500,
    "overloaded": 503,
    "draining": 503,
    "engine_lost": 503,
    "engine_out_of_memory": 503,
}
_BAD_REQUEST, _OVERLOADED = 400, 503  # for error codes of a later version
_SERVER_FAULT = 500


def to_api_error(error: RealtimeTTSError) -> APIError:
    """Convert an error. Refused or lost connections, 408 and 429 are retryable; other 4xx not; 5xx as reported."""
    if isinstance(error, ServerError) and not isinstance(error, ResumeGap):  # a gap: lost for too long
        status = _STATUS_OF_CODE.get(error.code, _OVERLOADED if error.retryable else _BAD_REQUEST)
        return APIStatusError(
            error.message,
            status_code=status,
            body={"code": error.code, "field": error.field, "retry_after_s": error.retry_after_s},
            retryable=error.retryable if status >= _SERVER_FAULT else None,
        )
    if isinstance(error, ConnectionFailed) and isinstance(error.__cause__, TimeoutError):
        return APITimeoutError(error.message)
    if isinstance(error, (ProtocolError, MissingDependency)):
        return APIError(error.message, body={"code": error.code}, retryable=False)
    return APIConnectionError(error.message)


@contextmanager
def api_errors() -> Iterator[None]:
    try:
        yield
    except RealtimeTTSError as error:
        raise to_api_error(error) from error
