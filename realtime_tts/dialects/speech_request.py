"""Speech over plain HTTP, independent of the dialect: the request, and the rendering of the answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from realtime_tts.audio.stream_format import StreamFormat
from realtime_tts.contract.speech_params import SPEECH_PARAMS, SpeechParams, given
from realtime_tts.dialects.json_input import Fields
from realtime_tts.dialects.voice_request import VoiceRequest
from realtime_tts.errors import RealtimeTTSError
from realtime_tts.session.messages import TimedWord

_MAX_NAMES, _MAX_NAME_CHARS = 8, 64  # in a notice


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """A complete text and its parameters.

    Attributes:
        voice, model: the client's names; None: the server's default.
        own_voice: input of a voice to make for this request, instead of `voice`.
        dictionaries: ids of stored pronunciation dictionaries.
        notices: one sentence for each ignored part of the request, with client values escaped.
    """

    text: str
    audio: StreamFormat
    voice: str | None = None
    model: str | None = None
    params: SpeechParams = field(default_factory=SpeechParams)
    own_voice: VoiceRequest | None = None
    notices: tuple[str, ...] = ()
    dictionaries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Next part of the speech.

    Attributes:
        data: the stream's next bytes; empty while an encoder buffers them.
        words: words that begin in it or shortly after, each once, in order; empty if they were not requested.
        audio_ms: duration of the speech so far, this chunk included.
    """

    data: bytes
    words: tuple[TimedWord, ...]
    audio_ms: float


@dataclass(frozen=True, slots=True)
class Total:
    """Totals of a finished speech: characters of the text, duration in ms, and the model's patches."""

    characters: int
    audio_ms: float
    patches: int


class Rendering(Protocol):
    """Format of the speech in a dialect. One object for each answer; it may keep state.

    The answer begins with the first bytes of output; an error before them is answered with its status.
    """

    @property
    def content_type(self) -> str: ...

    @property
    def wants_words(self) -> bool: ...

    def chunk(self, chunk: Chunk) -> bytes: ...

    def end(self, total: Total) -> bytes: ...

    def error(self, error: RealtimeTTSError) -> bytes:
        """Return the last bytes before the connection is closed; b"" if the format has no error message."""
        ...


_READERS: dict[Any, Callable[[Fields, str], object]] = {
    int: Fields.optional_integer,
    float: Fields.optional_number,
    str: Fields.optional_text,
    Mapping: Fields.optional_texts,
}


def read_params(fields: Fields, names: Iterable[str] = SPEECH_PARAMS) -> SpeechParams:
    """Return the speech parameters among the fields. Their bounds are not checked here.

    Raises:
        InvalidMessage: a value of another type.
    """
    return given(**{name: _READERS[SPEECH_PARAMS[name].type](fields, name) for name in names})


def unknown_field_notices(fields: Fields) -> tuple[str, ...]:
    """Return the notice about fields that were not read, if any, with names escaped for a header."""
    names = [ascii(name[:_MAX_NAME_CHARS]) for name in itertools.islice(fields.unknown_names(), _MAX_NAMES + 1)]
    others = " and others" if len(names) > _MAX_NAMES else ""
    return (f"unknown fields are ignored: {', '.join(names[:_MAX_NAMES])}{others}",) if names else ()


def bitrate_notices(asked: int, made: int) -> tuple[str, ...]:
    """Return the notice about a bit rate (bits per second) that MP3 does not have at the sample rate, if any."""
    return () if made == asked else (f"bit_rate is {made}, the highest of MP3 at this sample rate",)
