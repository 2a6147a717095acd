"""When the audio of a context is heard, which is later than where it lies in the context once it had to wait."""

from __future__ import annotations


class Timeline:
    """Audio arrives in pieces and is played one after the other, with a gap wherever it comes too late for that.

    Attributes:
        gaps_s: all gaps so far, in seconds: what is to be added to a time within the context.
    """

    def __init__(self) -> None:
        self.gaps_s = 0.0
        self._end: float | None = None

    def take(self, duration_s: float, now: float) -> None:
        """A piece has arrived."""
        if self._end is None or now > self._end:
            self.gaps_s += 0.0 if self._end is None else now - self._end
            self._end = now
        self._end += duration_s
