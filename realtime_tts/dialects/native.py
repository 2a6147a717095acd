"""The native wire format, `realtime-tts.v1`: JSON text frames for control, binary frames for audio.

`docs/protocol/native.md` describes every message; this file has the complete syntax.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field, create_model

from realtime_tts.audio.codecs import PACKET_CODECS, STREAM_CODECS, AudioFormat
from realtime_tts.contract.speech_params import SPEECH_PARAMS
from realtime_tts.dialects.base import Dialect, Habits
from realtime_tts.dialects.json_input import Body, Integer, dump_json, load_object, read_params
from realtime_tts.errors import InvalidMessage, RealtimeTTSError, UnsupportedAudioFormat
from realtime_tts.session import messages
from realtime_tts.session.settings import MAX_ID_CHARS

SUBPROTOCOL = "realtime-tts.v1"
AUDIO_HEADER = struct.Struct(">BBHIIQ")  # version, kind, flags, context number, sequence, pts in samples
VERSION = 1
KIND_AUDIO = 1
_MAX_IDS = 1024  # in a session.resume


class NativeDialect(Dialect):
    """Stateless dialect: each client frame is one message, each server message one frame; each packet has its own."""

    subprotocol = SUBPROTOCOL
    habits = Habits(accepts_any_voice=False, resumes=True)

    def parse(self, frame: str | bytes, max_bytes: int) -> tuple[messages.ClientMessage]:
        """Return the message of a frame. A binary frame is read as UTF-8 JSON too: some libraries send only these.

        Raises:
            InvalidMessage: see `json_input`; or an unknown type, a missing field, a field of another type.
            UnsupportedAudioFormat: the field `audio` is not supported.
        """
        values = load_object(frame, max_bytes)
        kind = values.get("type")
        if kind is None:
            raise InvalidMessage("type is missing", field="type")
        if not isinstance(kind, str) or kind not in _PARSERS:
            raise InvalidMessage(f"unknown message type {str(kind)[:64]!r}", field="type")
        try:
            return (_PARSERS[kind](values),)
        except RealtimeTTSError as error:
            error.context_id = context_id if isinstance(context_id := values.get("context_id"), str) else None
            raise

    def serialize(self, message: messages.ServerMessage) -> Sequence[str | bytes]:
        """Return a text frame (str), or for audio one binary frame (bytes) for each packet."""
        if isinstance(message, messages.AudioPackets):
            pack, number, packets = AUDIO_HEADER.pack, message.number, message.packets
            sequence, pts, step = message.sequence, packets.pts_samples, packets.packet_samples
            return [
                pack(VERSION, KIND_AUDIO, 0, number, sequence + place, pts + place * step) + payload
                for place, payload in enumerate(packets.payloads)
            ]
        return (dump_json({"type": _TYPES[type(message)], **_members(message)}),)


# ---- client messages ---------------------------------------------------------------------------------------------


_Parser = Callable[[Mapping[str, object]], messages.ClientMessage]


def _body_of(message: type) -> type[Body]:
    """Return the body with the fields of a message's class."""
    hints = typing.get_type_hints(message) | dict.fromkeys(_INTEGERS, Integer)
    fields: dict[str, Any] = {
        field.name: (hints[field.name], ... if field.default is dataclasses.MISSING else field.default)
        for field in dataclasses.fields(message)
    }
    return create_model(message.__name__, __base__=Body, **fields)


_INTEGERS = ("sample_rate", "frame_ms", "bitrate")
_AUDIO = _body_of(AudioFormat)


class _Start(Body):
    voice: str | None = None
    audio: dict[str, object] | None = None
    params: dict[str, object] = Field(default_factory=dict)

    def choices(self) -> dict[str, Any]:
        audio = None if self.audio is None else _audio_format(_AUDIO.of(self.audio, "audio.").given())
        return {"voice": self.voice, "audio": audio, "params": read_params(self.params, prefix="params.")}


class _Text(_Start):
    context_id: str
    text: str
    draft: bool = False


class _Resume(Body):
    session_id: str
    contexts: dict[str, Integer | None] = Field(default_factory=dict)


