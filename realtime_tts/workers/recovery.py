"""How the devices are, and when one whose worker was lost is given listeners again. Pure: time is passed in.

Once or twice is bad luck: its next worker serves as soon as it is ready. A device that loses worker after worker would
take new contexts down with it each time, and get the most of them, since it is the one with nothing to do. So its
worker must stay ready for a while first, twice as long after each further loss.
"""

from __future__ import annotations

import collections
import dataclasses
import enum

WINDOW_S = 600.0  # a loss that lies further back is forgotten
FORGIVEN = 2  # losses within that
FIRST_S, LONGEST_S = 10.0, 300.0


class DeviceState(str, enum.Enum):
    STARTING = "starting"  # its first worker
    SERVING = "serving"
    LEAVING = "leaving"  # its worker ends when its contexts are closed; another one follows
    RESTARTING = "restarting"  # its worker was lost; another one is being started
    RECOVERING = "recovering"  # a worker is ready, and must stay so for a while
    FAILED = "failed"  # workers were lost again and again, or the last one could not be started; it is tried again


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceReport:
    """How a worker and its device are. device: as the worker calls it; "" until one has been ready. losses: ever."""

    worker: str
    device: str
    state: DeviceState
    losses: int


class Recovery:
    """Of one device."""

    def __init__(self) -> None:
        self._lost_s: collections.deque[float] = collections.deque()

    def lost(self, now: float) -> None:
        """Its worker died, hung, or ended for what the device did."""
        self._lost_s.append(now)

    def num_losses(self, now: float) -> int:
        """Of late."""
        while self._lost_s and now - self._lost_s[0] >= WINDOW_S:
            self._lost_s.popleft()
        return len(self._lost_s)

    def is_failing(self, now: float) -> bool:
        """More workers were lost than is forgiven."""
        return self.num_losses(now) > FORGIVEN

    def trusted_after_s(self, now: float) -> float:
        """For how long a worker that becomes ready now must stay so before it is given listeners."""
        too_many = self.num_losses(now) - FORGIVEN
        return 0.0 if too_many <= 0 else min(LONGEST_S, FIRST_S * 2.0 ** (min(too_many, 16) - 1))
