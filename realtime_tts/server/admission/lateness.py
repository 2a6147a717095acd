"""Lateness of the gateway, measured by probes that take the path of a packet, and the pace of admission. Pure.

A probe is due at a certain time. Its lateness is the time until the event loop has woken for it, an encoder thread has
run it, and the loop has resumed it. This includes every wait of a packet in this process: for the event loop, for
threads, for the interpreter's lock, and for the machine's processors.

Speech costs most when it begins, since its listener receives some seconds at once. After lateness, therefore, one
context may begin after every few probes that were in time. Many at once would overload the gateway before the first
late probe shows it.
"""

from __future__ import annotations

import enum
import statistics
from collections import deque

PROBE_EVERY_S = 0.05
IDLE_PROBE_EVERY_S = 1.0  # interval without clients, while probes are in time: each probe wakes three threads
NUM_PROBES = 5  # number of probes in the median: one or two late probes are ignored
RECOVERY_S = 1.0  # time without lateness from LATE to CAREFUL
CARE_S = 10.0  # further time without lateness from CAREFUL to FREE
TURN_PROBES = 3  # probes in time, since the last start or late probe, before a start while CAREFUL
_LOW = 0.5  # of the limit


class Pace(enum.Enum):
    """FREE → LATE → CAREFUL → FREE, or LATE again."""

    FREE = "free"  # speech may begin without limit
    LATE = "late"  # no speech may begin
    CAREFUL = "careful"  # one start after every `TURN_PROBES` probes in time


class Lateness:
    """Pace of admission: LATE at a median lateness of `limit_s`, until it was below half of that for 1 s.

    Args:
        limit_s: limit in seconds; 0: never late.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._probes: deque[float] = deque(maxlen=NUM_PROBES)
        self._low_since: float | None = None
        self._num_timely = 0
        self.pace = Pace.FREE

    @property
    def typical_s(self) -> float:
        """Median lateness of the latest probes in seconds; 0 before the first."""
        return statistics.median(self._probes) if self._probes else 0.0

    @property
    def may_begin(self) -> bool:
        """True if speech may begin now."""
        return self.pace is Pace.FREE or (self.pace is Pace.CAREFUL and self._num_timely >= TURN_PROBES)

    @property
    def is_calm(self) -> bool:
        """Return whether probes may be rare without clients: the last one was in time, and the pace is free."""
        if not self._limit_s:
            return True
        is_known = len(self._probes) == NUM_PROBES
        return is_known and self.pace is Pace.FREE and self._probes[-1] < _LOW * self._limit_s

    def begin(self) -> None:
        """Note that speech begins."""
        self._num_timely = 0

    def observe(self, late_s: float, now: float) -> None:
        """Add a probe that ended at `now` (loop time in seconds) and was `late_s` late."""
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
