"""Cartesia's JSON events of a speech, for WebSockets and server-sent events, and its errors."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus

from typing_extensions import TypedDict

from realtime_tts.dialects.base import NOTICE_FIELD
from realtime_tts.dialects.json_input import dump_json
from realtime_tts.errors import RealtimeTTSError, TextTooLong
from realtime_tts.session.messages import TimedWord

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


def chunk(context_id: str | None, audio: bytes, **rest: int) -> str:
    # The most frequent event: formatting the JSON directly is faster.
    named = "" if context_id is None else f'"context_id":{dump_json(context_id)},'
    more = "".join(f',"{name}":{value}' for name, value in rest.items())
    data = base64.b64encode(audio).decode("ascii")
    return f'{{"type":"chunk",{named}"data":"{data}","done":false,"status_code":206,"step_time":0{more}}}'


def timestamps(context_id: str | None, words: Sequence[TimedWord], **rest: int) -> str:
    times = {
        "words": [word.text for word in words],
        "start": [round(word.start_ms / 1000, 6) for word in words],
        "end": [round(word.end_ms / 1000, 6) for word in words],
    }
    return _event("timestamps", context_id, 206, word_timestamps=times, **rest)


class WordTimes:
    """The words of one context, none of which begins before the end of the one before it.

    The end of a word is sent before it is spoken, so the next word may later be measured to begin earlier.
    """

    def __init__(self) -> None:
        self._end_ms = 0.0

    def apart(self, words: Sequence[TimedWord]) -> list[TimedWord]:
        """Return the words that follow, with times that do not overlap."""
        placed: list[TimedWord] = []
        for word in words:
            start_ms = max(self._end_ms, word.start_ms)
            self._end_ms = max(start_ms, word.end_ms)
            placed.append(replace(word, start_ms=start_ms, end_ms=self._end_ms))
        return placed


def flush_done(context_id: str, flush_id: int) -> str:
    return _event("flush_done", context_id, 206, flush_done=True, flush_id=flush_id)


def done(context_id: str | None, notice: str | None = None) -> str:
    told = {} if notice is None else {NOTICE_FIELD: notice}
    return _event("done", context_id, 200, done=True, **told)


def error(context_id: str | None, code: str, status: int, message: str, request_id: str) -> str:
    """Return an error event. It is not `done`: clients that check `done` first would see a normal end."""
    status = error_status(code, status)
    return _event("error", context_id, status, **error_body(code, status, message, request_id))


def _event(kind: str, context_id: str | None, status: int, **rest: object) -> str:
    named = {} if context_id is None else {"context_id": context_id}
    return dump_json({"type": kind, **named, "done": False, "status_code": status, **rest})
