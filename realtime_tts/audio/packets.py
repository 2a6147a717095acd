"""Packets of audio that follow on each other: one thing from the encoder to the socket. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Packets:
    """As many as there are payloads, maybe none.

    Attributes:
        payloads: encoded, one for each packet.
        pts_samples: where the first packet begins, at the output rate; contiguous within a context.
        packet_samples: the length of each; 0 where a stream's encoder brings out what it held back.
        num_bytes: of all payloads, which is asked for again and again.
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
        """Where the last packet ends."""
        return self.pts_samples + len(self.payloads) * self.packet_samples

    @property
    def num_samples(self) -> int:
        return len(self.payloads) * self.packet_samples

    def num_until(self, end_samples: float) -> int:
        """How many end at this sample or before it."""
        if not self.packet_samples:
            return len(self.payloads) if self.pts_samples <= end_samples else 0
        num_ended = int((end_samples - self.pts_samples) // self.packet_samples)
        return max(0, min(num_ended, len(self.payloads)))

    def between(self, start: int, end: int | None = None) -> Packets:
        """Those of the packets, by their place among them."""
        return Packets(self.payloads[start:end], self.pts_samples + start * self.packet_samples, self.packet_samples)

    def __add__(self, other: Packets) -> Packets:
        """Both, where the other's are of one length with these and follow on them."""
        return Packets(self.payloads + other.payloads, self.pts_samples, self.packet_samples)
