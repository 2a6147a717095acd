"""Opus encoding with PyAV's libopus: one packet for each frame of PCM.

Time: an encoder looks ahead, so a decoder's output is the signal delayed by `delay_samples` (6.5 ms; the "pre-skip" of
an Ogg file). The delay is not removed: packet k decodes to samples k·frame … (k+1)·frame of the output, so pts need no
correction and are never negative. The packetizer adds `delay_samples` of silence at the end, which flush the encoder:
a decoder that drops the first `delay_samples` has every sample. Players need not drop them: 6.5 ms of near silence are
only a little latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import av
import numpy as np
from av.audio.codeccontext import AudioCodecContext
from av.codec import CodecContext

from realtime_tts.audio.codecs import OPUS_COMPLEXITY, AudioFormat
from realtime_tts.audio.packets import QUIET_LEVEL

HANGOVER_MS = 200
REFRESH_MS = 400
DECODER_RATE_HZ = 48_000
EXPECTED_LOSS_PERCENT = 10  # packet loss that a FEC encoder is set to
_OPUS_HEAD_PRE_SKIP = slice(10, 12)


class OpusEncoder:
    """Encoder of one stream; its state runs from packet to packet, so every context has its own.

    Args:
        audio_format: an `opus` format. With `fec` the encoder is tuned for voice calls ("voip"), since FEC lives in
            Opus' speech mode; otherwise for fidelity ("audio").

    Attributes:
        delay_samples: delay of the decoded signal, in samples at the format's rate.
    """

    def __init__(self, audio_format: AudioFormat) -> None:
        self._format = audio_format
        self._pts_samples = 0
        self._gate = SilenceGate(audio_format.frame_ms) if audio_format.dtx else None
        self._context = _open_encoder(audio_format)
        # One frame object for all calls: libopus reads it before it returns the packet.
        self._frame = av.AudioFrame(format="s16", layout="mono", samples=audio_format.frame_samples)
        self._frame.sample_rate = audio_format.sample_rate
        self._frame.time_base = Fraction(1, audio_format.sample_rate)
        self._samples = self._frame.planes[0]
        pre_skip = int.from_bytes((self._context.extradata or b"")[_OPUS_HEAD_PRE_SKIP], "little")
        self.delay_samples = pre_skip * audio_format.sample_rate // DECODER_RATE_HZ

    def encode(self, frames: Sequence[bytes]) -> list[bytes]:
        """Encode whole frames of s16le samples, each of the format's length, and return their packets. Raises
        ValueError for a frame of another length."""
        packets = [self._encode(frame) for frame in frames]
        return list(map(self._gate.filter, frames, packets)) if self._gate else packets

    def _encode(self, frame: bytes) -> bytes:
        """Encode one frame by PyAV's internal call. The public `encode` would cut frames with a filter graph for each
        encoder, with a thread for each processor, and these are cut already."""
        self._samples.update(frame)
        self._frame.pts = self._pts_samples
        self._pts_samples += self._format.frame_samples
        packets = [bytes(packet) for packet in self._context._send_frame_and_recv(self._frame)]  # type: ignore[attr-defined]
        assert len(packets) == 1, f"libopus made {len(packets)} packets of a frame"
        return packets[0]


def _open_encoder(audio_format: AudioFormat) -> AudioCodecContext:
    context = CodecContext.create("libopus", "w")
    assert isinstance(context, AudioCodecContext), "libopus is an audio codec"
    context.sample_rate = audio_format.sample_rate
    context.layout = "mono"
    context.format = "s16"
    context.bit_rate = audio_format.bitrate
    context.options = {
        "application": "voip" if audio_format.fec else "audio",
        "frame_duration": str(audio_format.frame_ms),
        "vbr": "constrained",  # no bursts: a packet late on the network is a packet lost
        "compression_level": str(OPUS_COMPLEXITY),
        "fec": str(int(audio_format.fec)),
        "packet_loss": str(EXPECTED_LOSS_PERCENT if audio_format.fec else 0),
    }
    context.open()
    return context


class SilenceGate:
    """Discontinuous transmission (DTX): decides for one stream which packets hold only silence.

    FFmpeg's libopus wrapper does not offer libopus' own DTX, so its rule is applied here, to packets already encoded:
    after 200 ms of quiet a packet is cut down to its header (RFC 6716, section 3.2: frames of no bytes, which a decoder
    conceals), and every 400 ms one is sent whole, so that both sides stay in step. There is still one packet per frame.

    Args:
        frame_ms: duration of each packet.
    """

    def __init__(self, frame_ms: int) -> None:
        self._frame_ms = frame_ms
        self._quiet_ms = 0
        self._since_whole_ms = 0

    def filter(self, pcm: bytes, packet: bytes) -> bytes:
        """Return `packet`, or only its header if the s16le samples of it continue a silence."""
        self._quiet_ms = self._quiet_ms + self._frame_ms if is_quiet(pcm) else 0
        self._since_whole_ms += self._frame_ms
        if self._quiet_ms <= HANGOVER_MS or self._since_whole_ms > REFRESH_MS:
            self._since_whole_ms = 0
            return packet
        return header_only(packet)


def is_quiet(pcm: bytes) -> bool:
    """Return True if no s16le sample is louder than about -60 dBFS."""
    samples = np.frombuffer(pcm, "<i2")
    return not samples.size or bool(samples.max() <= QUIET_LEVEL and samples.min() >= -QUIET_LEVEL)


def header_only(packet: bytes) -> bytes:
    """Return an Opus packet of the same mode and duration whose frames are empty."""
    toc = packet[0]
    frame_count_code = toc & 3
    if frame_count_code == 3:  # a count byte follows; its VBR and padding flags go
        return bytes([toc, packet[1] & 0x3F])
    if frame_count_code == 2:  # two frames of different sizes become two of the same
        return bytes([toc & 0xFC | 1])
    return bytes([toc])
