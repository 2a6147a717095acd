"""Playback time of a context's audio, which is later than its position in the context after a gap."""

from __future__ import annotations


class Timeline:
    """Timeline of pieces that are played one after the other, with a gap before each piece that arrives late.

    Attributes:
        gaps_s: sum of all gaps so far, in seconds; added to a time within the context.
    """

    def __init__(self) -> None:
        self.gaps_s = 0.0
        self._end: float | None = None

    def take(self, duration_s: float, now: float) -> None:
        """Add a piece that has arrived."""
        if self._end is None or now > self._end:
            self.gaps_s += 0.0 if self._end is None else now - self._end
            self._end = now
        self._end += duration_s

    def insert(self, duration_s: float, now: float) -> None:
        """Add a piece that does not belong to the context."""
        self.take(duration_s, now)
        self.gaps_s += duration_s

    def ahead_s(self, now: float) -> float:
        """Return the duration of the audio that has arrived and is not played yet, in seconds."""
        return 0.0 if self._end is None else max(0.0, self._end - now)
