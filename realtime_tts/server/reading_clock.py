"""How much of an answer over plain HTTP counts as heard. Pure; the time is passed in."""

from __future__ import annotations

# What a client that reads at once is taken to have in front of it: more than the engine would hurry for, less than that
# it would wait for (`park_low_s` of the scheduler).
KEPT_MS = 1_500.0


class ReadingClock:
    """A listener without a playback clock of its own. It plays in real time from its first audio on; whoever reads
    faster, to fill a file or a player's buffer, counts as having heard all but the last of what it took.

    So the engine makes speech as fast as it is read, hurries for it as for any listener's if it is short of time, and
    stops a few seconds ahead of one that does not read.
    """

    def __init__(self) -> None:
        self._started_s = 0.0
        self._taken_ms = 0.0

    def take(self, audio_ms: float, now: float) -> None:
        """The peer has taken so much of the speech, in all."""
        if not self._taken_ms:
            self._started_s = now
        self._taken_ms = max(self._taken_ms, audio_ms)

    def heard_ms(self, now: float) -> float:
        elapsed_ms = 1000 * (now - self._started_s)
        return max(min(self._taken_ms, elapsed_ms), self._taken_ms - KEPT_MS) if self._taken_ms else 0.0
