"""Decoding of packets to samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from realtime_tts_client.errors import MissingDependency, ProtocolError
from realtime_tts_client.types import AudioFormat

OPUS_RATE_HZ = 48_000
# An Opus encoder has 6.5 ms of lookahead, so decoded audio begins with as much near silence.
OPUS_DELAY_SAMPLES = 312

FloatSamples = npt.NDArray[np.float32]


class Decoder:
    """Decoder of one context's packets, in order, to float32 samples in -1…1; Opus state is kept between packets.

    Raises:
        MissingDependency: for Opus without PyAV.
    """

    def __init__(self, audio_format: AudioFormat) -> None:
        self._codec = audio_format.codec
        self._opus: Any = None
        self._num_to_skip = 0
        if self._codec == "opus":
            self._opus = _open_opus()
            self._num_to_skip = OPUS_DELAY_SAMPLES
        self.sample_rate = output_rate_hz(audio_format)

    def decode(self, payload: bytes) -> FloatSamples:
        """Return the samples [num_samples] at `sample_rate`.

        Raises:
            ProtocolError: the bytes are not a packet of this codec.
        """
        samples = self._decode_opus(payload) if self._opus is not None else _decode_plain(self._codec, payload)
        skipped = min(self._num_to_skip, len(samples))
        self._num_to_skip -= skipped
        return samples[skipped:]

    def _decode_opus(self, payload: bytes) -> FloatSamples:
        import av

        try:
            frames = self._opus.decode(av.Packet(payload))
        except av.FFmpegError as error:
            raise ProtocolError("not an Opus packet") from error
        chunks = [_as_float(frame.to_ndarray().reshape(-1)) for frame in frames]
        return np.concatenate(chunks) if chunks else np.zeros(0, np.float32)


def output_rate_hz(audio_format: AudioFormat) -> int:
    """Return the rate of decoded samples: always 48 kHz for Opus."""
    return OPUS_RATE_HZ if audio_format.codec == "opus" else audio_format.sample_rate


def to_int16(samples: FloatSamples) -> npt.NDArray[np.int16]:
    """Convert float32 in -1…1 to int16, clipped."""
    return np.clip(np.rint(samples * 32_768), -32_768, 32_767).astype(np.int16)


def _open_opus() -> Any:
    try:
        from av.codec import CodecContext
    except ImportError as error:
        raise MissingDependency(
            'decoding Opus needs PyAV: pip install av, or ask for AudioFormat("pcm_s16le")'
        ) from error
    context: Any = CodecContext.create("libopus", "r")
    context.sample_rate = OPUS_RATE_HZ
    context.layout = "mono"
    context.open()
    return context


def _decode_plain(codec: str, payload: bytes) -> FloatSamples:
    if codec in ("mulaw", "alaw"):
        table = _MULAW if codec == "mulaw" else _ALAW
        return np.asarray(table[np.frombuffer(payload, np.uint8)], np.float32)
    sample_type = "<i2" if codec == "pcm_s16le" else "<f4"
    if len(payload) % np.dtype(sample_type).itemsize:
        raise ProtocolError(f"a {codec} packet of {len(payload)} bytes")
    return _as_float(np.frombuffer(payload, sample_type))


def _as_float(samples: npt.NDArray[Any]) -> FloatSamples:
    floats = samples.astype(np.float32)
    if samples.dtype.kind == "i":
        floats /= 32_768
    return floats


def _mulaw_table() -> FloatSamples:
    """Return the value of each byte, G.711: 8 segments of 16 steps, biased by 33 at 14 bits, all bits inverted."""
    byte = ~np.arange(256) & 0xFF
    magnitude = ((((byte & 15) << 1) + 33) << (byte >> 4 & 7)) - 33
    return _as_float((np.where(byte & 0x80, -magnitude, magnitude) * 4).astype(np.int16))


def _alaw_table() -> FloatSamples:
    """Return the value of each byte, G.711: 8 segments of 16 steps at 13 bits, even bits inverted."""
    byte = np.arange(256) ^ 0x55
    segment, step = byte >> 4 & 7, byte & 15
    magnitude = np.where(segment == 0, 2 * step + 1, (2 * step + 33) << np.maximum(segment - 1, 0))
    return _as_float((np.where(byte & 0x80, magnitude, -magnitude) * 8).astype(np.int16))


_MULAW = _mulaw_table()
_ALAW = _alaw_table()
