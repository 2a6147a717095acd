"""Conversion of the client's errors to Pipecat's categories, which determine whether the service continues."""

from __future__ import annotations

from pipecat.utils.errors import ErrorCategory
from realtime_tts_client import (
    ConnectionFailed,
    ConnectionLost,
    ContextClosed,
    Draining,
    EngineError,
    Forbidden,
    InvalidRequest,
    LimitExceeded,
    Overloaded,
    RealtimeTTSError,
    RequestTooLarge,
    ResumeGap,
    TextTooLong,
    Unauthorized,
)

# The first match counts. A text that is too long does not affect the next one.
_CATEGORIES: tuple[tuple[tuple[type[RealtimeTTSError], ...], ErrorCategory], ...] = (
    ((ConnectionFailed, ConnectionLost, ResumeGap), ErrorCategory.CONNECTIVITY),
    ((Unauthorized,), ErrorCategory.AUTHENTICATION),
    ((Forbidden,), ErrorCategory.AUTHORIZATION),
    ((TextTooLong, RequestTooLarge, ContextClosed), ErrorCategory.APPLICATION),
    ((InvalidRequest,), ErrorCategory.INVALID_REQUEST),
    ((LimitExceeded,), ErrorCategory.RATE_LIMIT),
    ((Overloaded, Draining, EngineError), ErrorCategory.SERVER),
)


def category_of(error: RealtimeTTSError) -> ErrorCategory:
    for kinds, category in _CATEGORIES:
        if isinstance(error, kinds):
            return category
    return ErrorCategory.UNKNOWN
