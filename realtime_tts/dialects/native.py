"""The native wire format, `realtime-tts.v1`: JSON text frames for control, binary frames for audio.

`docs/protocol/native.md` describes every message; this file has the complete syntax.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
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
        name, render = _RENDERERS[type(message)]
        return (_encode({"type": name, **render(message)}),)


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
    read: Mapping[str, Any] = {
        "codec": audio.optional_text("codec"),
        "sample_rate": audio.optional_integer("sample_rate"),
        "frame_ms": audio.optional_integer("frame_ms"),
        "bitrate": audio.optional_integer("bitrate"),
        "dtx": audio.optional_boolean("dtx"),
        "fec": audio.optional_boolean("fec"),
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


def _ms(value: float) -> float:
    """Return a time in milliseconds, rounded to microseconds."""
    return round(value, 3)


def _audio(audio: AudioFormat) -> dict[str, Any]:
    rendered: dict[str, Any] = {"codec": audio.codec, "sample_rate": audio.sample_rate, "frame_ms": audio.frame_ms}
    if audio.codec == "opus":
        rendered |= {"bitrate": audio.bitrate, "dtx": audio.dtx, "fec": audio.fec}
    return rendered


def _render_started(m: SessionStarted) -> dict[str, Any]:
    params, limits = m.params, m.limits
    return {
        "session_id": m.session_id,
        "model": m.model,
        "voice": m.voice,
        "audio": _audio(m.audio),
        "params": {name: params.get(name) for name in _TOLD_PARAMS},
        "limits": {name: getattr(limits, name) for name in limits.__slots__},
    }


# Without the lexicon, which may be long and which the client has sent.
_TOLD_PARAMS = [name for name in SPEECH_PARAMS if name != "lexicon"]


def _render_resumed(m: SessionResumed) -> dict[str, Any]:
    contexts = [
        {
            "context_id": c.context_id,
            "state": c.state,
            "number": c.number,
            "received_chars": c.received_chars,
            "ended": c.ended,
            "num_flushes": c.num_flushes,
        }
        for c in m.contexts
    ]
    return {"session_id": m.session_id, "contexts": contexts}


def _render_context_started(m: ContextStarted) -> dict[str, Any]:
    return {**_of(m), "number": m.number, "voice": m.voice, "seed": m.seed, "audio": _audio(m.audio)}


def _render_words(m: Words) -> dict[str, Any]:
    words = [
        {"text": w.text, "start": w.start, "end": w.end, "start_ms": _ms(w.start_ms), "end_ms": _ms(w.end_ms)}
        for w in m.words
    ]
    timing = "measured" if all(w.measured for w in m.words) else "estimated"
    return {**_of(m), "timing": timing, "words": words}


def _render_done(m: ContextDone) -> dict[str, Any]:
    ttfa_ms = None if m.ttfa_ms is None else _ms(m.ttfa_ms)
    return {**_of(m), "audio_ms": _ms(m.audio_ms), "characters": m.characters, "ttfa_ms": ttfa_ms}


def _render_cancelled(m: ContextCancelled) -> dict[str, Any]:
    return {**_of(m), "played_ms": _ms(m.played_ms), "spoken_text": m.spoken_text, "spoken_chars": m.spoken_chars}


def _render_failed(m: ContextFailed) -> dict[str, Any]:
    error = {"code": m.code, "message": m.message, "retryable": m.retryable}
    heard = {"audio_ms": _ms(m.audio_ms), "spoken_text": m.spoken_text, "spoken_chars": m.spoken_chars}
    return {**_of(m), **error, **heard}


def _render_acknowledged(m: CancelAcknowledged) -> dict[str, Any]:
    heard = {"played_ms": _ms(m.played_ms), "spoken_text": m.spoken_text, "spoken_chars": m.spoken_chars}
    return {"context_id": m.context_id, "state": m.state, **heard}


def _render_error(m: ErrorMessage) -> dict[str, Any]:
    retry_after_s = None if m.retry_after_s is None else round(m.retry_after_s, 3)
    named = {"context_id": m.context_id, "field": m.field, "retry_after_s": retry_after_s}
    given = {name: value for name, value in named.items() if value is not None}
    return {"code": m.code, "message": m.message, "retryable": m.retryable, **given}


def _render_warning(m: WarningMessage) -> dict[str, Any]:
    return {"context_id": m.context_id, "code": m.code, "message": m.message, "spans": [list(span) for span in m.spans]}


def _of(m: Any) -> dict[str, Any]:
    return {"context_id": m.context_id, "sequence": m.sequence}


_RENDERERS: dict[type[Any], tuple[str, Callable[[Any], dict[str, Any]]]] = {
    SessionStarted: ("session.started", _render_started),
    SessionResumed: ("session.resumed", _render_resumed),
    ContextStarted: ("context.started", _render_context_started),
    Words: ("words", _render_words),
    Flushed: ("flushed", lambda m: {**_of(m), "flush_id": m.flush_id, "audio_ms": _ms(m.audio_ms)}),
    ContextDone: ("context.done", _render_done),
    ContextCancelled: ("context.cancelled", _render_cancelled),
    ContextFailed: ("context.failed", _render_failed),
    CancelAcknowledged: ("cancel.acknowledged", _render_acknowledged),
    ErrorMessage: ("error", _render_error),
    WarningMessage: ("warning", _render_warning),
    KeepAlive: ("keepalive", lambda m: {"context_ids": list(m.context_ids)}),
    Pong: ("pong", lambda m: {"id": m.id}),
}
