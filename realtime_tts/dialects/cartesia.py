"""Cartesia's wire format: JSON both ways, audio in base64, many contexts on one socket.

A client says of each input whether more will follow (`continue`); one that is not followed ends its context. An error
ends its context too, whatever it was, as Cartesia's clients take it so: what they still send for it is not spoken.
"""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.dialects.base import Habits
from realtime_tts.dialects.json_input import Fields, load_object
from realtime_tts.errors import InvalidMessage, InvalidRequest, RealtimeTTSError, UnsupportedAudioFormat, error_classes
from realtime_tts.session.messages import (
    AudioPacket,
    Cancel,
    ClientMessage,
    ContextCancelled,
    ContextDone,
    ContextFailed,
    End,
    ErrorMessage,
    Flush,
    Flushed,
    KeepAlive,
    ServerMessage,
    Text,
    Words,
)
from realtime_tts.session.settings import SpeechParams

CODECS = {"pcm_s16le": "pcm_s16le", "pcm_f32le": "pcm_f32le", "pcm_mulaw": "mulaw", "pcm_alaw": "alaw"}
FRAME_MS = 40  # of audio in a message: as soon as speech begins, so much of it is there
MAX_BUFFER_DELAY_MS = 5000
_MAX_ID_CHARS = 128
_MAX_OVER = 1024  # ids that are remembered
_BUSY = frozenset({"overloaded", "too_many_contexts", "too_many_sessions"})  # what Cartesia has one code for


@dataclass(slots=True)
class _Context:
    """What a context's answers depend on. `num_flushed`: flushes that were answered; `has_ended`: its text."""

    wants_words: bool
    num_flushed: int = 0
    has_ended: bool = False


class CartesiaDialect:
    """One socket of `/tts/websocket`.

    Args:
        request_id: names the connection in errors.
        check_model: raises a typed error for a model that there is not.
    """

    subprotocol = None
    habits = Habits(refusals_are_final=True, min_idle_s=300.0)
    welcome = ()

    def __init__(self, request_id: str, check_model: Callable[[str | None], None] = lambda name: None) -> None:
        self._request_id, self._check_model = request_id, check_model
        self._contexts: dict[str, _Context] = {}  # that are open, as far as the client was told
        self._over: OrderedDict[str, None] = OrderedDict()  # that the client has cancelled, or was told an error of
        self._num_unnamed = 0

    # ---- from the client -----------------------------------------------------------------------------------------

    def parse(self, frame: str | bytes, max_bytes: int) -> list[ClientMessage]:
        fields = load_object(frame, max_bytes)
        context_id = self._read_id(fields)
        try:
            return list(self._read(fields, context_id))
        except RealtimeTTSError as error:
            error.context_id = context_id
            raise

    def _read_id(self, fields: Fields) -> str:
        context_id = fields.optional_text("context_id")
        if context_id is None:
            self._num_unnamed += 1
            return f"context-{self._num_unnamed}"
        if not 0 < len(context_id) <= _MAX_ID_CHARS:
            raise InvalidMessage(f"context_id has 1 to {_MAX_ID_CHARS} characters", field="context_id")
        return context_id

    def _read(self, fields: Fields, context_id: str) -> Iterable[ClientMessage]:
        if context_id in self._over:
            return []
        if fields.optional_boolean("cancel"):
            if context_id in self._contexts:
                self._end(context_id)
            return [Cancel(context_id)]
        opening, input_ = self._read_opening(fields, context_id), _read_input(fields)
        if opening is not None:
            self._contexts[context_id] = _Context(bool(fields.optional_boolean("add_timestamps")))
        context = self._contexts[context_id]
        if context.has_ended:
            if input_.transcript.strip():
                raise InvalidRequest("the context's last input was not to be followed by another", field="transcript")
            return []  # some say twice that it was the last
        context.has_ended = input_.is_last
        return _input_messages(input_, opening or Text(context_id, ""))

    def _read_opening(self, fields: Fields, context_id: str) -> Text | None:
        """The message that opens a context, without its text; all but the text of those that follow is ignored."""
        if context_id in self._contexts:
            return None
        self._check_model(fields.optional_text("model_id"))
        return Text(context_id, "", voice=read_voice(fields), audio=read_raw_format(fields), params=read_params(fields))

    def _end(self, context_id: str) -> None:
        """No more text of it is taken."""
        self._over[context_id] = None
        while len(self._over) > _MAX_OVER:
            self._over.popitem(last=False)

    # ---- to the client -------------------------------------------------------------------------------------------

    def serialize(self, message: ServerMessage) -> list[str]:
        if isinstance(message, ErrorMessage):
            return self._render_error(message.context_id, message.code, message.message)
        if isinstance(message, KeepAlive):
            told = [(context_id, self._contexts.get(context_id)) for context_id in message.context_ids]
            # What clients let pass while a turn is under way.
            return [_flush_done(context_id, context) for context_id, context in told if context is not None]
        context_id = getattr(message, "context_id", None)
        if context_id is None or (context := self._contexts.get(context_id)) is None:
            return []
        if isinstance(message, AudioPacket):
            return [_chunk(message, context)]
        if isinstance(message, Words):
            return [_timestamps(message, context)] if context.wants_words else []
        if isinstance(message, Flushed):
            context.num_flushed += 1
            return [_flush_done(context_id, context)]
        if isinstance(message, ContextDone | ContextCancelled):
            del self._contexts[context_id]
            return [_event("done", context_id, 200, done=True)]
        if isinstance(message, ContextFailed):
            return self._render_error(context_id, message.code, message.message)
        return []

    def _render_error(self, context_id: str | None, code: str, text: str) -> list[str]:
        if context_id in self._over:
            return []
        if context_id is not None:
            self._contexts.pop(context_id, None)
            self._end(context_id)
        status = error_classes().get(code, RealtimeTTSError).http_status
        # Not `done`: a client that looks at that first would take the error for a normal end.
        return [_event("error", context_id, status, **_problem(code, status, text), request_id=self._request_id)]


