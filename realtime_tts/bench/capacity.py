"""Search for the highest number of concurrent streams that meets the bar for first audio and playback: open loop,
Poisson arrivals, no stream refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from realtime_tts.bench.arrivals import OpenLoad
from realtime_tts.bench.load_result import LoadResult
from realtime_tts.bench.search import highest_load
from realtime_tts.bench.server_load import ServerLoad
from realtime_tts.bench.streams import Bar

_FEWEST = 5  # streams in a window on average; it lasts longer if necessary
_LOWEST = 0.5  # streams at once; a server that cannot hold these holds nothing


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
class Trial(LoadResult):
    """One load. offered: streams at once, the rate times a turn's length."""

    offered: float
    seed: int
    held: bool


@dataclasses.dataclass
class Capacity:
    """Result of a search. streams: the highest load that held. failed: the lowest that did not. alone_ms: times to
    first packet of one stream at a time, for each run."""

    streams: float
    failed: float
    turn_s: float
    trials: list[Trial]
    alone_ms: list[list[float]] = dataclasses.field(default_factory=list)

    @property
    def best(self) -> Trial | None:
        """Return the last trial of the highest load that held."""
        held = [trial for trial in self.trials if trial.held and trial.offered == self.streams]
        return held[-1] if held else None

    @property
    def limit(self) -> str:
        """Return the saturated part in the lowest load that did not hold, or why this load says nothing of the server;
        "" if all held."""
        failed = min((trial for trial in self.trials if not trial.held), key=lambda trial: trial.offered, default=None)
        return (failed.void or failed.limit) if failed else ""


def measure_capacity(
    driver: ServerLoad, plan: CapacityPlan, progress: Callable[[str], None] = lambda what: None
) -> Capacity:
    """Find the highest load that holds.

    Args:
        progress: called before each trial with its description.
    """
    trials: list[Trial] = []

    def holds(streams: float, seed: int = 0) -> bool:
        rate_per_s = streams / driver.turn_s
        load = OpenLoad(rate_per_s, driver.turn_s, max(plan.window_s, _FEWEST / rate_per_s))
        progress(f"{streams:.3g} streams, arrivals {seed + 1}")
        result = driver.run(load, seed, load.deadline_s)
        held = plan.bar.holds(result.raw)
        trials.append(Trial(**vars(result), offered=streams, seed=seed, held=held))
        return held

    def is_sure(streams: float) -> bool:
        return all(holds(streams, seed) for seed in range(1, plan.runs))

    lowest = min(_LOWEST, plan.start)
    held, failed = highest_load(holds, plan.start, plan.precision, plan.max_trials, is_sure=is_sure, lowest=lowest)
    return Capacity(held, failed, driver.turn_s, trials)
