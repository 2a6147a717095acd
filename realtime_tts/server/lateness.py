"""How late the gateway is with what it has to do, from probes that go the way of a packet; and who may begin. Pure.

A probe is due at a certain time and is late by what has passed until it is through: the event loop wakes for it, a
thread of the encoders has run it, and the loop has come back to it. All that a packet waits for in this process is in
that, whatever it is short of: the loop's time, threads, the interpreter's lock, or the machine's processors.

Speech costs most when it begins, since its listener is given some seconds at once. So after a time of lateness one may
begin after every few probes that were in time, until it is clear that there is room: many who come at once would be
too many before the first late probe tells.
"""

from __future__ import annotations

import enum
import statistics
from collections import deque

PROBE_EVERY_S = 0.05
IDLE_PROBE_EVERY_S = 1.0  # without clients, while probes are in time: each probe wakes three threads
NUM_PROBES = 5  # that are looked at together: one hiccup, or two, is no lateness
RECOVERY_S = 1.0  # without lateness until somebody may begin again
CARE_S = 10.0  # and from then on until everybody may
TURN_PROBES = 3  # in time, since the last one began or a probe was late
_LOW = 0.5  # of the limit


class Pace(enum.Enum):
    """FREE → LATE → CAREFUL → FREE, or LATE again."""

    FREE = "free"  # anybody may begin
    LATE = "late"  # nobody may
    CAREFUL = "careful"  # one after every few probes that were in time


class Lateness:
    """Late from a typical lateness of `limit_s` on, until it has been below half of that for a second.

    Args:
        limit_s: 0: never late.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._probes: deque[float] = deque(maxlen=NUM_PROBES)
        self._low_since: float | None = None
        self._num_timely = 0
        self.pace = Pace.FREE

    @property
    def typical_s(self) -> float:
        """The median of the latest probes; 0 before the first."""
        return statistics.median(self._probes) if self._probes else 0.0

    @property
    def may_begin(self) -> bool:
        """Whether speech may begin now."""
        return self.pace is Pace.FREE or (self.pace is Pace.CAREFUL and self._num_timely >= TURN_PROBES)

    @property
    def is_calm(self) -> bool:
        """Return whether probes may be rare without clients: the last one was in time, and the pace is free."""
        if not self._limit_s:
            return True
        is_known = len(self._probes) == NUM_PROBES
        return is_known and self.pace is Pace.FREE and self._probes[-1] < _LOW * self._limit_s

    def begin(self) -> None:
        """Speech begins."""
        self._num_timely = 0

    def observe(self, late_s: float, now: float) -> None:
        """A probe is through at `now`."""
        self._probes.append(late_s)
        if not self._limit_s or len(self._probes) < NUM_PROBES:
            return
        low_s, typical_s = _LOW * self._limit_s, self.typical_s
        if typical_s >= low_s:
            self._low_since = None
        elif self._low_since is None:
            self._low_since = now
        num_low_s = 0.0 if self._low_since is None else now - self._low_since
        if typical_s >= self._limit_s:
            self.pace = Pace.LATE
        elif self.pace is Pace.LATE and num_low_s >= RECOVERY_S:
            self.pace = Pace.CAREFUL
        elif self.pace is Pace.CAREFUL and num_low_s >= RECOVERY_S + CARE_S:
            self.pace = Pace.FREE
        self._num_timely = self._num_timely + 1 if late_s < low_s else 0
