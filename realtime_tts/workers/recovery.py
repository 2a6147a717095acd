"""State of the devices, and when a device that lost its worker gets listeners again. Pure: time is passed in.

After one or two losses the next worker serves as soon as it is ready. A device that loses worker after worker would
fail new contexts each time, and would get most of them, since it is idle. So after more losses its worker must stay
ready for a while first, twice as long after each further loss.
"""

from __future__ import annotations

import collections
import dataclasses
import enum

WINDOW_S = 600.0  # older losses do not count
FORGIVEN = 2  # tolerated losses within this window
FIRST_S, LONGEST_S = 10.0, 300.0


class DeviceState(enum.StrEnum):
    """State of a device and its worker, as operators see it."""

    STARTING = "starting"  # its first worker
    SERVING = "serving"
    LEAVING = "leaving"  # its worker ends when its contexts are closed; another one follows
    RESTARTING = "restarting"  # its worker was lost; another one is being started
    RECOVERING = "recovering"  # a worker is ready, and must stay so for a while
    UNLOADED = "unloaded"  # nothing has used its worker for a while; speech starts another one
    FAILED = "failed"  # its workers were lost repeatedly, or the last one could not be started; retries go on


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceReport:
    """State of a worker and its device. device: name from the worker; "" until one has been ready. losses: total
    number."""

    worker: str
    device: str
    state: DeviceState
    losses: int


class Recovery:
    """Recovery state of one device."""

    def __init__(self) -> None:
        self._lost_s: collections.deque[float] = collections.deque()

    def lost(self, now: float) -> None:
        """Record a loss: the worker died, hung, or ended because of the device."""
        self._lost_s.append(now)

    def num_losses(self, now: float) -> int:
        """Return the number of losses within the last `WINDOW_S`."""
        while self._lost_s and now - self._lost_s[0] >= WINDOW_S:
            self._lost_s.popleft()
        return len(self._lost_s)

    def is_failing(self, now: float) -> bool:
        """Return True if more workers were lost than tolerated."""
        return self.num_losses(now) > FORGIVEN

    def announce_after_s(self, now: float) -> float:
        """Return how long a worker that becomes ready now must stay ready before clients use it, seconds."""
        too_many = self.num_losses(now) - FORGIVEN
        return 0.0 if too_many <= 0 else min(LONGEST_S, FIRST_S * 2.0 ** (min(too_many, 16) - 1))
