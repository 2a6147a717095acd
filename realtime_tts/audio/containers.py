"""Audio containers, written while the audio is generated: WAV of known or unknown length, and those of libav."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from realtime_tts.audio.provenance import Provenance
from realtime_tts.audio.samples import as_f32le

if TYPE_CHECKING:
    import av

_WAVE_TAGS = {"pcm_s16le": (1, 2), "pcm_f32le": (3, 4), "alaw": (6, 1), "mulaw": (7, 1)}  # format tag, bytes a sample
_UNKNOWN_LENGTH = 0xFFFFFFFF
_MAX_DATA_BYTES = _UNKNOWN_LENGTH - 2**16  # the file's length counts the chunks before the samples, too


def wav_header(
    sample_rate: int, codec: str = "pcm_s16le", num_samples: int | None = None, provenance: Provenance | None = None
) -> bytes:
    """Return the header of a mono WAV file; samples in `codec` follow it.

    `num_samples` None: the length is not known yet. Both lengths are then the maximum, which players and FFmpeg read as
    "until the end". The same holds for more samples than the format can count: 12 hours at 48 kHz.
    """
    tag, sample_bytes = _WAVE_TAGS[codec]
    if num_samples is not None and num_samples * sample_bytes > _MAX_DATA_BYTES:
        num_samples = None
    data_bytes = _UNKNOWN_LENGTH if num_samples is None else num_samples * sample_bytes
    fmt = struct.pack("<HHIIHH", tag, 1, sample_rate, sample_rate * sample_bytes, sample_bytes, 8 * sample_bytes)
    chunks = b"fmt " + struct.pack("<I", len(fmt)) + fmt
    if tag != 1 and num_samples is not None:  # required of formats that are not integer PCM
        chunks += struct.pack("<4sII", b"fact", 4, num_samples)
    if provenance is not None:
        chunks += provenance.wav_chunk
    padding = data_bytes % 2  # chunks begin at even offsets
    riff_bytes = _UNKNOWN_LENGTH if num_samples is None else 4 + len(chunks) + 8 + data_bytes + padding
    return b"RIFF" + struct.pack("<I", riff_bytes) + b"WAVE" + chunks + b"data" + struct.pack("<I", data_bytes)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Settings of one libav container."""

    muxer: str
    encoder: str
    sample_format: str
    encoder_options: dict[str, str] = field(default_factory=dict)
    muxer_options: dict[str, str] = field(default_factory=dict)


_KINDS = {
    # LAME's levels are 0 (best) to 9 (fastest): 7 takes half the time of the default. The Xing header is at the
    # beginning of a file, and its content is known only at the end.
    "mp3": _Kind("mp3", "libmp3lame", "s16p", {"compression_level": "7"}, {"write_xing": "0"}),
    # The delay is one page at most.
    "opus": _Kind(
        "ogg", "libopus", "s16", {"frame_duration": "20", "application": "audio"}, {"page_duration": str(20_000)}
    ),
    # Frames of 27 ms instead of 105.
    "flac": _Kind("flac", "flac", "s16", {"compression_level": "2"}, {"metadata_header_padding": "0"}),
    "aac": _Kind("adts", "aac", "fltp"),
}


class EncodedStream:
    """Converter of mono s16le PCM to the bytes of an MP3, Ogg Opus, FLAC or AAC (ADTS) file, as the samples arrive.

    Ogg Opus and FLAC decode to exactly the pushed samples: Ogg Opus states how many samples at its ends to drop. MP3
    and AAC streams cannot state that: they begin with their encoder's delay (1105 samples of MP3, 1024 of AAC) and end
    with silence up to a frame's end. No speech is lost.

    Args:
        codec: mp3, opus, flac or aac.
        sample_rate: of the PCM, Hz; one that the codec supports.
        bitrate: bits per second, constant for mp3; ignored by flac.
        provenance: tags of the file; AAC (ADTS) has none.
    """

    def __init__(
        self, codec: str, sample_rate: int, bitrate: int = 32_000, provenance: Provenance | None = None
    ) -> None:
        import av
        from av.audio.codeccontext import AudioCodecContext

        kind = self._kind = _KINDS[codec]
        self._sink = _Sink()
        options = {"flush_packets": "1", **kind.muxer_options}
        if codec == "mp3":
            options["id3v2_version"] = "3" if provenance is not None else "0"
        self._container = av.open(self._sink, "w", format=kind.muxer, container_options=options)
        self._stream = self._container.add_stream(kind.encoder, rate=sample_rate)
        if provenance is not None:
            self._container.metadata.update(provenance.tags)
            self._stream.metadata.update(provenance.tags)
        context = self._stream.codec_context
        assert isinstance(context, AudioCodecContext), f"{kind.encoder} is an audio codec"
        self._context = context
        context.layout, context.format, context.options = "mono", kind.sample_format, dict(kind.encoder_options)
        context.thread_count = 1
        if codec != "flac":
            context.bit_rate = bitrate
        self._time_base = context.time_base = Fraction(1, sample_rate)
        self._sample_rate = sample_rate
        self._container.start_encoding()  # opens the encoder
        self._frame_bytes = 2 * context.frame_size
        self._buffer = bytearray()
        self._pts_samples = 0

    def push(self, pcm: bytes) -> bytes:
        """Encode samples and return the file's next bytes; the first include the header."""
        self._buffer += pcm
        while len(self._buffer) >= self._frame_bytes:
            self._encode(self._frame_bytes)
        return self._sink.take()

    def finish(self) -> bytes:
        """Return the rest of the file. Nothing can be pushed after it."""
        if self._buffer:
            self._encode(len(self._buffer))
        self._mux(None)
        self._container.close()
        return self._sink.take()

    def _encode(self, num_bytes: int) -> None:
        import av

        pcm = bytes(self._buffer[:num_bytes])
        del self._buffer[:num_bytes]
        frame: av.AudioFrame = av.AudioFrame(format=self._kind.sample_format, layout="mono", samples=num_bytes // 2)
        frame.planes[0].update(as_f32le(pcm) if self._kind.sample_format == "fltp" else pcm)
        frame.sample_rate, frame.time_base, frame.pts = self._sample_rate, self._time_base, self._pts_samples
        self._mux(frame)
        self._pts_samples += num_bytes // 2

    def _mux(self, frame: av.AudioFrame | None) -> None:
        """Encode one frame, or the end for None. Why not by PyAV's public call: see `OpusEncoder`."""
        for packet in self._context._send_frame_and_recv(frame):  # type: ignore[attr-defined]
            packet.stream, packet.time_base = self._stream, self._time_base
            self._container.mux(packet)


class _Sink(io.BytesIO):
    """Bytes of a file until they are taken. It cannot be sought, so nothing is written to what was taken."""

    def seekable(self) -> bool:
        return False

    def take(self) -> bytes:
        data = self.getvalue()
        self.seek(0)
        self.truncate()
        return data
