"""Conversion of the model's PCM to packets of a context (resample → frames → encode), or to the bytes of a file
(resample → encode → mux).

PyAV is imported by the first object that needs it; call `warm_up` before the first listener waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from realtime_tts.audio.codecs import OPUS_RATES_HZ, AudioFormat
from realtime_tts.audio.containers import EncodedStream, wav_header
from realtime_tts.audio.filters import StreamResampler
from realtime_tts.audio.packets import Packetizer, Packets
from realtime_tts.audio.provenance import Provenance
from realtime_tts.audio.samples import PLAIN_ENCODERS
from realtime_tts.audio.stream_format import CODECS_OF, StreamFormat

FramesEncoder = Callable[[Sequence[bytes]], Sequence[bytes]]
_OPUS_RATE_HZ = 48_000
_STREAMED = {"mp3": "mp3", "ogg_opus": "opus"}


class AudioPipeline:
    """Converter of one context's PCM to packets, without gaps: its state continues from segment to segment.

    Packets of a stream codec count the pushed samples; the encoder may return their bytes a little later.

    Not thread-safe, but may move between threads from call to call. Output bytes and pts depend on the samples alone,
    not on their division.

    Args:
        input_rate_hz: sample rate of the pushed PCM.
        fmt: format of the packets.

    Attributes:
        delay_samples: delay of the decoded audio against its pts, at the output rate: the look-ahead of Opus, or 0.
    """

    def __init__(self, input_rate_hz: int, fmt: AudioFormat) -> None:
        codec = _STREAMED.get(fmt.codec)
        self._stream = EncodedStream(codec, fmt.sample_rate, fmt.bitrate) if codec else None
        self._encode, self.delay_samples = _frames_encoder(fmt, self._stream)
        self._resampler = StreamResampler(input_rate_hz, fmt.sample_rate)
        self._packetizer = Packetizer(fmt.sample_rate, fmt.frame_samples, lookahead_samples=self.delay_samples)

    def push(self, pcm_s16le: bytes) -> Packets:
        """Add samples at the input rate and return the packets that became full."""
        return self._encoded(self._packetizer.push(self._resampler.push(pcm_s16le)))

    def finish(self) -> list[Packets]:
        """Return the rest, the last packet padded with silence. For a stream codec, a packet without samples follows
        that holds the encoder's last bytes. Nothing can be pushed after it."""
        rest = self._encoded(self._packetizer.push(self._resampler.finish()) + self._packetizer.finish())
        finished = [rest] if rest else []
        if self._stream is not None and rest.end_samples:
            finished.append(Packets((self._stream.finish(),), rest.end_samples, 0))
        return finished

    def _encoded(self, frames: Packets) -> Packets:
        if self._encode is None or not frames:
            return frames
        return Packets(tuple(self._encode(frames.payloads)), frames.pts_samples, frames.packet_samples)


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
        self._encoder: _PlainStream | EncodedStream = (
            _PlainStream(fmt, provenance)
            if fmt.is_plain
            else EncodedStream(fmt.codec, rate_hz, fmt.bitrate, provenance)
        )

    def push(self, pcm: bytes) -> bytes:
        """Add samples and return the stream's next bytes; the first include the header."""
        return self._encoder.push(self._resampler.push(pcm))

    def finish(self) -> bytes:
        """Return the rest of the stream; without samples, its header. Nothing can be pushed after it."""
        return self._encoder.push(self._resampler.finish()) + self._encoder.finish()


def warm_up() -> None:
    """Load the codec libraries and run each kind of output once, since some build tables then (about 0.3 s)."""
    outputs: list[AudioPipeline | SpeechStream] = [AudioPipeline(16_000, AudioFormat())]
    outputs += [SpeechStream(16_000, StreamFormat(name, codecs[0], 48_000)) for name, codecs in CODECS_OF.items()]
    for output in outputs:
        output.push(bytes(2 * 1600))
        output.finish()
    for encode in PLAIN_ENCODERS.values():
        encode(bytes(2))


def _frames_encoder(fmt: AudioFormat, stream: EncodedStream | None) -> tuple[FramesEncoder | None, int]:
    """Return the encoder of frames, or None if frames are sent as PCM, and its look-ahead in samples."""
    if fmt.codec == "opus":
        from realtime_tts.audio.opus import OpusEncoder

        encoder = OpusEncoder(fmt)
        return encoder.encode, encoder.delay_samples
    if fmt.codec == "pcm_s16le":
        return None, 0
    encode = stream.push if stream is not None else PLAIN_ENCODERS[fmt.codec]
    return lambda frames: [encode(frame) for frame in frames], 0


class _PlainStream:
    """Uncompressed samples, after a header if the container has one."""

    def __init__(self, fmt: StreamFormat, provenance: Provenance | None) -> None:
        self._encode = PLAIN_ENCODERS[fmt.codec]
        is_wav = fmt.container == "wav"
        self._header = wav_header(fmt.sample_rate, fmt.codec, provenance=provenance) if is_wav else b""

    def push(self, pcm: bytes) -> bytes:
        return self.finish() + self._encode(pcm)

    def finish(self) -> bytes:
        header, self._header = self._header, b""
        return header
