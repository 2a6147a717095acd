"""Speech packets as a continuous RTP stream: packets unchanged from the server's encoder, silence between turns."""

from __future__ import annotations

import asyncio
import fractions
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import av
from aiortc import MediaStreamTrack, RTCRtpSender
from aiortc.mediastreams import MediaStreamError
from realtime_tts_client import Packet
from realtime_tts_client.decoding import OPUS_DELAY_SAMPLES

RATE_HZ = 48_000
FRAME_SAMPLES = 960
FRAME_S = FRAME_SAMPLES / RATE_HZ
SILENCE = b"\xf8\xff\xfe"  # an Opus frame of silence
MAX_LATE_S = 0.2  # after a longer stall, missed packets are not sent in a burst
_TIME_BASE = fractions.Fraction(1, RATE_HZ)
_WRAP = 1 << 32


@dataclass
class _Run:
    """A stretch of a turn without a gap."""

    timestamp: int
    start_ms: float
    end_ms: float


class Playout:
    """Playback position within a turn. Pure; timestamps are samples since the track began."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def begin(self) -> None:
        """Start a new turn."""
        self._runs.clear()

    def sent(self, timestamp: int, packet: Packet) -> bool:
        """Record a sent packet. Return whether it is the first of a stretch."""
        end_ms = packet.start_ms + packet.duration_ms
        if self._runs:
            last = self._runs[-1]
            if timestamp - last.timestamp == round((packet.start_ms - last.start_ms) * RATE_HZ / 1000):
                last.end_ms = end_ms
                return False
        self._runs.append(_Run(timestamp, packet.start_ms, end_ms))
        return True

    @property
    def sent_ms(self) -> float:
        """End of the audio sent of the turn, in ms."""
        return self._runs[-1].end_ms if self._runs else 0.0

    def heard_ms(self, timestamp: int) -> float:
        """Return the position in the turn, ms, of a listener that has played the stream up to a timestamp."""
        timestamp -= OPUS_DELAY_SAMPLES
        for run in reversed(self._runs):
            if run.timestamp <= timestamp:
                return min(run.end_ms, run.start_ms + (timestamp - run.timestamp) * 1000 / RATE_HZ)
        return 0.0


class SpeechTrack(MediaStreamTrack):
    """Audio track of one caller. aiortc takes a packet every 20 ms of real time and sends it unchanged.

    Args:
        on_run: called when a stretch of speech without a gap begins: with its RTP timestamp and where in its turn that
            is, ms.
    """

    kind = "audio"

    def __init__(self, on_run: Callable[[int, float], None]) -> None:
        super().__init__()
        self.sender: RTCRtpSender | None = None
        self._on_run = on_run
        self._queue: deque[Packet] = deque()
        self._playout = Playout()
        self._timestamp = -FRAME_SAMPLES  # of the latest packet
        self._began_at = 0.0
        self._origin: int | None = None

    def begin(self) -> None:
        """Begin a turn. The one before is over: positions are no longer its."""
        self._playout.begin()

    def put(self, packet: Packet) -> None:
        self._queue.append(packet)

    def drop(self) -> int:
        """Discard all unsent packets. Return the RTP timestamp from which on there is silence."""
        self._queue.clear()
        return ((self._origin or 0) + self._timestamp + FRAME_SAMPLES) % _WRAP

    def drop_from(self, position_ms: float) -> None:
        """Discard unsent packets that are not needed to hear the turn up to a position."""
        needed_ms = position_ms + OPUS_DELAY_SAMPLES * 1000 / RATE_HZ
        while self._queue and self._queue[-1].start_ms >= needed_ms:
            self._queue.pop()

    @property
    def sent_ms(self) -> float:
        """End of the audio sent of the latest turn, in ms."""
        return self._playout.sent_ms

    def heard_ms(self, rtp_timestamp: int) -> float:
        """Return the position in the latest turn, ms, of a listener at an RTP timestamp."""
        if self._origin is None:
            return 0.0
        behind = (self._origin + self._timestamp - rtp_timestamp) % _WRAP
        return self._playout.heard_ms(self._timestamp - behind if behind < _WRAP // 2 else self._timestamp)

    async def recv(self) -> av.Packet[Any]:
        """Return the next packet. Raises MediaStreamError: the track was stopped."""
        self._find_origin()
        await self._tick()
        if self.readyState != "live":
            raise MediaStreamError
        made: av.Packet[Any] = av.Packet(self._next_payload())
        made.pts, made.time_base = self._timestamp, _TIME_BASE
        return made

    def _next_payload(self) -> bytes:
        if not self._queue or self._origin is None:
            return SILENCE
        packet = self._queue.popleft()
        if self._playout.sent(self._timestamp, packet):
            self._on_run((self._origin + self._timestamp) % _WRAP, packet.start_ms)
        return packet.payload

    async def _tick(self) -> None:
        now = asyncio.get_running_loop().time()
        timestamp = self._timestamp + FRAME_SAMPLES
        if timestamp == 0:
            self._began_at = now
        late_s = now - (self._began_at + timestamp / RATE_HZ)
        if late_s > MAX_LATE_S:
            timestamp += int(late_s / FRAME_S) * FRAME_SAMPLES
        elif late_s < 0:
            await asyncio.sleep(-late_s)
        self._timestamp = timestamp

    def _find_origin(self) -> None:
        """Derive the first RTP timestamp, which aiortc chooses at random and hides, from the last one sent."""
        if self._origin is None and self._timestamp >= 0 and self.sender is not None:
            sent: int = getattr(self.sender, "_RTCRtpSender__rtp_timestamp")  # noqa: B009 - checked by no tool
            self._origin = (sent - self._timestamp) % _WRAP
