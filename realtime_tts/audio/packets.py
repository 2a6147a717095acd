"""Consecutive packets of audio, handled as one object from the encoder to the socket. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


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
