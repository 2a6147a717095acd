"""Decoder of Opus packets, as a listener has one."""

from __future__ import annotations

import av
import numpy as np
from av.codec import CodecContext


class OpusDecoder:
    """Decodes packets to float32 samples at 48 kHz, the encoder's delay left in."""

    def __init__(self) -> None:
        self._context = CodecContext.create("libopus", "r")
        self._context.sample_rate = 48_000
        self._context.layout = "mono"
        self._context.open()

    def decode(self, packet: bytes) -> np.ndarray:
        return np.concatenate(
            [
                frame.to_ndarray().reshape(-1).astype(np.float32) / 32_768
                for frame in self._context.decode(av.Packet(packet))
            ]
        )
