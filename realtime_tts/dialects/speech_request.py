"""Speech over plain HTTP, independent of the dialect: the request, and the rendering of the answer."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, field

from realtime_tts.audio.stream_format import StreamFormat
from realtime_tts.contract.speech_params import SpeechParams
from realtime_tts.dialects.json_input import Body
from realtime_tts.dialects.voice_request import VoiceRequest
from realtime_tts.errors import RealtimeTTSError
from realtime_tts.session.messages import TimedWord

_MAX_NAMES, _MAX_NAME_CHARS = 8, 64  # in a notice


@dataclass(frozen=True, slots=True)
class Chunk:
    """Next part of the speech.

    Attributes:
        data: the stream's next bytes; empty while an encoder buffers them.
        words: words that begin in it or shortly after, each once, in order; empty if they were not requested.
    """

    data: bytes
    words: tuple[TimedWord, ...]


@dataclass(frozen=True, slots=True)
class Total:
    """Totals of a finished speech: characters of the text, duration in ms, and the model's patches."""

    characters: int
    audio_ms: float
    patches: int


class Rendering:
    """Format of the speech in a dialect, here the audio without a wrapper. One object for each answer.

    The answer begins with the first bytes of output; an error before them is answered with its status.
    """

    content_type = ""  # that of the audio
    wants_words = False

    def chunk(self, chunk: Chunk) -> bytes:
        return chunk.data

    def end(self, total: Total) -> bytes:
        return b""

    def error(self, error: RealtimeTTSError) -> bytes:
        """Return the last bytes before the connection is closed; b"" if the format has no error message."""
        return b""


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """A complete text and its parameters.

    Attributes:
        voice, model: the client's names; None: the server's default.
        own_voice: input of a voice to make for this request, instead of `voice`.
        dictionaries: ids of stored pronunciation dictionaries.
        notices: one sentence for each ignored part of the request, with client values escaped.
        rendering: of its answer.
    """

    text: str
    audio: StreamFormat
    voice: str | None = None
    model: str | None = None
    params: SpeechParams = field(default_factory=SpeechParams)
    own_voice: VoiceRequest | None = None
    notices: tuple[str, ...] = ()
    dictionaries: tuple[str, ...] = ()
    rendering: Rendering = field(default_factory=Rendering, compare=False)


def unknown_field_notices(body: Body, known: Collection[str] = ()) -> tuple[str, ...]:
    """Return the notice about members that are not declared, if any, with names escaped for a header."""
    unknown = (ascii(name[:_MAX_NAME_CHARS]) for name in body.unknown_names() if name not in known)
    names = list(itertools.islice(unknown, _MAX_NAMES + 1))
    others = " and others" if len(names) > _MAX_NAMES else ""
    return (f"unknown fields are ignored: {', '.join(names[:_MAX_NAMES])}{others}",) if names else ()


def bitrate_notices(asked: int, made: int) -> tuple[str, ...]:
    """Return the notice about a bit rate (bits per second) that MP3 does not have at the sample rate, if any."""
    return () if made == asked else (f"bit_rate is {made}, the highest of MP3 at this sample rate",)
