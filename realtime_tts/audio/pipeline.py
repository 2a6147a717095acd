"""From the model's PCM to packets on the wire: resample → frames → encode, one pipeline per context.

PyAV is imported when the first pipeline that needs it is made; call `warm_up` before the first listener waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from realtime_tts.audio import containers
from realtime_tts.audio.codecs import OPUS_COMPLEXITY, AudioFormat
from realtime_tts.audio.filters import StreamResampler
from realtime_tts.audio.packets import Packetizer, Packets
from realtime_tts.audio.samples import PLAIN_ENCODERS

FramesEncoder = Callable[[Sequence[bytes]], Sequence[bytes]]
_STREAMED = {"mp3": "mp3", "ogg_opus": "opus"}


class AudioPipeline:
    """Gapless: segments of a context are pushed one after the other, and state runs on between them.

    Packets of a stream codec count the samples that went in; the encoder may give their bytes a little later.

    Not thread-safe, but may move between threads from call to call. Output bytes and pts depend on the samples alone,
    never on how they were split.

    Args:
        input_rate_hz: of the PCM that is pushed.
        fmt: of the packets.
        opus_complexity: 0…10, quality against processor time.

    Attributes:
        delay_samples: delay of the decoded audio against its pts, at the output rate: the look-ahead of Opus, or 0.
    """

    def __init__(self, input_rate_hz: int, fmt: AudioFormat, opus_complexity: int = OPUS_COMPLEXITY) -> None:
        self.format = fmt
        self._stream = _stream(fmt)
        self._encode, self.delay_samples = _frames_encoder(fmt, self._stream, opus_complexity)
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


def warm_up() -> None:
    """Load the codec libraries and run them once (about 0.3 s, once per process)."""
    pipeline = AudioPipeline(16_000, AudioFormat())
    pipeline.push(bytes(2 * 1600))
    pipeline.finish()
    for encode in PLAIN_ENCODERS.values():
        encode(bytes(2))


def _stream(fmt: AudioFormat) -> containers.EncodedStream | None:
    """Return the stream encoder of the format; None for packets that stand alone."""
    codec = _STREAMED.get(fmt.codec)
    return containers.EncodedStream(codec, fmt.sample_rate, fmt.bitrate) if codec else None


def _frames_encoder(
    fmt: AudioFormat, stream: containers.EncodedStream | None, opus_complexity: int
) -> tuple[FramesEncoder | None, int]:
    """Return the encoder of frames, or None if frames are sent as PCM, and its look-ahead in samples."""
    if fmt.codec == "opus":
        from realtime_tts.audio.opus import OpusEncoder

        encoder = OpusEncoder(fmt, opus_complexity)
        return encoder.encode, encoder.delay_samples
    if fmt.codec == "pcm_s16le":
        return None, 0
    encode = stream.push if stream is not None else PLAIN_ENCODERS[fmt.codec]
    return lambda frames: [encode(frame) for frame in frames], 0
