"""How much of a context its listener has heard, as far as this program knows. Pure: time is passed in."""

from __future__ import annotations

from typing import Literal

PlaybackMode = Literal["realtime", "consumed", "manual"]


class PlaybackClock:
    """One context's listener.

    Args:
        mode: `realtime`: packets that were taken are heard one after the other from when they were taken. `consumed`:
            what was taken was heard, for files and faster than real time. `manual`: the program says so itself.
    """

    def __init__(self, mode: PlaybackMode) -> None:
        self.mode = mode
        self.taken_ms = 0.0
        self._base_ms = 0.0
        self._base_at = 0.0

    def take(self, duration_ms: float, now: float) -> None:
        """A packet was handed to the program."""
        self._base_ms, self._base_at = self.position_ms(now), now
        self.taken_ms += duration_ms

    def report(self, played_ms: float, now: float) -> None:
        """The program's own figure, which overrides the estimate."""
        self._base_ms, self._base_at = max(0.0, played_ms), now

    def position_ms(self, now: float) -> float:
        """Milliseconds of the context that were heard."""
        if self.mode == "manual":
            return self._base_ms
        if self.mode == "consumed":
            return self.taken_ms
        return min(self.taken_ms, self._base_ms + max(0.0, now - self._base_at) * 1000)
