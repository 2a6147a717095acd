"""Names of output formats, e.g. ``mp3_44100_128``: kind, rate in Hz, and kbit/s for compressed audio."""

from __future__ import annotations

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.stream_format import StreamFormat
from realtime_tts.errors import UnsupportedAudioFormat

DEFAULT_FORMAT = "mp3_44100_128"
FRAME_MS = 40  # audio in a message: a quarter of the engine's patch
_KINDS = {  # container and codec
    "mp3": ("mp3", "mp3"),
    "opus": ("ogg", "opus"),
    "pcm": ("raw", "pcm_s16le"),
    "ulaw": ("raw", "mulaw"),
    "alaw": ("raw", "alaw"),
    "wav": ("wav", "pcm_s16le"),
}
_DEFAULT_KBITS = {"mp3": 128, "opus": 64}
_PACKET_CODECS = {"mp3": "mp3", "opus": "ogg_opus"}
_LOWEST_MP3_RATE_HZ = 22_050


def parse_format(name: str) -> StreamFormat:
    """Raises:
    UnsupportedAudioFormat: the name is unknown.
    """
    kind, *numbers = name.split("_")
    if kind not in _KINDS or not numbers or not all(n.isascii() and n.isdigit() and len(n) < 7 for n in numbers):
        raise _unknown(name)
    rate_hz, *rest = map(int, numbers)
    kbits = _DEFAULT_KBITS.get(kind, 0)
    if rest and kbits:
        kbits = rest.pop(0)
    if rest or (kind == "opus" and rate_hz != 48_000) or (kind == "mp3" and rate_hz < _LOWEST_MP3_RATE_HZ):
        raise _unknown(name)
    try:
        return StreamFormat(*_KINDS[kind], rate_hz, 1000 * kbits)
    except UnsupportedAudioFormat:
        raise _unknown(name) from None


def parse_packet_format(name: str) -> AudioFormat:
    """Return the format of a name for audio in messages, which cannot be WAV.

    Raises:
        UnsupportedAudioFormat: the name is unknown, or WAV.
    """
    stream = parse_format(name)
    if stream.container == "wav":
        raise _unknown(name)
    codec = _PACKET_CODECS.get(stream.codec, stream.codec)
    if stream.is_plain:
        return AudioFormat(codec, stream.sample_rate, FRAME_MS)
    return AudioFormat(codec, stream.sample_rate, FRAME_MS, bitrate=stream.bitrate)


def _unknown(name: str) -> UnsupportedAudioFormat:
    return UnsupportedAudioFormat(
        f"there is no output format {name[:64]!r}; there are pcm_<rate>, mp3_<rate>_<kbit/s>, opus_48000_<kbit/s>, "
        "ulaw_8000, alaw_8000, and over plain HTTP wav_<rate>",
        field="output_format",
    )
