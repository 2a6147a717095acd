"""OpenAI's interface for speech: parser of its requests and format of its responses. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, WithJsonSchema
from typing_extensions import TypedDict

from realtime_tts.audio.stream_format import StreamFormat
from realtime_tts.contract.speech_params import SPEECH_PARAMS, SpeechParams
from realtime_tts.dialects.base import KeyPlaces
from realtime_tts.dialects.json_input import Body, check_choice, dump_json, load_object, read_params
from realtime_tts.dialects.speech_request import Chunk, Rendering, SpeechRequest, Total, unknown_field_notices
from realtime_tts.dialects.voice_request import InlineVoice, VoiceRequest
from realtime_tts.errors import (
    Forbidden,
    InvalidRequest,
    LimitExceeded,
    RealtimeTTSError,
    TextTooLong,
)

KEYS = KeyPlaces()
RATE_HZ = 24_000  # of all formats except Opus
FORMATS = {
    "mp3": StreamFormat("mp3", "mp3", RATE_HZ, 96_000),
    "opus": StreamFormat("ogg", "opus", 48_000, 32_000),
    "aac": StreamFormat("adts", "aac", RATE_HZ, 64_000),
    "flac": StreamFormat("flac", "flac", RATE_HZ),
    "wav": StreamFormat("wav", "pcm_s16le", RATE_HZ),
    "pcm": StreamFormat("raw", "pcm_s16le", RATE_HZ),
}
STREAM_FORMATS = ("audio", "sse")
INLINE_TTL_S = 60.0  # lifetime of a voice that was sent with a request, for the next sentences
EVENT_STREAM = "text/event-stream"
PARAM_NAMES = tuple(name for name in SPEECH_PARAMS if name != "mode")  # which is for text that is still being written


class SpeechBody(Body):
    """Body of `POST /v1/audio/speech`, beside the speech parameters."""

    input: str = Field(description="Text to speak; at most the setting max_text_chars.")
    model: str | None = Field(default=None, description="Any name; the loaded model is used.")
    voice: Annotated[InlineVoice, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]})] = Field(
        default_factory=InlineVoice,
        description="A voice of this server or an alias; any other name means the default voice. Or an object: an "
        "`id`; or a voice for this request, its recordings in base64: `reference`, `prompt`, `prompt_text`, "
        "`consent`, `consent_by`, `consent_scope` (docs/guides/voices.md).",
    )
    response_format: str = Field(
        default="mp3",
        json_schema_extra={"enum": list(FORMATS)},
        description="pcm: 24 kHz s16le mono without a header; opus: Ogg at 48 kHz; others: 24 kHz mono.",
    )
    stream_format: str = Field(default="audio", json_schema_extra={"enum": list(STREAM_FORMATS)})


BODY_SCHEMA = SpeechBody.model_json_schema()
BODY_SCHEMA["properties"] |= {name: SPEECH_PARAMS[name].json_schema() for name in PARAM_NAMES}
del BODY_SCHEMA["properties"]["instructions"]["maxLength"]  # longer ones are cut


def parse_request(content: bytes) -> SpeechRequest:
    """Raises:
    InvalidMessage: not JSON, not an object, or a field of another type.
    InvalidRequest, UnsupportedAudioFormat: an invalid value.
    """
    values = load_object(content, len(content))
    body = SpeechBody.of(values)
    notices = unknown_field_notices(body, PARAM_NAMES)
    has_own = "voice" in body.given() and body.voice.id is None
    own_voice = body.voice.own_voice(INLINE_TTL_S) if has_own else None
    return _parse(values, body, own_voice, notices)


def parse_form(form: Mapping[str, str], own_voice: VoiceRequest) -> SpeechRequest:
    """Parse a form with recordings for this request. Raises the errors of `parse_request`."""
    values: dict[str, object] = dict(form)
    for name, text in form.items():
        kind = SPEECH_PARAMS[name].type if name in SPEECH_PARAMS else str
        try:
            values[name] = kind(text) if kind in (int, float) else text
        except ValueError:
            raise InvalidRequest(f"{name} must be a number", field=name) from None
    body = SpeechBody.of(values)
    if own_voice.has_recordings and body.voice.id is not None:
        raise InvalidRequest("give a voice or recordings, not both", field="voice")
    return _parse(values, body, own_voice if own_voice.has_recordings else None)


def _parse(
    values: Mapping[str, object], body: SpeechBody, own_voice: VoiceRequest | None, notices: tuple[str, ...] = ()
) -> SpeechRequest:
    if not body.input.strip():
        raise InvalidRequest("input is empty", field="input")
    check_choice(body.response_format, FORMATS, "response_format")
    check_choice(body.stream_format, STREAM_FORMATS, "stream_format", InvalidRequest)
    params = _parse_params(values)
    rendering = Events() if body.stream_format == "sse" else Rendering()
    audio, voice = FORMATS[body.response_format], body.voice.id
    return SpeechRequest(body.input, audio, voice, body.model, params, own_voice, notices, rendering=rendering)


def _parse_params(values: Mapping[str, object]) -> SpeechParams:
    """Return the speech parameters. An empty language or description counts as none, as clients of OpenAI expect."""
    params = read_params(values, PARAM_NAMES)
    if not params.get("language"):
        params.pop("language", None)
    if not params.get("instructions"):
        params.pop("instructions", None)
    return params


# ---- answers -----------------------------------------------------------------------------------------------------


class OpenAIErrorDetail(TypedDict):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(TypedDict):
    """Body of every error response."""

    error: OpenAIErrorDetail


def problem(error: RealtimeTTSError, request_id: str = "") -> tuple[int, OpenAIError]:
    """Return the status and the body of an error."""
    status = error.http_status
    is_too_long = isinstance(error, TextTooLong)
    if isinstance(error, InvalidRequest) and (is_too_long or status not in (404, 413)):
        status = 400
    param = "input" if error.field == "text" else (error.field or "").removeprefix("params.") or None
    code = "string_above_max_length" if is_too_long and param == "input" else error.code
    return status, {"error": {"message": error.message, "type": _error_type(error), "param": param, "code": code}}


def _error_type(error: RealtimeTTSError) -> str:
    if isinstance(error, LimitExceeded):
        return "rate_limit_error"
    if isinstance(error, Forbidden):
        return "permission_error"
    return "server_error" if error.http_status >= 500 else "invalid_request_error"


class Events(Rendering):
    """Server-sent events. Usage is in this server's units: characters in, the model's patches of audio out."""

    content_type = EVENT_STREAM

    def chunk(self, chunk: Chunk) -> bytes:
        audio = base64.b64encode(chunk.data).decode()
        return _event({"type": "speech.audio.delta", "audio": audio}) if audio else b""

    def end(self, total: Total) -> bytes:
        counts = {"input_tokens": total.characters, "output_tokens": total.patches}
        return _event({"type": "speech.audio.done", "usage": {**counts, "total_tokens": sum(counts.values())}})

    def error(self, error: RealtimeTTSError) -> bytes:
        return _event({"type": "error", **problem(error)[1]})


def _event(content: Mapping[str, object]) -> bytes:
    return f"data: {dump_json(content)}\n\n".encode()
