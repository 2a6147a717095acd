"""When a process that we listen to counts as hung. Pure: time is passed in."""

from __future__ import annotations

_TICK_S = 0.5


class Watchdog:
    """Counts the seconds without a sign of life, but only those in which we could have heard one.

    A process that was stopped and continued finds its own clock far ahead and the signs of life still unread in the
    socket. So a tick that comes late counts as a short one and never judges: by the next one they have been taken.

    Args:
        limit_s: silence that condemns.
        now: seconds of any clock that `tick` uses too.
    """

    def __init__(self, limit_s: float, now: float) -> None:
        self.limit_s = limit_s
        self.tick_s = min(_TICK_S, limit_s / 4)  # time until the next `tick`
        self._silent_s = 0.0
        self._ticked_s = now

    def sign_of_life(self) -> None:
        """Start counting anew."""
        self._silent_s = 0.0

    def tick(self, now: float) -> bool:
        """Whether the silence has lasted too long. To be called every `tick_s`."""
        elapsed_s, self._ticked_s = now - self._ticked_s, now
        punctual_s = 2 * self.tick_s
        self._silent_s += min(elapsed_s, punctual_s)
        return elapsed_s <= punctual_s and self._silent_s > self.limit_s
