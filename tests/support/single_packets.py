"""Packets taken apart, to look at each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from realtime_tts.audio.packets import Packets


@dataclass(frozen=True)
class Packet:
    payload: bytes
    pts_samples: int
    num_samples: int


def single_packets(pushed: Iterable[Packets]) -> list[Packet]:
    return [
        Packet(payload, packets.pts_samples + place * packets.packet_samples, packets.packet_samples)
        for packets in pushed
        for place, payload in enumerate(packets.payloads)
    ]
