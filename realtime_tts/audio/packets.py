"""Consecutive packets of audio as one object from the encoder to the socket, and cutting of PCM into them. Pure."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field

BYTES_PER_SAMPLE = 2
FADE_MS = 5
# Below about -60 dBFS a step down to silence is no audible click.
QUIET_LEVEL = 32


@dataclass(frozen=True, slots=True)
class Packets:
    """Consecutive packets, maybe none.

    Attributes:
        payloads: encoded bytes, one item for each packet.
        pts_samples: start of the first packet, in samples at the output rate; contiguous within a context.
        packet_samples: length of each packet; 0 for the bytes that a stream's encoder returns at its end.
        num_bytes: total size of the payloads, computed once because it is queried often.
    """

    payloads: tuple[bytes, ...]
    pts_samples: int
    packet_samples: int
    num_bytes: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_bytes", sum(map(len, self.payloads)))

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def end_samples(self) -> int:
        """End of the last packet, in samples."""
        return self.pts_samples + len(self.payloads) * self.packet_samples

    @property
    def num_samples(self) -> int:
        return len(self.payloads) * self.packet_samples

    def num_until(self, end_samples: float) -> int:
        """Return the number of packets that end at this sample or before it."""
        if not self.packet_samples:
            return len(self.payloads) if self.pts_samples <= end_samples else 0
        num_ended = int((end_samples - self.pts_samples) // self.packet_samples)
        return max(0, min(num_ended, len(self.payloads)))

    def between(self, start: int, end: int | None = None) -> Packets:
        """Return the packets from index `start` to `end`."""
        return Packets(self.payloads[start:end], self.pts_samples + start * self.packet_samples, self.packet_samples)

    def __add__(self, other: Packets) -> Packets:
        """Return both, in order. The other's packets must have the same length and continue these."""
        return Packets(self.payloads + other.payloads, self.pts_samples, self.packet_samples)


class Packetizer:
    """Cuts mono s16le PCM into packets of `frame_samples` raw samples.

    Every pushed sample is returned once and in order. After the last one follow a decay of at most 5 ms from its value
    (against a click) and zeros, up to the end of a frame.

    Args:
        sample_rate: Hz; for the length of the decay.
        frame_samples: samples of each packet.
        lookahead_samples: minimum number of zeros after the last sample, those that an encoder holds back.
    """

    def __init__(self, sample_rate: int, frame_samples: int, lookahead_samples: int = 0) -> None:
        self._frame_samples = frame_samples
        self._lookahead_samples = lookahead_samples
        self._fade_samples = max(1, sample_rate * FADE_MS // 1000)
        self._rest = b""  # less than a packet
        self._next_pts = 0
        self._last_sample = b"\0\0"

    def push(self, pcm: bytes) -> Packets:
        """Add samples and return the packets that became full."""
        return self._cut(self._rest + pcm)

    def finish(self) -> Packets:
        """Return the remaining samples, padded to whole frames; nothing if nothing was pushed. Nothing can be pushed
        after it."""
        if not self._next_pts and not self._rest:
            return self._cut(b"")
        last_sample = int.from_bytes(self._last_sample, "little", signed=True)
        loud = abs(last_sample) > QUIET_LEVEL
        tail_samples = max(self._lookahead_samples, self._fade_samples if loud else 0)
        num_samples = len(self._rest) // BYTES_PER_SAMPLE + tail_samples
        num_padding = tail_samples + -num_samples % self._frame_samples
        fade = _decay(last_sample, self._fade_samples)[: num_padding * BYTES_PER_SAMPLE]
        return self._cut(self._rest + fade + bytes(num_padding * BYTES_PER_SAMPLE - len(fade)))

    def _cut(self, pcm: bytes) -> Packets:
        """Return all full packets; keep the rest."""
        frame_bytes = self._frame_samples * BYTES_PER_SAMPLE
        num_bytes = len(pcm) // frame_bytes * frame_bytes
        self._last_sample = pcm[-BYTES_PER_SAMPLE:] or self._last_sample
        payloads = tuple([pcm[start : start + frame_bytes] for start in range(0, num_bytes, frame_bytes)])
        self._rest = pcm[num_bytes:]
        packets = Packets(payloads, self._next_pts, self._frame_samples)
        self._next_pts = packets.end_samples
        return packets


def _decay(start: int, num_samples: int) -> bytes:
    """Return half a cosine from `start` to 0, s16le, without a step in value, and without one in slope at its end."""
    if abs(start) <= 1:
        return b""
    values = (round(start * 0.5 * (1 + math.cos(math.pi * (i + 1) / num_samples))) for i in range(num_samples))
    return struct.pack(f"<{num_samples}h", *values)
