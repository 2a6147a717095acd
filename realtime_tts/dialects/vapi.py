"""Vapi's custom voice: a JSON message with a text over HTTP, answered with raw PCM (s16le, mono)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from typing_extensions import TypedDict

from realtime_tts.audio.stream_format import StreamFormat
from realtime_tts.dialects.base import KeyPlaces
from realtime_tts.dialects.deepgram.requests import read_params
from realtime_tts.dialects.json_input import Body, Integer
from realtime_tts.dialects.speech_request import SpeechRequest
from realtime_tts.errors import InvalidRequest, RealtimeTTSError

KEYS = KeyPlaces(headers=("x-vapi-secret",))


class VapiError(TypedDict):
    """Body of every error response."""

    error: str
    code: str
    requestId: str


def vapi_problem(error: RealtimeTTSError, request_id: str) -> tuple[int, VapiError]:
    return error.http_status, {"error": error.message, "code": error.code, "requestId": request_id}


class _Message(Body):
    type: Literal["voice-request"]
    text: str
    sampleRate: Integer = 24_000  # noqa: N815 - the protocol's own name
    voiceId: str | None = None  # noqa: N815 - the same


class VapiBody(Body):
    """Body of a request; what it tells about the call is ignored."""

    message: _Message


def parse_speech(query: Mapping[str, str], body: bytes) -> SpeechRequest:
    """Parse a request. The address may have `voice`, in place of the assistant's `voiceId`, and `speed`.

    Raises:
        InvalidMessage, InvalidRequest, UnsupportedAudioFormat: an invalid body, an empty text, or an invalid value.
    """
    message = VapiBody.parse(body).message
    if not message.text.strip():
        raise InvalidRequest("message.text is empty", field="message.text")
    audio = StreamFormat("raw", "pcm_s16le", message.sampleRate)
    return SpeechRequest(message.text, audio, voice=query.get("voice", message.voiceId), params=read_params(query))
