"""Packets of audio. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Packet:
    """One encoded packet: `pts_samples` and `num_samples` are at the output rate, contiguous within a context."""

    payload: bytes
    pts_samples: int
    num_samples: int
