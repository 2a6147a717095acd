"""Discontinuous transmission for an Opus stream: packets of one or two bytes while nothing is said. Pure.

FFmpeg's libopus wrapper does not offer libopus' own DTX, so its rule is applied here, to packets already encoded:
after 200 ms of quiet a packet is cut down to its header (RFC 6716, section 3.2: frames of no bytes, which a decoder
conceals), and every 400 ms one goes out whole, so that both sides stay in step. Time goes on: there is still one packet
per frame.
"""

from __future__ import annotations

import numpy as np

from realtime_tts.audio.packets import QUIET_LEVEL

HANGOVER_MS = 200
REFRESH_MS = 400


class SilenceGate:
    """Decides for one stream which packets hold only silence.

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
