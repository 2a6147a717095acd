"""Parser of Cartesia's requests: WebSocket messages and HTTP bodies."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.stream_format import StreamFormat, possible_mp3_bitrate
from realtime_tts.contract.speech_params import SpeechParams, given
from realtime_tts.dialects.base import KeyPlaces
from realtime_tts.dialects.json_input import Body, Integer, check_choice, required
from realtime_tts.dialects.speech_request import Rendering, SpeechRequest, bitrate_notices, unknown_field_notices
from realtime_tts.dialects.voice_request import VoiceName
from realtime_tts.errors import InvalidMessage, InvalidRequest, UnsupportedAudioFormat

KEYS = KeyPlaces(headers=("x-api-key",), queries=("api_key", "access_token"))
CODECS = {"pcm_s16le": "pcm_s16le", "pcm_f32le": "pcm_f32le", "pcm_mulaw": "mulaw", "pcm_alaw": "alaw"}
CONTAINERS = ("raw", "wav", "mp3")
FRAME_MS = 40  # audio in a message; available as soon as speech begins
MAX_BUFFER_DELAY_MS = 5000
SPEEDS = {"slow": 0.8, "normal": 1.0, "fast": 1.25}  # named speeds of older requests


class OutputFormat(Body):
    container: str | None = None
    encoding: str | None = None
    sample_rate: Integer | None = None
    bit_rate: Integer = 0

    @property
    def codec(self) -> str:
        encoding = required(self.encoding, "output_format.encoding")
        check_choice(encoding, CODECS, "output_format.encoding")
        return CODECS[encoding]

    @property
    def rate_hz(self) -> int:
        return required(self.sample_rate, "output_format.sample_rate")

    def raw(self) -> AudioFormat:
        """Return the format of audio in messages, which has no container."""
        if self.container not in (None, "raw"):
            raise UnsupportedAudioFormat("container must be raw here", field="output_format.container")
        return AudioFormat(self.codec, self.rate_hz, FRAME_MS)

    def stream(self) -> StreamFormat:
        """Return the format of audio over HTTP."""
        container = required(self.container, "output_format.container")
        check_choice(container, CONTAINERS, "output_format.container")
        if container == "mp3":
            return StreamFormat("mp3", "mp3", self.rate_hz, possible_mp3_bitrate(self.rate_hz, self.bit_rate))
        return StreamFormat(container, self.codec, self.rate_hz)


class NamedVoice(VoiceName):
    mode: object = None


class GenerationConfig(Body):
    speed: float | None = None
    volume: float | None = None
    emotion: str | None = None


class Request(Body):
    """Fields of a WebSocket message and of a body over HTTP. `voice` without an id, as for an embedding, names none."""

    context_id: str | None = None
    transcript: str | None = None
    model_id: str | None = None
    voice: NamedVoice = Field(default_factory=NamedVoice)
    output_format: OutputFormat | None = None
    language: str | None = None
    locale: str | None = None
    speed: str | None = None
    generation_config: GenerationConfig = Field(default_factory=GenerationConfig)
    pronunciation_dict_id: str | None = None
    add_timestamps: bool = False

    def dictionaries(self) -> tuple[str, ...]:
        """Return the id of the stored pronunciation dictionary, if one is named."""
        return () if self.pronunciation_dict_id is None else (self.pronunciation_dict_id,)

    def params(self) -> SpeechParams:
        """Raises:
        InvalidMessage: `language` and `locale` contradict each other, or the name of a speed is unknown.
        """
        if self.language is not None and self.locale is not None and self.language != self.locale:
            raise InvalidMessage("a request has a language or a locale, not both", field="locale")
        if self.speed is not None:
            check_choice(self.speed, SPEEDS, "speed", InvalidMessage)
        named, config = SPEEDS.get(self.speed or ""), self.generation_config
        speed = named if config.speed is None else config.speed
        return given(language=self.language or self.locale or None, speed=speed, volume=config.volume)


class Input(Request):
    """WebSocket message. `continue`: further input follows."""

    continue_: bool = Field(default=False, alias="continue")
    flush: bool = False
    cancel: bool = False
    max_buffer_delay_ms: float | None = None

    def spoken(self) -> tuple[str, bool]:
        """Return the text, and whether to speak it at once.

        Raises:
            InvalidMessage: the transcript is missing, or the delay is out of range.
        """
        transcript, delay_ms = required(self.transcript, "transcript"), self.max_buffer_delay_ms
        if delay_ms is not None and not 0 <= delay_ms <= MAX_BUFFER_DELAY_MS:
            raise InvalidMessage(
                f"max_buffer_delay_ms is within 0 and {MAX_BUFFER_DELAY_MS}", field="max_buffer_delay_ms"
            )
        if delay_ms == 0 and transcript.strip():
            # The client has split its text into units itself; some clients omit the blank between them.
            return transcript if transcript[-1].isspace() else transcript + " ", self.continue_
        return transcript, self.flush and self.continue_


class SpeechBody(Request):
    """Body of `POST /tts/bytes` and `/tts/sse`; `context_id` and `add_timestamps` are for events only."""

    transcript: str
    output_format: OutputFormat
    normalization: str | None = None
    add_phoneme_timestamps: bool = False
    save: bool = False

    def speech(self, events: Rendering | None = None) -> SpeechRequest:
        """Return the request. `events`: its answer if that has events, whose audio has no container.

        Raises:
            InvalidRequest, UnsupportedAudioFormat: an invalid value.
        """
        if not self.transcript.strip():
            raise InvalidRequest("transcript is empty", field="transcript")
        audio = self.output_format.stream()
        if events is not None and audio.container != "raw":
            raise UnsupportedAudioFormat("container must be raw here", field="output_format.container")
        asked = self.output_format.bit_rate if audio.codec == "mp3" else 0
        return SpeechRequest(
            text=self.transcript,
            audio=audio,
            voice=self.voice.id,
            model=self.model_id,
            params=self.params(),
            dictionaries=self.dictionaries(),
            rendering=events or Rendering(),
            notices=(
                *self._notices(),
                *(bitrate_notices(asked, audio.bitrate) if asked else ()),
                *unknown_field_notices(self),
            ),
        )

    def _notices(self) -> Iterator[str]:
        """Yield notices about unsupported options; the WebSocket has no message for them."""
        if self.generation_config.emotion not in (None, "neutral"):
            yield "emotion is ignored"
        if self.normalization not in (None, "auto"):
            yield "normalization is ignored"
        for name in ("add_phoneme_timestamps", "save"):
            if getattr(self, name):
                yield f"{name} is ignored"
