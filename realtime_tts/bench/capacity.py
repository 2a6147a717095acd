"""Search for the highest number of concurrent streams that meets the bar for first audio and playback: open loop,
Poisson arrivals, no stream refused.

The search does not know what it drives: the engine in this process, or a server behind sockets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from realtime_tts.bench.arrivals import Arrival, OpenLoad
from realtime_tts.bench.player import PRE_BUFFERS_MS
from realtime_tts.bench.search import CapacitySearch
from realtime_tts.bench.streams import GAVE_UP, Bar, Heard, summary

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


class Driver(Protocol):
    """Target of a load."""

    @property
    def turn_s(self) -> float:
        """Audio of one turn, seconds."""

    def open_loop(
        self,
        arrivals: Sequence[Arrival],
        bar: Bar | None = None,
        expected: float = 0.0,
    ) -> list[Heard]:
        """Run a load; see `InProcess.open_loop`."""


def measure_capacity(
    driver: Driver,
    plan: CapacityPlan,
    progress: Callable[[str], None] = lambda what: None,
    extra: Callable[[], dict[str, Any]] = dict,
) -> dict[str, Any]:
    """Return the highest load that held, and every trial: `streams` (the rate times a turn's length), its summary,
    whether it held.

    Args:
        progress: told what is tried, before each trial.
        extra: called after each trial; what it gives goes into the trial's record.
    """
    search = CapacitySearch(plan.start, plan.precision, plan.max_trials, lowest=_LOWEST)
    trials: list[dict[str, Any]] = []

    def trial(streams: float, seed: int) -> bool:
        turn_s = driver.turn_s
        rate_per_s = streams / turn_s
        window_s = max(plan.window_s, _FEWEST / rate_per_s)
        load = OpenLoad.steady(rate_per_s, turn_s, window_s)
        progress(f"{streams:.3g} streams, arrivals {seed + 1}")
        heard = driver.open_loop(load.arrivals(seed), plan.bar, load.expected)
        told = extra()
        held = plan.bar.holds([stream for stream in heard if stream.judged])
        whole = [stream for stream in heard if stream.error != GAVE_UP]
        trials.append(
            {
                "offered": streams,
                "rate_per_s": load.rate_per_s,
                "seed": seed,
                "held": held,
                "gave_up": any(stream.judged and stream.error == GAVE_UP for stream in heard),
                **summary(whole, load.window),
                **told,
                "raw": [_raw(stream) for stream in whole if stream.judged],
            }
        )
        return held

    while True:
        while (streams := search.load) is not None:
            search.tell(trial(streams, seed=0))
        if search.held == 0.0 or all(trial(search.held, seed) for seed in range(1, plan.runs)):
            break
        search.retract()
    return {
        "streams": search.held,
        "rate_per_s": search.held / driver.turn_s,
        "failed": search.failed,
        "turn_s": driver.turn_s,
        "trials": trials,
    }


def _raw(stream: Heard) -> dict[str, Any]:
    stalled_s = {str(pre_ms): stream.playback(pre_ms / 1000).stalled_s for pre_ms in PRE_BUFFERS_MS}
    return {
        "scheduled_s": stream.scheduled_s,
        "first_ms": 1000 * stream.first_s,
        "stalled_ms": {name: 1000 * seconds for name, seconds in stalled_s.items()},
        "error": stream.error,
    }
