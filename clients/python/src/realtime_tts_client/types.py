"""Input and output types, as plain immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_CODECS = ("opus", "pcm_s16le", "pcm_f32le", "mulaw", "alaw")


@dataclass(frozen=True)
class AudioFormat:
    """Format of packets: mono, `sample_rate` Hz, `frame_ms` ms each. The server validates the details.

    `bitrate` (bits per second), `dtx` and `fec` apply to Opus only.
    """

    codec: str = "opus"
    sample_rate: int = 48_000
    frame_ms: int = 20
    bitrate: int = 32_000
    dtx: bool = False
    fec: bool = False

    def __post_init__(self) -> None:
        if self.codec not in _CODECS:
            raise ValueError(f"codec must be one of {', '.join(_CODECS)}")
        if self.sample_rate <= 0 or self.frame_ms <= 0:
            raise ValueError("sample_rate and frame_ms must be positive")

    @property
    def frame_samples(self) -> int:
        """Number of samples of one packet."""
        return self.sample_rate * self.frame_ms // 1000

    def to_map(self) -> dict[str, Any]:
        """Return the object of the wire format."""
        plain = {"codec": self.codec, "sample_rate": self.sample_rate, "frame_ms": self.frame_ms}
        if self.codec != "opus":
            return plain
        return {**plain, "bitrate": self.bitrate, "dtx": self.dtx, "fec": self.fec}

    @classmethod
    def from_map(cls, fields: Mapping[str, Any]) -> AudioFormat:
        """Read the wire format. Unknown fields are ignored, missing fields take the defaults."""
        return cls(**{name: fields[name] for name in cls.__dataclass_fields__ if name in fields})


@dataclass(frozen=True)
class Word:
    """Word of the context's text, characters `start` to `end`, spoken from `start_ms` to `end_ms`."""

    text: str
    start: int
    end: int
    start_ms: float
    end_ms: float


@dataclass(frozen=True)
class Packet:
    """One packet of audio, unchanged from the server's encoder.

    Attributes:
        payload: one Opus packet, or samples of one frame in the context's codec.
        pts_samples: position of its first sample in the context, at the format's rate.
        num_samples: its length, at the format's rate.
        format: codec and rate.
        words: words that begin in this packet or later, before the next packet with words.
    """

    payload: bytes
    pts_samples: int
    num_samples: int
    format: AudioFormat
    words: tuple[Word, ...] = ()

    @property
    def start_ms(self) -> float:
        return self.pts_samples * 1000 / self.format.sample_rate

    @property
    def duration_ms(self) -> float:
        return self.num_samples * 1000 / self.format.sample_rate


@dataclass(frozen=True)
class Spoken:
    """Text and time that the listener heard before a barge-in: the part that a conversation's history should keep.

    `text` is the first `chars` characters of the sent text; it ends with the last word that was heard completely.
    `word_share` is how much of the next word was heard, 0 to 1; 0 between words or if the server did not report it.
    """

    played_ms: float
    text: str
    chars: int
    word_share: float = 0.0


@dataclass(frozen=True)
class Done:
    """Completion of a context. `ttfa_ms`: first text, or commit, to first packet, measured by the server; None without
    audio. `draft_used`: whether speech began with what was made of the draft; None if the context was none.
    `opening_used`: whether it began with an opening from memory; None without `openings`. `mended`: number of skips,
    repeats and stuck sounds that were cut and said again before they were sent."""

    audio_ms: float
    characters: int
    ttfa_ms: float | None
    draft_used: bool | None = None
    opening_used: bool | None = None
    mended: int = 0
