"""Format of a byte stream with speech: container, codec, rate, bit rate; validated. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from realtime_tts.audio.codecs import OPUS_BITRATES, PCM_RATES_HZ, PLAIN_CODECS
from realtime_tts.errors import UnsupportedAudioFormat

CODECS_OF = {
    "raw": PLAIN_CODECS,
    "wav": PLAIN_CODECS,
    "mp3": ("mp3",),
    "ogg": ("opus",),
    "flac": ("flac",),
    "adts": ("aac",),
}
_CONTENT_TYPES = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg; codecs=opus",
    "flac": "audio/flac",
    "adts": "audio/aac",
    "pcm_s16le": "audio/pcm",
    "pcm_f32le": "audio/pcm",
    "mulaw": "audio/basic",
    "alaw": "audio/x-alaw-basic",
}
# Bit rates of MPEG layer III in kbit/s, at sample rates from 32 kHz on and below.
_MP3_KBPS = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_MP3_LOW_RATE_KBPS = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_MP3_LOWEST_RATE_KBPS = (8, 16, 24, 32, 40, 48, 56, 64)
_DEFAULT_BITRATES = {"mp3": 96_000, "opus": 32_000, "aac": 64_000}
_AAC_MIN_BITRATE = 8_000
_AAC_BITS_PER_SAMPLE = 6  # at most 6144 bits in a frame of 1024 samples


@dataclass(frozen=True, slots=True)
class StreamFormat:
    """Format of one mono stream.

    `bitrate` (bits per second, constant for mp3) is for mp3, opus and aac; 0: the default for speech. Opus accepts any
    of the rates; decoders return 48 kHz.

    Raises:
        UnsupportedAudioFormat: an unknown value, or an invalid combination; `field` names it.
    """

    container: str
    codec: str
    sample_rate: int
    bitrate: int = 0

    def __post_init__(self) -> None:
        if self.container not in CODECS_OF:
            raise UnsupportedAudioFormat(f"the container must be one of {', '.join(CODECS_OF)}", field="container")
        if self.codec not in CODECS_OF[self.container]:
            known = ", ".join(CODECS_OF[self.container])
            raise UnsupportedAudioFormat(f"the encoding in {self.container} must be one of {known}", field="encoding")
        if type(self.sample_rate) is not int or self.sample_rate not in PCM_RATES_HZ:
            known = ", ".join(map(str, PCM_RATES_HZ))
            raise UnsupportedAudioFormat(f"the sample rate must be one of {known}", field="sample_rate")
        if self.codec in _DEFAULT_BITRATES:
            self._set_bitrate(self._bitrates())

    @property
    def content_type(self) -> str:
        return _CONTENT_TYPES.get(self.container) or _CONTENT_TYPES[self.codec]

    @property
    def is_plain(self) -> bool:
        """True if the codec is uncompressed PCM or companding: encoding costs almost nothing."""
        return self.codec in PLAIN_CODECS

    def _bitrates(self) -> Sequence[int]:
        if self.codec == "mp3":
            return _mp3_bitrates(self.sample_rate)
        aac = _AAC_MIN_BITRATE, _AAC_BITS_PER_SAMPLE * self.sample_rate
        low, high = OPUS_BITRATES if self.codec == "opus" else aac
        return range(low, high + 1)

    def _set_bitrate(self, possible: Sequence[int]) -> None:
        """Set the default bit rate for 0, and check any other."""
        low, high = possible[0], possible[-1]
        if self.bitrate == 0:
            highest = high // 2 if self.codec == "aac" else high
            object.__setattr__(self, "bitrate", min(_DEFAULT_BITRATES[self.codec], highest))
        elif type(self.bitrate) is not int or self.bitrate not in possible:
            message = f"the bit rate must be within {low} and {high}"
            if self.codec == "mp3":
                message = f"at {self.sample_rate} Hz MP3 has bit rates of {', '.join(map(str, possible))}"
            raise UnsupportedAudioFormat(message, field="bitrate")


def possible_mp3_bitrate(sample_rate: int, wanted: int) -> int:
    """Return the bit rate (bits per second), lowered to the highest that MP3 has at a low sample rate."""
    is_known = any(wanted == 1000 * kbps for kbps in _MP3_KBPS)
    return min(wanted, _mp3_bitrates(sample_rate)[-1]) if is_known else wanted


def _mp3_bitrates(sample_rate: int) -> list[int]:
    low = _MP3_LOW_RATE_KBPS if sample_rate >= 16_000 else _MP3_LOWEST_RATE_KBPS
    return [1000 * kbps for kbps in (_MP3_KBPS if sample_rate >= 32_000 else low)]
