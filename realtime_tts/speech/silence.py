"""Silence that a text requests, as the messages in which the engine sends speech."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from realtime_tts.contract import frames

_PIECE_MS = 160.0
_LEAD_MS = 2000.0


class SilencePace:
    """Pacing of silence: 2 s are sent ahead of playback, none while playback is paused. The engine paces speech, but
    silence costs no work: a text full of pauses would fill the queues."""

    def __init__(self) -> None:
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._begun_at: float | None = None
        self._made_ms = 0.0

    def listening(self, paused: bool) -> None:
        if paused:
            self._flowing.clear()
        else:
            self._flowing.set()

    def interrupted(self) -> None:
        """Note that speech follows: the pace of later silence starts again."""
        self._begun_at = None

    async def wait_for(self, duration_ms: float) -> None:
        """Wait until `duration_ms` more of silence may be sent."""
        now = asyncio.get_running_loop().time()
        if self._begun_at is None:
            self._begun_at, self._made_ms = now, 0.0
        due_at = self._begun_at + (self._made_ms - _LEAD_MS) / 1000
        if due_at > now:
            await asyncio.sleep(due_at - now)
        await self._flowing.wait()
        self._made_ms += duration_ms


async def silence(
    request_id: str, duration_ms: float, rate_hz: int, sample_bytes: int, pace: SilencePace | None
) -> AsyncIterator[frames.Message]:
    """Yield `frames.Audio` and, last, `frames.Done`, like a `RequestStream`. `pace` None: as fast as it is read."""
    num_samples, piece_samples = round(duration_ms * rate_hz / 1000), round(_PIECE_MS * rate_hz / 1000)
    for number, start in enumerate(range(0, num_samples, piece_samples)):
        num_made = min(piece_samples, num_samples - start)
        if pace is not None:
            await pace.wait_for(1000 * num_made / rate_hz)
        yield frames.Audio(request_id, number, payload=bytes(num_made * sample_bytes))
    yield frames.Done(request_id, "stop", num_samples=num_samples)
