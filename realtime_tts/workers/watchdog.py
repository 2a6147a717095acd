"""Detection of a hung process from its signs of life. Pure: time is passed in."""

from __future__ import annotations

_TICK_S = 0.5


class Watchdog:
    """Counts the seconds without a sign of life, except those in which none could have been received.

    If this process was stopped and continued, its clock has jumped and signs of life lie unread in the socket. So a
    late tick counts as a short one and never reports a timeout: before the next tick the signs of life have been read.

    Args:
        limit_s: time without a sign of life after which the process counts as hung, seconds.
        now: current time in seconds, of the clock that `tick` uses.
    """

    def __init__(self, limit_s: float, now: float) -> None:
        self._ticked_s = now
        self.sign_of_life(limit_s)

    def sign_of_life(self, limit_s: float) -> None:
        """Restart the count, with a limit from now on."""
        self.limit_s = limit_s
        self.tick_s = min(_TICK_S, limit_s / 4)  # time until the next `tick`
        self._silent_s = 0.0

    def tick(self, now: float) -> bool:
        """Return True if there was no sign of life for too long. To be called every `tick_s`."""
        elapsed_s, self._ticked_s = now - self._ticked_s, now
        punctual_s = 2 * self.tick_s
        self._silent_s += min(elapsed_s, punctual_s)
        return elapsed_s <= punctual_s and self._silent_s > self.limit_s
