"""jambonz's interface for custom speech: a whole text over HTTP, or a WebSocket with `stream`, `flush` and `stop`.

Both answer with raw PCM (s16le, mono). On the WebSocket `connect` tells its rate; the text up to a `flush` is one
context, and contexts are spoken one after the other. `stop` ends all speech and the connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from typing_extensions import TypedDict

from realtime_tts.audio.stream_format import StreamFormat
from realtime_tts.contract.speech_params import given
from realtime_tts.dialects.base import Habits
from realtime_tts.dialects.deepgram.requests import SpeechBody, read_params, read_raw_format
from realtime_tts.dialects.deepgram.stream import DeepgramDialect, render
from realtime_tts.dialects.json_input import Body
from realtime_tts.dialects.speech_request import Rendering, SpeechRequest
from realtime_tts.errors import InvalidRequest, RealtimeTTSError
from realtime_tts.session import messages

_CALL_S = 3600.0


class JambonzError(TypedDict):
    """Body of every error response."""

    error: str
    code: str


def jambonz_problem(error: RealtimeTTSError, request_id: str) -> tuple[int, JambonzError]:
    return error.http_status, {"error": error.message, "code": error.code}


class JambonzBody(Body):
    text: str
    type: Literal["text", "ssml"] = "text"
    voice: str | None = None
    language: str | None = None


class RawRendering(Rendering):
    """Samples, with their rate in the content type."""

    def __init__(self, sample_rate_hz: int) -> None:
        self.content_type = f"audio/l16;rate={sample_rate_hz}"


def _with_rate(query: Mapping[str, str]) -> dict[str, str]:
    """Return the query with the sample rate under one name, 16 kHz if it has none."""
    return {**query, "encoding": "linear16", "sample_rate": query.get("sampleRate", query.get("sample_rate", "16000"))}


def parse_speech(query: Mapping[str, str], body: bytes) -> SpeechRequest:
    """Parse a request. The address may have `sample_rate` and `speed`.

    Raises:
        InvalidMessage, InvalidRequest, UnsupportedAudioFormat: an invalid body, an empty text, or an invalid value.
    """
    wanted = JambonzBody.parse(body)
    if not wanted.text.strip():
        raise InvalidRequest("text is empty", field="text")
    audio = StreamFormat("raw", "pcm_s16le", read_raw_format(_with_rate(query)).sample_rate)
    text_type = "ssml" if wanted.type == "ssml" else None
    params = read_params(query) | given(language=wanted.language or None, text_type=text_type)
    rendering = RawRendering(audio.sample_rate)
    return SpeechRequest(wanted.text, audio, voice=wanted.voice, params=params, rendering=rendering)


class JambonzDialect(DeepgramDialect):
    """One socket of `/v1/jambonz`. `query` has the `voice`, the `language` and the `sampleRate`."""

    habits = Habits(in_turn=True, errors_end="context", min_idle_s=_CALL_S)
    kinds = ("stream", "flush", "stop", "keepalive")

    def __init__(self, query: Mapping[str, str]) -> None:
        super().__init__(_with_rate(query), "", "")
        self.subprotocol = None
        self.welcome = [render("connect", data={"sample_rate": self._audio.sample_rate, "base64_encoding": False})]
        self._voice, self._params = query.get("voice"), self._params | given(language=query.get("language") or None)

    def _read_stream(self, values: Mapping[str, object]) -> Iterable[messages.ClientMessage]:
        # Pieces end at the end of a word; the space after it may be missing.
        return self._read_speak({"text": SpeechBody.of(values).text + " "})

    def _read_stop(self, values: Mapping[str, object]) -> Iterable[messages.ClientMessage]:
        return self._read_close(values)

    def _read_keepalive(self, values: Mapping[str, object]) -> Iterable[messages.ClientMessage]:
        return [messages.Ping()]  # counts as activity

    def serialize(self, message: messages.ServerMessage) -> list[str | bytes]:
        if isinstance(message, messages.AudioPackets):
            return list(message.packets.payloads)
        if isinstance(message, messages.ErrorMessage | messages.ContextFailed) and self._render_error(message):
            return [render("error", error=message.message, code=message.code)]
        return []
