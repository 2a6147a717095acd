"""Arrival times of streams, independent of how they are served: Poisson arrivals, or arrivals at even distances.
Pure."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True, slots=True)
class Arrival:
    """Request for one stream. at_s: time since the load began. share: part of a whole turn's length, in (0, 1]. judged:
    counts in the result. heard: share of a turn after which its listener barges in; None: no barge-in."""

    number: int
    at_s: float
    share: float
    judged: bool
    heard: float | None = None


# Time before the window, and from the ramp's end to it; both are shorter for shorter turns. Every stream that begins in
# the ramp first needs a lead: where 600 streams began within 4.5 s on an H200, steps took 24 ms instead of 15 until 6 s
# after the ramp.
_RAMP_S, _SETTLE_S = 8.0, 8.0
_BARGE_IN = (0.2, 0.9)  # position of a barge-in, as a share of the turn


@dataclasses.dataclass(frozen=True, slots=True)
class OpenLoad:
    """Streams at a rate, of one length, judged within a window of time.

    Before the window, within `ramp_s`, as many streams as the rate amounts to in the long run are begun, somewhere in
    their speech each, so that the load is steady when the window opens. After it arrivals go on until
    the last judged stream can have ended, so that the last stream is under the same load as the first.

    even: at equal distances, so that the number at once stays the same. barge_ins: share of streams that are
    interrupted.
    """

    rate_per_s: float
    turn_s: float  # of audio
    window_s: float
    even: bool = False
    barge_ins: float = 0.0

    @property
    def ramp_s(self) -> float:
        return min(_RAMP_S, self.turn_s)

    @property
    def window(self) -> tuple[float, float]:
        begin_s = self.ramp_s + min(_SETTLE_S, 2 * self.turn_s)
        return begin_s, begin_s + self.window_s

    @property
    def end_s(self) -> float:
        """Time of the last arrival."""
        return self.window[1] + self.turn_s

    @property
    def deadline_s(self) -> float:
        """Time at which a load that is to hold can be given up: every judged stream has had twice its length."""
        return self.end_s + self.turn_s

    def arrivals(self, seed: int) -> list[Arrival]:
        """Return all arrivals in order. The same seed gives the same ones."""
        draw = random.Random(seed)
        begin_s, window_end_s = self.window
        running = round(self.rate_per_s * self.turn_s)
        moments = [(draw.uniform(0.0, self.ramp_s), 1.0 - draw.random(), False) for _ in range(running)]
        moments += [(at_s, 1.0, begin_s <= at_s < window_end_s) for at_s in self._times_s(draw)]
        return [Arrival(number, *moment, self._heard(draw)) for number, moment in enumerate(sorted(moments))]

    def _times_s(self, draw: random.Random) -> Iterator[float]:
        first, number, at_s = draw.random(), 0, 0.0
        while True:
            at_s = (first + number) / self.rate_per_s if self.even else at_s + draw.expovariate(self.rate_per_s)
            if at_s >= self.end_s:
                return
            yield at_s
            number += 1

    def _heard(self, draw: random.Random) -> float | None:
        # Without barge-ins nothing is drawn: the same seed gives the same arrivals with and without them.
        return draw.uniform(*_BARGE_IN) if self.barge_ins and draw.random() < self.barge_ins else None
