"""What a client of another service asks for in one request over plain HTTP, in this server's terms."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from realtime_tts.audio.stream_format import StreamFormat
from realtime_tts.dialects.json_input import Fields
from realtime_tts.dialects.voice_wish import VoiceWish
from realtime_tts.session.settings import SpeechParams

_MAX_NAMES, _MAX_NAME_CHARS = 8, 64  # in a notice


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """A whole text, and how it is to be spoken.

    Attributes:
        voice, model: as the client named them; None: it left the choice to the server.
        own_voice: in place of `voice`, what one is to be made of for this request.
        dictionaries: ids of stored pronunciation dictionaries.
        notices: what was asked for and will not be done, one sentence each, without words of the client's.
    """

    text: str
    audio: StreamFormat
    voice: str | None = None
    model: str | None = None
    params: SpeechParams = field(default_factory=SpeechParams)
    own_voice: VoiceWish | None = None
    notices: tuple[str, ...] = ()
    dictionaries: tuple[str, ...] = ()


def unknown_field_notices(fields: Fields) -> tuple[str, ...]:
    """Return what is told of the fields of a request that have not been read; their names are fit for a header."""
    names = [ascii(name[:_MAX_NAME_CHARS]) for name in itertools.islice(fields.unknown_names(), _MAX_NAMES + 1)]
    others = " and others" if len(names) > _MAX_NAMES else ""
    return (f"unknown fields are ignored: {', '.join(names[:_MAX_NAMES])}{others}",) if names else ()


def bitrate_notices(asked: int, made: int) -> tuple[str, ...]:
    """Return what is told of a bit rate (bits per second) that MP3 does not have at the sample rate."""
    return () if made == asked else (f"bit_rate is {made}, the highest of MP3 at this sample rate",)
