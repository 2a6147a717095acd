"""From the model's PCM to the bytes of one stream, in whatever container a listener asked for: resample → encode → mux.

PyAV is imported when the first stream that needs it is made.
"""

from __future__ import annotations

from typing import Protocol

from realtime_tts.audio.codecs import OPUS_RATES_HZ
from realtime_tts.audio.containers import EncodedStream, wav_header
from realtime_tts.audio.filters import StreamResampler
from realtime_tts.audio.provenance import Provenance
from realtime_tts.audio.samples import PLAIN_ENCODERS
from realtime_tts.audio.stream_format import CODECS_OF, StreamFormat

_OPUS_RATE_HZ = 48_000


class _Encoder(Protocol):
    def push(self, pcm: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


class SpeechStream:
    """Converter of mono s16le PCM to the bytes of one stream. Not thread-safe, but may move between threads from call
    to call.

    Args:
        input_rate_hz: sample rate of the pushed PCM.
        fmt: format of the stream.
        provenance: tags of the file, if its container has any.
    """

    def __init__(self, input_rate_hz: int, fmt: StreamFormat, provenance: Provenance | None = None) -> None:
        rate_hz = fmt.sample_rate
        if fmt.codec == "opus" and rate_hz not in OPUS_RATES_HZ:
            rate_hz = _OPUS_RATE_HZ
        self.format = fmt
        self._resampler = StreamResampler(input_rate_hz, rate_hz)
        self._encoder: _Encoder = (
            _PlainStream(fmt, provenance)
            if fmt.is_plain
            else EncodedStream(fmt.codec, rate_hz, fmt.bitrate, provenance)
        )
        self._finished = False

    def push(self, pcm: bytes) -> bytes:
        """Add samples (a chunk may end within one) and return the stream's next bytes; the first include the header."""
        if self._finished:
            raise ValueError("push after finish")
        return self._encoder.push(self._resampler.push(pcm))

    def finish(self) -> bytes:
        """Return the rest of the stream; without samples, its header. Nothing can be pushed after it."""
        if self._finished:
            return b""
        self._finished = True
        return self._encoder.push(self._resampler.finish()) + self._encoder.finish()


def warm_up() -> None:
    """Has libav make each kind of stream once: of some it builds tables, and of the first it loads modules."""
    for container, codecs in CODECS_OF.items():
        stream = SpeechStream(16_000, StreamFormat(container, codecs[0], 48_000))
        stream.push(bytes(2 * 1600))
        stream.finish()


class _PlainStream:
    """Uncompressed samples, after a header if the container has one."""

    def __init__(self, fmt: StreamFormat, provenance: Provenance | None) -> None:
        self._encode = PLAIN_ENCODERS[fmt.codec]
        is_wav = fmt.container == "wav"
        self._header = wav_header(fmt.sample_rate, fmt.codec, provenance=provenance) if is_wav else b""
        self._half_sample = b""

    def push(self, pcm: bytes) -> bytes:
        pcm = self._half_sample + pcm
        whole = len(pcm) & ~1
        self._half_sample = pcm[whole:]
        return self.finish() + self._encode(pcm[:whole])

    def finish(self) -> bytes:
        header, self._header = self._header, b""
        return header
