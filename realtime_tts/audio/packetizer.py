"""Packets of audio: PCM in any chunking becomes frames of one exact length. Pure."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

BYTES_PER_SAMPLE = 2
FADE_MS = 5
# Below about -60 dBFS a step down to silence is not heard as a click.
QUIET_LEVEL = 32


@dataclass(frozen=True, slots=True)
class Packet:
    """One encoded packet: `pts_samples` and `num_samples` are at the output rate, contiguous within a context."""

    payload: bytes
    pts_samples: int
    num_samples: int


class Packetizer:
    """Cuts mono s16le PCM into packets of `frame_samples` raw samples.

    Every sample that goes in comes out once and in order. What follows the last one is a decay of at most 5 ms from
    its value (no click) and zeros, up to the end of a frame.

    Args:
        sample_rate: Hz, sets the length of the decay.
        frame_samples: samples of each packet.
        lookahead_samples: zeros that must follow the last sample at least: what an encoder holds back.
    """

    def __init__(self, sample_rate: int, frame_samples: int, lookahead_samples: int = 0) -> None:
        if frame_samples <= 0 or sample_rate <= 0 or lookahead_samples < 0:
            raise ValueError("frame_samples and sample_rate must be positive, lookahead_samples not negative")
        self._frame_samples = frame_samples
        self._lookahead_samples = lookahead_samples
        self._fade_samples = max(1, sample_rate * FADE_MS // 1000)
        self._buffer = bytearray()
        self._next_pts = 0
        self._last_sample = 0
        self._finished = False

    @property
    def num_buffered_samples(self) -> int:
        """Whole samples that wait for their frame to fill."""
        return len(self._buffer) // BYTES_PER_SAMPLE

    def push(self, pcm: bytes) -> list[Packet]:
        """Adds samples (a chunk may end within one) and returns the packets that became full."""
        if self._finished:
            raise ValueError("push after finish")
        self._buffer += pcm
        self._remember_last_sample()
        return self._full_packets()

    def finish(self) -> list[Packet]:
        """The remaining samples, padded to whole frames; nothing if nothing was pushed.

        Raises:
            ValueError: the PCM ended within a sample.
        """
        if self._finished:
            return []
        if len(self._buffer) % BYTES_PER_SAMPLE:
            raise ValueError("the PCM ended within a sample")
        self._finished = True
        if not self._next_pts and not self._buffer:
            return []
        loud = abs(self._last_sample) > QUIET_LEVEL
        tail_samples = max(self._lookahead_samples, self._fade_samples if loud else 0)
        num_samples = self.num_buffered_samples + tail_samples
        num_padding = tail_samples + -num_samples % self._frame_samples
        fade = _decay(self._last_sample, self._fade_samples)[: num_padding * BYTES_PER_SAMPLE]
        self._buffer += fade + bytes(num_padding * BYTES_PER_SAMPLE - len(fade))
        return self._full_packets()

    def _remember_last_sample(self) -> None:
        end = len(self._buffer) & ~1
        if end:
            self._last_sample = struct.unpack_from("<h", self._buffer, end - BYTES_PER_SAMPLE)[0]

    def _full_packets(self) -> list[Packet]:
        frame_bytes = self._frame_samples * BYTES_PER_SAMPLE
        num_frames = len(self._buffer) // frame_bytes
        packets = []
        for index in range(num_frames):
            payload = bytes(self._buffer[index * frame_bytes : (index + 1) * frame_bytes])
            packets.append(Packet(payload, self._next_pts, self._frame_samples))
            self._next_pts += self._frame_samples
        del self._buffer[: num_frames * frame_bytes]
        return packets


def _decay(start: int, num_samples: int) -> bytes:
    """Half a cosine from `start` towards 0, s16le: no jump in value, none in slope where it reaches zero."""
    if abs(start) <= 1:
        return b""
    values = (round(start * 0.5 * (1 + math.cos(math.pi * (i + 1) / num_samples))) for i in range(num_samples))
    return struct.pack(f"<{num_samples}h", *values)