def _audio_format(given: dict[str, Any]) -> AudioFormat:
    if given.get("codec") in ("mulaw", "alaw"):
        given.setdefault("sample_rate", 8_000)  # the usual rate of G.711
    if given.get("codec") in STREAM_CODECS:  # frames of this protocol hold packets, not parts of a stream
        message = f"codec must be one of {', '.join(PACKET_CODECS)}, got {given['codec']!r}"
        raise UnsupportedAudioFormat(message, field="audio.codec")
    return AudioFormat(**given)


def _parse_text(values: Mapping[str, object]) -> messages.Text:
    body = _Text.of(values)
    return messages.Text(body.context_id, body.text, draft=body.draft, **body.choices())


def _parse_resume(values: Mapping[str, object]) -> messages.Resume:
    body = _Resume.of(values)
    if any(len(context_id) > MAX_ID_CHARS for context_id in body.contexts):
        raise InvalidMessage(f"contexts has an id of more than {MAX_ID_CHARS} characters", field="contexts")
    if len(body.contexts) > _MAX_IDS:
        raise InvalidMessage(f"contexts lists more than {_MAX_IDS}", field="contexts")
    last = {context_id: -1 if sequence is None else sequence for context_id, sequence in body.contexts.items()}
    return messages.Resume(body.session_id, last)


def _parser_of(message: type[messages.ClientMessage]) -> _Parser:
    body = _body_of(message)
    return lambda values: message(**body.of(values).given())


_PARSERS: dict[str, _Parser] = {
    "session.start": lambda values: messages.StartSession(**_Start.of(values).choices()),
    "session.resume": _parse_resume,
    "text": _parse_text,
    "commit": _parser_of(messages.Commit),
    "flush": _parser_of(messages.Flush),
    "end": _parser_of(messages.End),
    "cancel": _parser_of(messages.CancelRequest),
    "hold": _parser_of(messages.Hold),
    "release": _parser_of(messages.Release),
    "playback": _parser_of(messages.PlaybackReport),
    "ping": _parser_of(messages.Ping),
}

# ---- server messages ---------------------------------------------------------------------------------------------

_TYPES: dict[type[messages.ServerMessage], str] = {
    messages.SessionStarted: "session.started",
    messages.SessionResumed: "session.resumed",
    messages.ContextStarted: "context.started",
    messages.Words: "words",
    messages.Flushed: "flushed",
    messages.ContextDone: "context.done",
    messages.ContextCancelled: "context.cancelled",
    messages.ContextFailed: "context.failed",
    messages.CancelAcknowledged: "cancel.acknowledged",
    messages.ContextHeld: "context.held",
    messages.ContextReleased: "context.released",
    messages.ErrorMessage: "error",
    messages.WarningMessage: "warning",
    messages.KeepAlive: "keepalive",
    messages.Pong: "pong",
}
_NOT_SENT = ("by_client", "report", "unspoken_text")
# Without the lexicon, which may be long and which the client has sent.
_REPORTED_PARAMS = [name for name in SPEECH_PARAMS if name != "lexicon"]


def _rendered(value: object) -> object:
    """Return a value of a message for JSON: a dataclass as an object, a time rounded to microseconds."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, tuple):
        return [_rendered(each) for each in value]
    if isinstance(value, messages.TimedWord):  # by far the most frequent: without a loop over its fields
        times = {"start_ms": round(value.start_ms, 3), "end_ms": round(value.end_ms, 3)}
        return {"text": value.text, "start": value.start, "end": value.end, **times}
    return _members(value) if dataclasses.is_dataclass(value) else value


def _members(value: object) -> dict[str, object]:
    assert dataclasses.is_dataclass(value)
    names = (field.name for field in dataclasses.fields(value))
    members = {name: _rendered(getattr(value, name)) for name in names if name not in _NOT_SENT}
    if isinstance(value, messages.SessionStarted):
        members["params"] = {name: value.params.get(name) for name in _REPORTED_PARAMS}
    elif isinstance(value, messages.Words):
        members["timing"] = "measured" if all(word.measured for word in value.words) else "estimated"
        if value.previous_end_ms is None:
            del members["previous_end_ms"]
    elif isinstance(value, messages.ContextDone):
        members |= {name: member for name, member in value.report._asdict().items() if member is not None}
    elif isinstance(value, messages.ErrorMessage):
        return {name: member for name, member in members.items() if member is not None}
    elif isinstance(value, AudioFormat) and value.codec != "opus":
        return {name: members[name] for name in ("codec", "sample_rate", "frame_ms")}
    return members