# ---- what a request says, on a socket or over HTTP ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Input:
    """A transcript, whether it is to be spoken now, and whether it is the last one."""

    transcript: str
    flush: bool
    is_last: bool


def _read_input(fields: Fields) -> _Input:
    transcript = fields.text("transcript")
    delay_ms = fields.optional_number("max_buffer_delay_ms")
    if delay_ms is not None and not 0 <= delay_ms <= MAX_BUFFER_DELAY_MS:
        raise InvalidMessage(f"max_buffer_delay_ms is within 0 and {MAX_BUFFER_DELAY_MS}", field="max_buffer_delay_ms")
    is_last = not fields.optional_boolean("continue")
    flush = bool(fields.optional_boolean("flush"))
    if delay_ms == 0 and transcript.strip():
        # The client has cut its text into what is to be spoken as one, and some leave out the blank in between.
        return _Input(transcript if transcript[-1].isspace() else transcript + " ", not is_last, is_last)
    return _Input(transcript, flush and not is_last, is_last)


def _input_messages(input_: _Input, text: Text) -> Iterator[ClientMessage]:
    yield Text(text.context_id, input_.transcript, text.voice, text.audio, text.params)
    if input_.flush:
        yield Flush(text.context_id)
    if input_.is_last:
        yield End(text.context_id)


def read_voice(fields: Fields) -> str | None:
    """The id of a voice; None where there is none, as in an embedding."""
    voice = fields.optional_text_or_object("voice")
    return voice.optional_text("id") if isinstance(voice, Fields) else voice


def read_raw_format(fields: Fields) -> AudioFormat:
    """`output_format` without a container.

    Raises:
        InvalidMessage, UnsupportedAudioFormat: it is missing, has a container, or cannot be made.
    """
    wanted = fields.optional_object("output_format")
    if wanted is None:
        raise InvalidMessage("output_format is missing", field="output_format")
    container, encoding = wanted.optional_text("container"), wanted.text("encoding")
    if container not in (None, "raw"):
        raise UnsupportedAudioFormat("container must be raw here", field="output_format.container")
    if encoding not in CODECS:
        raise UnsupportedAudioFormat(f"encoding must be one of {', '.join(CODECS)}", field="output_format.encoding")
    sample_rate = wanted.optional_integer("sample_rate")
    if sample_rate is None:
        raise InvalidMessage("output_format.sample_rate is missing", field="output_format.sample_rate")
    return AudioFormat(CODECS[encoding], sample_rate, FRAME_MS)


def read_params(fields: Fields) -> SpeechParams:
    """Raises:
    InvalidMessage: `language` and `locale` contradict each other.
    """
    language, locale = fields.optional_text("language"), fields.optional_text("locale")
    if language is not None and locale is not None and language != locale:
        raise InvalidMessage("a request has a language or a locale, not both", field="locale")
    return SpeechParams(language=language or locale or None)


# ---- rendering -----------------------------------------------------------------------------------------------------


def _event(kind: str, context_id: str | None, status: int, *, done: bool = False, **rest: Any) -> str:
    named = {} if context_id is None else {"context_id": context_id}
    event = {"type": kind, **named, "done": done, "status_code": status, **rest}
    return json.dumps(event, separators=(",", ":"), allow_nan=False)


def _chunk(packet: AudioPacket, context: _Context) -> str:
    # The one message of which there are many: the JSON is written out rather than built.
    data = base64.b64encode(packet.payload).decode("ascii")
    return (
        f'{{"type":"chunk","context_id":{json.dumps(packet.context_id)},"data":"{data}",'
        f'"done":false,"status_code":206,"step_time":0,"flush_id":{context.num_flushed + 1}}}'
    )


def _timestamps(message: Words, context: _Context) -> str:
    times = {
        "words": [word.text for word in message.words],
        "start": [round(word.start_ms / 1000, 6) for word in message.words],
        "end": [round(word.end_ms / 1000, 6) for word in message.words],
    }
    return _event("timestamps", message.context_id, 206, flush_id=context.num_flushed + 1, word_timestamps=times)


def _flush_done(context_id: str, context: _Context) -> str:
    return _event("flush_done", context_id, 206, flush_done=True, flush_id=context.num_flushed)


def problem(error: RealtimeTTSError) -> tuple[int, dict[str, Any]]:
    """Status and body of an HTTP answer."""
    return error.http_status, _problem(error.code, error.http_status, error.message)


def _problem(code: str, status: int, message: str) -> dict[str, Any]:
    title = HTTPStatus(status).phrase
    return {
        "error_code": "concurrency_limited" if code in _BUSY else code,
        "title": title,
        "message": message,
        "error": f"{title}: {message}",  # where clients of older versions look
    }
