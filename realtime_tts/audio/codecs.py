"""Output audio formats: what a client may ask for, validated. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from realtime_tts.errors import UnsupportedAudioFormat

CODECS = ("opus", "pcm_s16le", "mulaw")
OPUS_RATES_HZ = (8_000, 12_000, 16_000, 24_000, 48_000)
PCM_RATES_HZ = (8_000, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
FRAMES_MS = (10, 20, 40, 60)
OPUS_BITRATES = (6_000, 256_000)


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """Packets of one context: mono, `sample_rate` Hz, `frame_ms` ms each.

    `bitrate` (bits per second), `dtx` and `fec` concern Opus and are ignored by the other codecs.

    Raises:
        UnsupportedAudioFormat: a value out of the lists above; `field` names it.
    """

    codec: str = "opus"
    sample_rate: int = 48_000
    frame_ms: int = 20
    bitrate: int = 32_000
    dtx: bool = False
    fec: bool = False

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise UnsupportedAudioFormat(f"codec must be one of {', '.join(CODECS)}", field="audio.codec")
        rates = OPUS_RATES_HZ if self.codec == "opus" else PCM_RATES_HZ
        if self.sample_rate not in rates:
            raise UnsupportedAudioFormat(
                f"sample_rate of {self.codec} must be one of {', '.join(map(str, rates))}", field="audio.sample_rate"
            )
        if self.frame_ms not in FRAMES_MS:
            raise UnsupportedAudioFormat(
                f"frame_ms must be one of {', '.join(map(str, FRAMES_MS))}", field="audio.frame_ms"
            )
        low, high = OPUS_BITRATES
        if not low <= self.bitrate <= high:
            raise UnsupportedAudioFormat(f"bitrate must be within {low} and {high}", field="audio.bitrate")

    @property
    def frame_samples(self) -> int:
        """Samples of one packet."""
        return self.sample_rate * self.frame_ms // 1000
