"""Files and byte streams around the audio: WAV (of known or unknown length) and Ogg Opus, made as the sound is."""

from __future__ import annotations

import io
import struct
import wave
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import av

_WAVE_TAGS = {"pcm_s16le": (1, 2), "pcm_f32le": (3, 4), "alaw": (6, 1), "mulaw": (7, 1)}  # format tag, bytes a sample
_UNKNOWN_LENGTH = 0xFFFFFFFF


def wav_header(sample_rate: int, codec: str = "pcm_s16le", num_samples: int | None = None) -> bytes:
    """Header of a mono WAV file; samples in `codec` follow it.

    `num_samples` None: the length is not known yet. Both lengths are then the largest there are, which players and
    FFmpeg take for "until the end".
    """
    tag, sample_bytes = _WAVE_TAGS[codec]
    data_bytes = _UNKNOWN_LENGTH if num_samples is None else num_samples * sample_bytes
    fmt = struct.pack("<HHIIHH", tag, 1, sample_rate, sample_rate * sample_bytes, sample_bytes, 8 * sample_bytes)
    chunks = b"fmt " + struct.pack("<I", len(fmt)) + fmt
    if tag != 1 and num_samples is not None:  # required of formats that are not integer PCM
        chunks += struct.pack("<4sII", b"fact", 4, num_samples)
    padding = data_bytes % 2  # chunks begin at even offsets
    riff_bytes = _UNKNOWN_LENGTH if num_samples is None else 4 + len(chunks) + 8 + data_bytes + padding
    return b"RIFF" + struct.pack("<I", riff_bytes) + b"WAVE" + chunks + b"data" + struct.pack("<I", data_bytes)


def write_wav(path: str | Path, pcm_s16le: bytes, sample_rate: int) -> None:
    """Writes a mono 16-bit WAV file."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes(pcm_s16le)


class OggOpusStream:
    """mono s16le PCM → the bytes of an Ogg Opus file, page by page. Exact to the sample: pre-skip and end are marked.

    Args:
        sample_rate: of the PCM, Hz; one that Opus knows (8, 12, 16, 24, 48 kHz).
        bitrate: bits per second.
        page_ms: audio in a page; what a listener waits for at most.
    """

    content_type = "audio/ogg; codecs=opus"

    def __init__(self, sample_rate: int, bitrate: int = 32_000, page_ms: int = 20) -> None:
        import av

        self._sink = _Sink()
        options = {"page_duration": str(page_ms * 1000)}
        self._container = av.open(self._sink, "w", format="ogg", container_options=options)
        self._stream = self._container.add_stream("libopus", rate=sample_rate)
        context = self._stream.codec_context
        context.layout, context.format, context.bit_rate = "mono", "s16", bitrate
        context.options = {"frame_duration": "20", "application": "audio"}
        context.time_base = Fraction(1, sample_rate)
        self._sample_rate = sample_rate
        self._frame_bytes = 2 * sample_rate // 50
        self._buffer = bytearray()
        self._pts_samples = 0
        self._finished = False

    def push(self, pcm: bytes) -> bytes:
        """Samples in (a chunk may end within one), the file's next bytes out; the header comes with the first."""
        if self._finished:
            raise ValueError("push after finish")
        self._buffer += pcm
        while len(self._buffer) >= self._frame_bytes:
            self._encode(self._frame_bytes)
        return self._sink.take()

    def finish(self) -> bytes:
        """The rest of the file."""
        if self._finished:
            return b""
        self._finished = True
        if len(self._buffer) >= 2:
            self._encode(len(self._buffer) & ~1)
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._sink.take()

    def _encode(self, num_bytes: int) -> None:
        import av

        frame: av.AudioFrame = av.AudioFrame(format="s16", layout="mono", samples=num_bytes // 2)
        frame.planes[0].update(bytes(self._buffer[:num_bytes]))
        frame.sample_rate = self._sample_rate
        frame.time_base = Fraction(1, self._sample_rate)
        frame.pts = self._pts_samples
        self._pts_samples += num_bytes // 2
        del self._buffer[:num_bytes]
        self._container.mux(self._stream.encode(frame))


class _Sink(io.RawIOBase):
    """A file that can only be written; what was written is taken away."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._chunks.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        data = b"".join(self._chunks)
        self._chunks.clear()
        return data
