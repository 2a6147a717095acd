"""LiveKit Inference: the WebSocket of `livekit.agents.inference.TTS`, all messages as JSON.

The `input_transcript`s up to a `session.flush` are one turn, and `done` or `error` ends each. There is no message to
interrupt: clients close the connection.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.contract.speech_params import given
from realtime_tts.dialects.base import Habits
from realtime_tts.dialects.cartesia.events import WordTimes
from realtime_tts.dialects.cartesia.requests import SPEEDS
from realtime_tts.dialects.json_input import Body, dump_json
from realtime_tts.dialects.turns import TurnDialect
from realtime_tts.errors import RealtimeTTSError, UnsupportedAudioFormat
from realtime_tts.session import messages

_ENCODING, _FRAME_MS = "pcm_s16le", 40
_SESSION_S = 300.0  # for which clients keep a connection


def inference_problem(error: RealtimeTTSError, request_id: str) -> tuple[int, dict[str, str]]:
    """Return the status and the body of a refused handshake."""
    return error.http_status, {**_error(error.code, error.message), "request_id": request_id}


class _Extra(Body):
    """Options of the client's `extra_kwargs`, of the session or one text; those of other services are ignored."""

    add_timestamps: bool = False
    speed: float | str | None = None
    volume: float | None = None


class _Choices(Body):
    voice: str | None = None
    language: str | None = None


class _Create(_Choices):
    encoding: str = _ENCODING
    sample_rate: int = Field(default=24_000, strict=False)  # may be sent as a string
    extra: _Extra = Field(default_factory=_Extra)


class _Input(Body):
    transcript: str
    generation_config: _Choices = Field(default_factory=_Choices)
    extra: _Extra = Field(default_factory=_Extra)


_NO_CHOICES = _Input(transcript="")


class InferenceDialect(TurnDialect):
    """One socket of `/v1/tts`."""

    habits = Habits(in_turn=True, errors_end="context", needs_audio=True, min_idle_s=_SESSION_S)
    kinds = ("session.create", "input_transcript", "session.flush")

    def __init__(self, session_id: str) -> None:
        super().__init__()
        self._session_id = session_id
        self._audio = AudioFormat(_ENCODING, 24_000, _FRAME_MS)
        self._defaults = _Create()
        self._times: dict[str, WordTimes] = {}  # by context id: open turns whose words are reported

    # ---- from the client -----------------------------------------------------------------------------------------

    def _read_session_create(self, values: Mapping[str, object]) -> Iterable[messages.ClientMessage]:
        wanted = _Create.of(values)
        if wanted.encoding != _ENCODING:
            raise UnsupportedAudioFormat(f"encoding must be {_ENCODING}", field="encoding")
        self._audio, self._defaults = AudioFormat(_ENCODING, wanted.sample_rate, _FRAME_MS), wanted
        return [messages.Ping()]

    def _read_input_transcript(self, values: Mapping[str, object]) -> Iterable[messages.ClientMessage]:
        input_ = _Input.of(values)
        return [] if self._is_over else [self._text(input_.transcript, input_)]

    def _read_session_flush(self, values: Mapping[str, object]) -> Iterable[messages.ClientMessage]:
        if self._is_over:
            self._begin_turn()
            return []  # the error was its answer
        return self._read_flush(values)

    def _text(self, text: str, input_: _Input = _NO_CHOICES) -> messages.Text:
        context_id, chosen = str(self._turn), input_.generation_config
        extra = self._defaults.extra.model_copy(update=input_.extra.given())
        if not self._is_open and extra.add_timestamps:
            self._times[context_id] = WordTimes()
        self._is_open = True
        speed = SPEEDS.get(extra.speed) if isinstance(extra.speed, str) else extra.speed
        params = given(speed=speed, volume=extra.volume, language=chosen.language or self._defaults.language)
        return messages.Text(context_id, text, chosen.voice or self._defaults.voice, self._audio, params)

    # ---- to the client -------------------------------------------------------------------------------------------

    def serialize(self, message: messages.ServerMessage) -> list[str]:
        if isinstance(message, messages.AudioPackets):
            encoded = (base64.b64encode(payload).decode("ascii") for payload in message.packets.payloads)
            return [self._render("output_audio", audio=audio) for audio in encoded]
        if isinstance(message, messages.Words) and (times := self._times.get(message.context_id)) is not None:
            placed = times.apart(message.words)
            words = [{"word": word.text, "start": word.start_ms / 1000, "end": word.end_ms / 1000} for word in placed]
            return [self._render("output_alignment", words=words)] if words else []
        if isinstance(message, messages.ContextDone):
            self._times.pop(message.context_id, None)
            return [self._render("done")]
        if isinstance(message, messages.Pong | messages.KeepAlive):  # a message that clients accept at any time
            return [self._render("session.created")]
        if isinstance(message, messages.ErrorMessage | messages.ContextFailed):
            return self._render_error(message.context_id, message.code, message.message)
        return []

    def _render_error(self, context_id: str | None, code: str, text: str) -> list[str]:
        if self._is_known_failure(context_id):
            return []
        self._times.pop(context_id or "", None)
        return [self._render(**_error(code, text))]

    def _render(self, type: str, **fields: Any) -> str:  # noqa: A002 - the protocol's own name
        return dump_json({"type": type, "session_id": self._session_id, **fields})


def _error(code: str, text: str) -> dict[str, str]:
    return {"type": "error", "code": code, "message": text}
