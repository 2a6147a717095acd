"""The native wire format, `realtime-tts.v1`: JSON text frames for control, binary frames for audio.

`docs/protocol/native.md` describes every message; this file has the complete syntax.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

from realtime_tts.audio.codecs import PACKET_CODECS, STREAM_CODECS, AudioFormat
from realtime_tts.contract.speech_params import SPEECH_PARAMS, SpeechParams
from realtime_tts.dialects.base import Habits
from realtime_tts.dialects.json_input import Fields, load_object
from realtime_tts.dialects.speech_request import read_params
from realtime_tts.errors import InvalidMessage, UnsupportedAudioFormat
from realtime_tts.session.messages import (
    AudioPackets,
    CancelAcknowledged,
    CancelRequest,
    ClientMessage,
    ContextCancelled,
    ContextDone,
    ContextFailed,
    ContextStarted,
    End,
    ErrorMessage,
    Flush,
    Flushed,
    KeepAlive,
    Ping,
    PlaybackReport,
    Pong,
    Resume,
    ServerMessage,
    SessionResumed,
    SessionStarted,
    StartSession,
    Text,
    WarningMessage,
    Words,
)

SUBPROTOCOL = "realtime-tts.v1"
AUDIO_HEADER = struct.Struct(">BBHIIQ")  # version, kind, flags, context number, sequence, pts in samples
VERSION = 1
KIND_AUDIO = 1
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_MAX_IDS = 1024  # in a session.resume
_MAX_ID_CHARS = 128


class NativeDialect:
    """Stateless dialect: each client frame is one message, each server message one frame; each packet has its own."""

    subprotocol = SUBPROTOCOL
    habits = Habits(accepts_any_voice=False, resumes=True)
    welcome = ()

    def parse(self, frame: str | bytes, max_bytes: int) -> tuple[ClientMessage]:
        """Return the message of a frame. A binary frame is read as UTF-8 JSON too: some libraries send only these.

        Raises:
            InvalidMessage: see `json_input`; or an unknown type, a missing field, a field of another type.
            UnsupportedAudioFormat: the field `audio` is not supported.
        """
        fields = load_object(frame, max_bytes)
        kind = fields.text("type")
        if kind not in _PARSERS:
            raise InvalidMessage(f"unknown message type {kind[:64]!r}", field="type")
        return (_PARSERS[kind](fields),)

    def serialize(self, message: ServerMessage) -> Sequence[str | bytes]:
        """Return a text frame (str), or for audio one binary frame (bytes) for each packet."""
        if isinstance(message, AudioPackets):
            pack, number, packets = AUDIO_HEADER.pack, message.number, message.packets
            sequence, pts, step = message.sequence, packets.pts_samples, packets.packet_samples
            return [
                pack(VERSION, KIND_AUDIO, 0, number, sequence + place, pts + place * step) + payload
                for place, payload in enumerate(packets.payloads)
            ]
        return (_encode({"type": _TYPES[type(message)], **_members(message)}),)


# ---- client messages ---------------------------------------------------------------------------------------------


def _parse_start(fields: Fields) -> StartSession:
    return StartSession(fields.optional_text("voice"), _parse_audio(fields), _parse_params(fields))


def _parse_text(fields: Fields) -> Text:
    return Text(
        context_id=fields.text("context_id"),
        text=fields.text("text"),
        voice=fields.optional_text("voice"),
        audio=_parse_audio(fields),
        params=_parse_params(fields),
    )


def _parse_resume(fields: Fields) -> Resume:
    session_id = fields.text("session_id")
    listed = fields.optional_object("contexts") or Fields({})
    contexts: dict[str, int] = {}
    for context_id in listed.names():
        last = listed.optional_integer(context_id)
        contexts[context_id] = -1 if last is None else last
        if len(context_id) > _MAX_ID_CHARS:
            raise InvalidMessage(f"contexts has an id of more than {_MAX_ID_CHARS} characters", field="contexts")
    if len(contexts) > _MAX_IDS:
        raise InvalidMessage(f"contexts lists more than {_MAX_IDS}", field="contexts")
    return Resume(session_id, contexts)


def _parse_audio(fields: Fields) -> AudioFormat | None:
    audio = fields.optional_object("audio")
    if audio is None:
        return None
    read: dict[str, Any] = {
        "codec": audio.optional_text("codec"),
        **{name: audio.optional_integer(name) for name in ("sample_rate", "frame_ms", "bitrate")},
        **{name: audio.optional_boolean(name) for name in ("dtx", "fec")},
    }
    given = {name: value for name, value in read.items() if value is not None}
    if given.get("codec") in ("mulaw", "alaw"):
        given.setdefault("sample_rate", 8_000)  # the usual rate of G.711
    if given.get("codec") in STREAM_CODECS:  # frames of this protocol hold packets, not parts of a stream
        raise UnsupportedAudioFormat(f"codec must be one of {', '.join(PACKET_CODECS)}", field="audio.codec")
    return AudioFormat(**given)


def _parse_params(fields: Fields) -> SpeechParams:
    return read_params(fields.optional_object("params") or Fields({}))


_PARSERS: dict[str, Callable[[Fields], ClientMessage]] = {
    "session.start": _parse_start,
    "session.resume": _parse_resume,
    "text": _parse_text,
    "flush": lambda fields: Flush(fields.text("context_id"), fields.optional_text("flush_id")),
    "end": lambda fields: End(fields.text("context_id")),
    "cancel": lambda fields: CancelRequest(fields.optional_text("context_id")),
    "playback": lambda fields: PlaybackReport(fields.text("context_id"), fields.number("played_ms")),
    "ping": lambda fields: Ping(fields.optional_text("id")),
}

# ---- server messages ---------------------------------------------------------------------------------------------

_TYPES: dict[type[ServerMessage], str] = {
    SessionStarted: "session.started",
    SessionResumed: "session.resumed",
    ContextStarted: "context.started",
    Words: "words",
    Flushed: "flushed",
    ContextDone: "context.done",
    ContextCancelled: "context.cancelled",
    ContextFailed: "context.failed",
    CancelAcknowledged: "cancel.acknowledged",
    ErrorMessage: "error",
    WarningMessage: "warning",
    KeepAlive: "keepalive",
    Pong: "pong",
}
_NOT_SENT = ("by_client", "measured")
# Without the lexicon, which may be long and which the client has sent.
_TOLD_PARAMS = [name for name in SPEECH_PARAMS if name != "lexicon"]


def _rendered(value: object) -> object:
    """Return a value of a message for JSON: a dataclass as an object, a time rounded to microseconds."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, tuple):
        return [_rendered(each) for each in value]
    return _members(value) if dataclasses.is_dataclass(value) else value


def _members(value: object) -> dict[str, object]:
    assert dataclasses.is_dataclass(value)
    names = (field.name for field in dataclasses.fields(value))
    members = {name: _rendered(getattr(value, name)) for name in names if name not in _NOT_SENT}
    if isinstance(value, SessionStarted):
        members["params"] = {name: value.params.get(name) for name in _TOLD_PARAMS}
    elif isinstance(value, Words):
        members["timing"] = "measured" if all(word.measured for word in value.words) else "estimated"
    elif isinstance(value, ErrorMessage):
        return {name: member for name, member in members.items() if member is not None}
    elif isinstance(value, AudioFormat) and value.codec != "opus":
        return {name: members[name] for name in ("codec", "sample_rate", "frame_ms")}
    return members
