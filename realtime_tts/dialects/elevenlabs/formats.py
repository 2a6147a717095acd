"""Names of output formats, as in ``mp3_44100_128``: codec, rate in Hz, and kbit/s where it compresses."""

from __future__ import annotations

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.errors import UnsupportedAudioFormat

DEFAULT_FORMAT = "mp3_44100_128"
FRAME_MS = 40  # of a message's audio: a quarter of the patch that the engine makes at a time
_DEFAULT_KBITS = {"mp3": 128, "opus": 64}
_CODECS = {"mp3": "mp3", "opus": "ogg_opus", "pcm": "pcm_s16le", "ulaw": "mulaw", "alaw": "alaw"}
_MP3_RATES_HZ = (22_050, 24_000, 32_000, 44_100, 48_000)
_MP3_KBITS = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192)  # below 32 kHz, 160 at most
_KBITS = {"mp3": _MP3_KBITS, "opus": range(6, 257)}


def parse_format(name: str) -> AudioFormat:
    """Raises:
    UnsupportedAudioFormat: a name that is none.
    """
    kind, *numbers = name.split("_")
    if kind not in _CODECS or not numbers or not all(n.isascii() and n.isdigit() and len(n) < 7 for n in numbers):
        raise _unknown(name)
    rate_hz, *rest = map(int, numbers)
    if kind not in _KBITS:
        if rest:
            raise _unknown(name)
        return _made(name, _CODECS[kind], rate_hz)
    kbits = rest.pop() if rest else _DEFAULT_KBITS[kind]
    if rest or kbits not in _KBITS[kind]:
        raise _unknown(name)
    if kind == "mp3" and (rate_hz not in _MP3_RATES_HZ or (rate_hz < 32_000 and kbits > 160)):
        raise _unknown(name)
    return _made(name, _CODECS[kind], rate_hz, kbits)


def _made(name: str, codec: str, rate_hz: int, kbits: int = 32) -> AudioFormat:
    try:
        return AudioFormat(codec, rate_hz, FRAME_MS, bitrate=1000 * kbits)
    except UnsupportedAudioFormat:
        raise _unknown(name) from None


def _unknown(name: str) -> UnsupportedAudioFormat:
    return UnsupportedAudioFormat(
        f"there is no output format {name[:64]!r}; there are pcm_<rate>, mp3_<rate>_<kbit/s>, opus_48000_<kbit/s>, "
        "ulaw_8000 and alaw_8000",
        field="output_format",
    )
