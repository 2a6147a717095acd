"""Search for the highest load that holds. Pure: loads go out, verdicts come in."""

from __future__ import annotations

import math


class CapacitySearch:
    """Doubles or halves (`factor`) until one load held and a higher one did not, then halves the ratio between the two.

    `load` is what to try next, None when there is nothing more to learn. A load that failed once is never called held,
    whatever is found out later: verdicts near the limit are drawn by chance.

    Args:
        start: the first load.
        precision: stop when what failed is at most this share above what held.
        max_trials: stop after so many.
        lowest: give up below this.
        factor: from one load to the next, as long as all hold or none does.
    """

    def __init__(
        self, start: float, precision: float, max_trials: int, lowest: float = 0.0, factor: float = 2.0
    ) -> None:
        if not (start > 0 and precision > 0 and factor > 1):
            raise ValueError("start and precision must be above 0, and the factor above 1")
        self.failed = math.inf  # the lowest that did not hold
        self._held: list[float] = []  # those that did, rising
        self._next = start
        self._precision, self._lowest, self._factor = precision, lowest, factor
        self._trials_left = max_trials

    @property
    def held(self) -> float:
        """The highest load that held; 0 if none did."""
        return self._held[-1] if self._held else 0.0

    @property
    def load(self) -> float | None:
        if self._trials_left <= 0 or self._next < self._lowest:
            return None
        if self.held > 0 and self.failed / self.held <= 1 + self._precision:
            return None
        return self._next

    def tell(self, held: bool) -> None:
        """Record the verdict on `load`."""
        self._trials_left -= 1
        if held:
            self._held.append(self._next)
        else:
            self.failed = self._next
        self._choose()

    def retract(self) -> None:
        """Record that the highest load that held does not hold after all; go on below it."""
        self.failed = self._held.pop()
        self._choose()

    def _choose(self) -> None:
        if not self._held:
            self._next = self.failed / self._factor
        elif math.isinf(self.failed):
            self._next = self.held * self._factor
        else:
            self._next = math.sqrt(self.held * self.failed)
