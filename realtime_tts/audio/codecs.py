"""Output audio formats that a client may request, validated. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from realtime_tts.errors import UnsupportedAudioFormat

PLAIN_CODECS = ("pcm_s16le", "mulaw", "alaw", "pcm_f32le")  # PCM and companding: encoding costs almost nothing
PACKET_CODECS = ("opus", *PLAIN_CODECS)  # each packet can be decoded as it is
STREAM_CODECS = ("mp3", "ogg_opus")  # packets are parts of one file, which must be read from its beginning
CODECS = PACKET_CODECS + STREAM_CODECS
OPUS_RATES_HZ = (8_000, 12_000, 16_000, 24_000, 48_000)
PCM_RATES_HZ = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
FRAMES_MS = (10, 20, 40, 60)
OPUS_BITRATES = (6_000, 256_000)
OPUS_COMPLEXITY = 5  # of 0…10; docs/lab/gateway.md has the cost and quality of each


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """Packets of one context: mono, `sample_rate` Hz, `frame_ms` ms each.

    `bitrate` (bits per second) is for codecs that compress. `dtx` (packets of one or two bytes in silence) and `fec`
    (each packet has a coarse copy of the one before) are for Opus. Other codecs ignore them.

    A packet of `STREAM_CODECS` has the bytes that the encoder returned for its samples, maybe none.

    Raises:
        UnsupportedAudioFormat: a value out of the lists above or of another type; `field` names it.
    """

    codec: str = "opus"
    sample_rate: int = 48_000
    frame_ms: int = 20
    bitrate: int = 32_000
    dtx: bool = False
    fec: bool = False

    def __post_init__(self) -> None:
        _check_choice("codec", self.codec, str, CODECS)
        _check_choice("sample_rate", self.sample_rate, int, OPUS_RATES_HZ if "opus" in self.codec else PCM_RATES_HZ)
        _check_choice("frame_ms", self.frame_ms, int, FRAMES_MS)
        low, high = OPUS_BITRATES
        if type(self.bitrate) is not int or not low <= self.bitrate <= high:
            message = f"bitrate must be an integer between {low} and {high}, got {repr(self.bitrate)[:64]}"
            raise UnsupportedAudioFormat(message, field="audio.bitrate")
        for name in ("dtx", "fec"):
            if type(getattr(self, name)) is not bool:
                raise UnsupportedAudioFormat(f"{name} must be true or false", field=f"audio.{name}")

    @property
    def frame_samples(self) -> int:
        """Number of samples in one packet. It is whole, so at 11,025 and 22,050 Hz a packet may be shorter than
        `frame_ms` by less than a sample."""
        return self.sample_rate * self.frame_ms // 1000


def _check_choice(name: str, value: object, kind: type, choices: tuple[object, ...]) -> None:
    # `48000.0 in choices` and `True in (1,)` are true, so the type is checked too.
    if type(value) is not kind or value not in choices:
        message = f"{name} must be one of {', '.join(map(str, choices))}, got {repr(value)[:64]}"
        raise UnsupportedAudioFormat(message, field=f"audio.{name}")
