"""Search for the highest number of concurrent streams that meets the bar for first audio and playback: open loop,
Poisson arrivals, no stream refused.

The search does not know what it drives: the engine in this process, or a server behind sockets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

from realtime_tts.bench.arrivals import Arrival, OpenLoad
from realtime_tts.bench.figures import Spread
from realtime_tts.bench.search import CapacitySearch
from realtime_tts.bench.streams import GAVE_UP, Bar, Heard, Summary, summary
from realtime_tts.bench.usage import Usage

_FEWEST = 5  # streams in a window on average, which lasts longer if need be: of none nothing can be said
_LOWEST = 0.5  # streams at once: what cannot hold these holds nothing


@dataclasses.dataclass(frozen=True, slots=True)
class CapacityPlan:
    """Parameters of the search. start: concurrent streams to try first. runs: loads with other arrivals that must all
    hold. max_trials: trials of the search, without those that confirm its result."""

    bar: Bar
    start: float
    window_s: float
    precision: float
    runs: int
    max_trials: int


@dataclasses.dataclass(kw_only=True)
class Cost:
    """Cost of a load, as far as it is known. step_ms: duration of the engine's steps; busy: the share of time that they
    filled. usage: of the server."""

    step_ms: Spread | None = None
    busy: float | None = None
    usage: Usage | None = None


class Driver(Protocol):
    """Target of a load."""

    @property
    def turn_s(self) -> float:
        """Audio of one turn, seconds."""

    def open_loop(self, arrivals: Sequence[Arrival], deadline_s: float) -> list[Heard]:
        """Run a load; see `InProcess.open_loop`."""

    def cost(self) -> Cost:
        """Return the cost of the last load."""


@dataclasses.dataclass(kw_only=True)
class Trial(Summary, Cost):
    """One load. offered: streams at once, the rate times a turn's length. gave_up: it was ended at its deadline."""

    offered: float
    rate_per_s: float
    seed: int
    held: bool
    gave_up: bool


@dataclasses.dataclass(kw_only=True)
class Capacity:
    """Result of a search. streams, rate_per_s: the highest load that held. failed: the lowest that did not."""

    streams: float
    rate_per_s: float
    failed: float
    turn_s: float
    trials: list[Trial]

    @property
    def best(self) -> Trial | None:
        """Return the last trial of the highest load that held."""
        held = [trial for trial in self.trials if trial.held and trial.offered == self.streams]
        return held[-1] if held else None


def measure_capacity(
    driver: Driver, plan: CapacityPlan, progress: Callable[[str], None] = lambda what: None
) -> Capacity:
    """Find the highest load that holds.

    Args:
        progress: told what is tried, before each trial.
    """
    search = CapacitySearch(plan.start, plan.precision, plan.max_trials, lowest=_LOWEST)
    trials: list[Trial] = []

    def trial(streams: float, seed: int) -> bool:
        rate_per_s = streams / driver.turn_s
        load = OpenLoad.steady(rate_per_s, driver.turn_s, max(plan.window_s, _FEWEST / rate_per_s))
        progress(f"{streams:.3g} streams, arrivals {seed + 1}")
        heard = driver.open_loop(load.arrivals(seed), load.deadline_s)
        judged = [stream for stream in heard if stream.judged]
        whole = [stream for stream in heard if stream.error != GAVE_UP]
        held = plan.bar.holds(judged)
        trials.append(
            Trial(
                **vars(summary(whole, load.window)),
                **vars(driver.cost()),
                offered=streams,
                rate_per_s=rate_per_s,
                seed=seed,
                held=held,
                gave_up=any(stream.error == GAVE_UP for stream in judged),
            )
        )
        return held

    while True:
        while (streams := search.load) is not None:
            search.tell(trial(streams, seed=0))
        if search.held == 0.0 or all(trial(search.held, seed) for seed in range(1, plan.runs)):
            break
        search.retract()
    return Capacity(
        streams=search.held,
        rate_per_s=search.held / driver.turn_s,
        failed=search.failed,
        turn_s=driver.turn_s,
        trials=trials,
    )
