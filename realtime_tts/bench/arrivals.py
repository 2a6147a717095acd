"""When streams begin, whoever is served or not: Poisson arrivals. Pure."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True, slots=True)
class Arrival:
    """One stream to be asked for. at_s: since the load began. share: of a whole turn's length, in (0, 1].
    judged: counts in the result."""

    number: int
    at_s: float
    share: float
    judged: bool


@dataclasses.dataclass(frozen=True, slots=True)
class OpenLoad:
    """Streams at a rate, of one length, judged within a window of time.

    Before the window, within `ramp_s`, as many streams as the rate amounts to in the long run are begun, somewhere in
    their speech each, so that the load is steady when the window opens `settle_s` later. After it arrivals go on until
    the last judged stream can have ended: who came last is under the same load as who came first.
    """

    rate_per_s: float
    turn_s: float  # of audio
    window_s: float
    ramp_s: float
    settle_s: float

    @property
    def window(self) -> tuple[float, float]:
        begin_s = self.ramp_s + self.settle_s
        return begin_s, begin_s + self.window_s

    @property
    def end_s(self) -> float:
        """When the last one arrives."""
        return self.window[1] + self.turn_s

    @property
    def expected(self) -> float:
        """Streams in the window, on average."""
        return self.rate_per_s * self.window_s

    def arrivals(self, seed: int) -> list[Arrival]:
        """All of them, in order. The same seed gives the same."""
        draw = random.Random(seed)
        begin_s, window_end_s = self.window
        running = round(self.rate_per_s * self.turn_s)
        moments = [(draw.uniform(0.0, self.ramp_s), 1.0 - draw.random(), False) for _ in range(running)]
        moments += [(at_s, 1.0, begin_s <= at_s < window_end_s) for at_s in _poisson(self.rate_per_s, self.end_s, draw)]
        return [Arrival(number, *moment) for number, moment in enumerate(sorted(moments))]


def _poisson(rate_per_s: float, end_s: float, draw: random.Random) -> Iterator[float]:
    at_s = draw.expovariate(rate_per_s)
    while at_s < end_s:
        yield at_s
        at_s += draw.expovariate(rate_per_s)
