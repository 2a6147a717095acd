"""What goes in and what comes out, as plain immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_CODECS = ("opus", "pcm_s16le", "pcm_f32le", "mulaw", "alaw")


@dataclass(frozen=True)
class AudioFormat:
    """What packets hold: mono, `sample_rate` Hz, `frame_ms` ms each. The server checks the details.

    `bitrate` (bits per second), `dtx` and `fec` concern Opus alone.
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
        """Samples of one packet."""
        return self.sample_rate * self.frame_ms // 1000

    def to_map(self) -> dict[str, Any]:
        """The object of the wire format."""
        plain = {"codec": self.codec, "sample_rate": self.sample_rate, "frame_ms": self.frame_ms}
        if self.codec != "opus":
            return plain
        return {**plain, "bitrate": self.bitrate, "dtx": self.dtx, "fec": self.fec}

    @classmethod
    def from_map(cls, fields: Mapping[str, Any]) -> AudioFormat:
        """Unknown fields are ignored, missing ones take the defaults."""
        return cls(**{name: fields[name] for name in cls.__dataclass_fields__ if name in fields})


@dataclass(frozen=True)
class Word:
    """A word as it was sent: characters `start` to `end` of the context's text; heard from `start_ms` to `end_ms`."""

    text: str
    start: int
    end: int
    start_ms: float
    end_ms: float


@dataclass(frozen=True)
class Packet:
    """One packet of audio, as it left the server's encoder.

    Attributes:
        payload: one Opus packet, or samples of one frame in the context's codec.
        pts_samples: position of its first sample in the context, at the format's rate.
        num_samples: its length, at the format's rate.
        format: codec and rate.
        words: those that begin in audio from this packet on, before the next packet that has some.
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
    """What the listener heard before a barge-in: what a conversation's history should keep.

    `text` is the first `chars` characters of what was sent; it ends with the last word that was heard whole.
    """

    played_ms: float
    text: str
    chars: int


@dataclass(frozen=True)
class Done:
    """A context that came to its end. `ttfa_ms`: first text to first packet, by the server; None without audio."""

    audio_ms: float
    characters: int
    ttfa_ms: float | None
