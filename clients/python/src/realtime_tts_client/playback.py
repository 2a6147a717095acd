"""Playback position of a context, as far as this program knows. Pure: time is passed in."""

from __future__ import annotations

from typing import Literal

PlaybackMode = Literal["realtime", "consumed", "manual"]


class PlaybackClock:
    """Playback clock of one context.

    Args:
        mode: `realtime`: packets play one after the other from when they are taken. `consumed`: taken packets count
            as heard at once, for files and for reading faster than real time. `manual`: the program reports it.
    """

    def __init__(self, mode: PlaybackMode) -> None:
        self.mode = mode
        self.taken_ms = 0.0
        self.held_ms: float | None = None
        self._base_ms = 0.0
        self._base_at = 0.0

    def take(self, duration_ms: float, now: float) -> None:
        """Record a packet given to the program."""
        self._base_ms, self._base_at = self.position_ms(now), now
        self.taken_ms += duration_ms

    def report(self, played_ms: float, now: float) -> None:
        """Set the position reported by the program, which overrides the estimate."""
        self._base_ms, self._base_at = max(0.0, played_ms), now

    def hold(self, position_ms: float) -> None:
        """Stop at a position, until `release`."""
        self.held_ms = position_ms

    def release(self, from_ms: float, now: float) -> None:
        """Go on at a position; packets from there on are taken again."""
        self.held_ms = None
        self.taken_ms = self._base_ms = from_ms
        self._base_at = now

    def position_ms(self, now: float) -> float:
        """Return the playback position in ms."""
        if self.held_ms is not None:
            return self.held_ms
        if self.mode == "manual":
            return self._base_ms
        if self.mode == "consumed":
            return self.taken_ms
        return min(self.taken_ms, self._base_ms + max(0.0, now - self._base_at) * 1000)
