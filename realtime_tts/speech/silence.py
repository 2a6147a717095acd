"""Silence requested by a text, in the form in which the engine would send speech."""

from __future__ import annotations

import asyncio

from realtime_tts.contract import frames

_PIECE_MS = 160.0
_LEAD_MS = 2000.0


class SilencePace:
    """Pacing of silence: little is sent ahead of playback, and none while playback is paused. The engine paces speech,
    but silence costs nothing, so a text full of pauses would pile up."""

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
        """Record that speech has come: later silence is paced anew."""
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


class Silence:
    """Asynchronous iterator of `frames.Audio` and, last, `frames.Done`, like a `RequestStream`.

    Args:
        pace: None: as fast as it is read.
    """

    def __init__(
        self, request_id: str, duration_ms: float, sample_rate_hz: int, sample_bytes: int, pace: SilencePace | None
    ) -> None:
        self._request_id, self._pace = request_id, pace
        self._rate_hz, self._sample_bytes = sample_rate_hz, sample_bytes
        self._num_samples = round(duration_ms * sample_rate_hz / 1000)
        self._num_made = self._num_pieces = 0

    async def __anext__(self) -> frames.Message:
        num_samples = min(round(_PIECE_MS * self._rate_hz / 1000), self._num_samples - self._num_made)
        if num_samples <= 0:
            return frames.Done(self._request_id, "stop", num_samples=self._num_samples)
        if self._pace is not None:
            await self._pace.wait_for(1000 * num_samples / self._rate_hz)
        self._num_made += num_samples
        self._num_pieces += 1
        return frames.Audio(self._request_id, self._num_pieces - 1, payload=bytes(num_samples * self._sample_bytes))
