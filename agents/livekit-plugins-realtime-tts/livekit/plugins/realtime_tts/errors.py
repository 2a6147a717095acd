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


def to_api_error(error: RealtimeTTSError) -> APIError:
    """Convert an error. Refused or lost connections, 408 and 429 are retryable; other 4xx not; 5xx as reported."""
    if isinstance(error, ServerError) and not isinstance(error, ResumeGap):  # a gap: lost for too long
        # A code of a later version has no status here.
        status = error.http_status or (500 if error.code == "internal_error" else 503 if error.retryable else 400)
        return APIStatusError(
            error.message,
            status_code=status,
            body={"code": error.code, "field": error.field, "retry_after_s": error.retry_after_s},
            retryable=error.retryable if status >= 500 else None,
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
