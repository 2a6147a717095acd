"""Structured logs: event names with fields (ids, lengths, durations and codes), never text or audio."""

from __future__ import annotations

import functools
import logging
import math
from collections import Counter

from realtime_tts.contract.logs import Field, log_to_stderr
from realtime_tts.contract.watch import stack_of

logger = logging.getLogger("realtime_tts.server")

_INTERVAL_S = 10.0  # between two log events of one kind that any client can cause


def log_event(event: str, level: int = logging.INFO, /, **fields: Field) -> None:
    """Log one event, e.g. ``log_event("session_opened", session="s-…")``."""
    if logger.isEnabledFor(level):
        logger.log(level, event, extra={"fields": {key: value for key, value in fields.items() if value is not None}})


def log_crash(event: str, error: BaseException, **fields: Field) -> None:
    """Log an unexpected exception by its type and stack. Its message is left out: it may quote a user's input."""
    log_event(event, logging.ERROR, error=type(error).__name__, stack=stack_of(error), **fields)


class Throttle:
    """Rate limit for log events that any client can cause: one of each kind per 10 s, with their number.

    `kind` must come from a small fixed set, never from a client's input.
    """

    def __init__(self) -> None:
        self._logged_at: dict[str, float] = {}
        self._counts: Counter[str] = Counter()

    def take(self, kind: str, now: float) -> int:
        """Return the number of events since the last logged one, including this one; 0: do not log it."""
        self._counts[kind] += 1
        if now - self._logged_at.get(kind, -math.inf) < _INTERVAL_S:
            return 0
        self._logged_at[kind] = now
        return self._counts.pop(kind)


def _throttled(throttle: Throttle, record: logging.LogRecord) -> bool:
    """Return whether to log a record of uvicorn, which logs a warning for each invalid request."""
    if record.levelno != logging.WARNING or record.exc_info:
        return True
    count = throttle.take(f"{record.module}:{record.lineno}", record.created)
    record.fields = {"count": count}
    return count > 0


def configure_logging(level: str, style: str) -> None:
    """Send all records of this process to stderr, as text or JSON."""
    log_to_stderr(level, style)
    # At level info uvicorn logs query strings, which may hold keys; at level debug websockets logs frames.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "websockets", "asyncio", "multipart"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    logging.getLogger("uvicorn.error").filters[:] = [functools.partial(_throttled, Throttle())]
