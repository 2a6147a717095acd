"""Lateness of the gateway, measured by probes that take the path of a packet, and the pace of admission. Pure.

A probe is due at a certain time. Its lateness is the time until the event loop has woken for it, an encoder thread has
run it, and the loop has resumed it. This includes every wait of a packet in this process: for the event loop, for
threads, for the interpreter's lock, and for the machine's processors.

Speech costs most when it begins, since its listener receives some seconds at once. After lateness, therefore, few
contexts may begin after each probe in time, and twice as many with each further second without lateness. Many at once
would overload the gateway before the first late probe shows it.
"""

from __future__ import annotations

import enum
import statistics
from collections import deque

PROBE_EVERY_S = 0.05
IDLE_PROBE_EVERY_S = 1.0  # interval without clients, while probes are in time: each probe wakes three threads
NUM_PROBES = 5  # number of probes in the median: one or two late probes are ignored
RECOVERY_S = 1.0  # time without lateness from LATE to CAREFUL
DOUBLE_S = 1.0  # time without lateness in which the pace doubles while CAREFUL
LEAST_STARTS, MOST_STARTS = 1 / 3, 8.0  # after each probe in time, at the beginning of CAREFUL and before FREE
_LOW = 0.5  # of the limit


class Pace(enum.Enum):
    """FREE → LATE → CAREFUL → FREE, or LATE again."""

    FREE = "free"  # speech may begin without limit
    LATE = "late"  # no speech may begin
    CAREFUL = "careful"  # some starts after each probe in time


class Lateness:
    """Pace of admission: LATE at a median lateness of `limit_s`, until it was below half of that for 1 s.

    Args:
        limit_s: limit in seconds; 0: never late.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._probes: deque[float] = deque(maxlen=NUM_PROBES)
        self._low_since: float | None = None
        self._starts_per_probe = self._num_starts = 0.0  # while CAREFUL; those that may begin now
        self._doubles_at_s = 0.0
        self.pace = Pace.FREE

    @property
    def typical_s(self) -> float:
        """Median lateness of the latest probes in seconds; 0 before the first."""
        return statistics.median(self._probes) if self._probes else 0.0

    @property
    def may_begin(self) -> bool:
        """True if speech may begin now."""
        return self.pace is Pace.FREE or (self.pace is Pace.CAREFUL and self._num_starts >= 1)

    @property
    def is_calm(self) -> bool:
        """Return whether probes may be rare without clients: the last one was in time, and the pace is free."""
        if not self._limit_s:
            return True
        is_known = len(self._probes) == NUM_PROBES
        return is_known and self.pace is Pace.FREE and self._probes[-1] < _LOW * self._limit_s

    def begin(self) -> None:
        """Note that speech begins."""
        self._num_starts = max(0.0, self._num_starts - 1)

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
            self.pace, self._num_starts = Pace.CAREFUL, 1.0
            self._starts_per_probe, self._doubles_at_s = LEAST_STARTS, now + DOUBLE_S
        elif self.pace is Pace.CAREFUL:
            self._pace_starts(now, in_time=late_s < low_s)

    def _pace_starts(self, now: float, *, in_time: bool) -> None:
        """Adapt the number of starts after a probe: none after a late one, and half as many after the next ones."""
        if not in_time:
            self._num_starts = 0.0
            self._starts_per_probe = max(LEAST_STARTS, self._starts_per_probe / 2)
            self._doubles_at_s = now + DOUBLE_S
            return
        if now >= self._doubles_at_s:
            self._starts_per_probe *= 2
            self._doubles_at_s = now + DOUBLE_S
        self._num_starts = min(self._num_starts, 1.0) + self._starts_per_probe
        if self._starts_per_probe > MOST_STARTS:
            self.pace = Pace.FREE
