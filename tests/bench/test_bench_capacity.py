"""Search for the highest load that holds, against a simulated server."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from realtime_tts.bench.arrivals import Arrival
from realtime_tts.bench.capacity import CapacityPlan, measure_capacity
from realtime_tts.bench.load_generator import Target
from realtime_tts.bench.server_load import ServerLoad
from realtime_tts.bench.streams import Bar, Heard
from realtime_tts.bench.views import capacity_table


class Simulated(ServerLoad):
    """Holds so many arrivals in a load, no more."""

    def __init__(self, limit: float) -> None:
        super().__init__(Target("", (), 1, 1, {}))
        self.turn_s = 2.0
        self.limit = limit
        self.num_loads = 0

    def open_loop(self, arrivals: Sequence[Arrival], deadline_s: float = math.inf) -> list[Heard]:
        self.num_loads += 1
        num_judged = sum(arrival.judged for arrival in arrivals)
        first_s = 0.05 if num_judged <= self.limit else 0.5
        return [
            Heard(arrival.at_s, [(first_s, 0.0)], audio_s=self.turn_s, judged=arrival.judged) for arrival in arrivals
        ]


def test_capacity_is_what_all_runs_hold() -> None:
    driver = Simulated(limit=600)
    plan = CapacityPlan(Bar(), start=10, window_s=20, precision=0.1, runs=3, max_trials=12)
    result = measure_capacity(driver, plan)
    held = [trial for trial in result.trials if trial.offered == result.streams]
    assert [trial.seed for trial in held] == [0, 1, 2]
    assert all(trial.held for trial in held)
    assert result.best is held[-1]
    assert result.streams < result.failed
    # 600 arrivals in 20 s, of 2 s each: 60 at once, within what chance and the search leave open.
    assert 48 < result.streams < 66
    assert result.best.rate_per_s == pytest.approx(result.streams / 2)
    assert len(result.trials) == driver.num_loads


def test_nothing_holds() -> None:
    plan = CapacityPlan(Bar(), start=4, window_s=20, precision=0.1, runs=3, max_trials=12)
    result = measure_capacity(Simulated(limit=-1), plan)
    assert result.streams == 0.0
    assert not any(trial.held for trial in result.trials)


def test_the_first_load_is_tried_however_low_it_is() -> None:
    plan = CapacityPlan(Bar(), start=0.1, window_s=20, precision=0.1, runs=1, max_trials=12)
    result = measure_capacity(Simulated(limit=600), plan)
    assert result.trials[0].offered == 0.1
    assert result.streams > 48


def test_a_load_that_failed_because_its_generator_was_late_has_no_other_limit() -> None:
    driver = Simulated(limit=600)
    plan = CapacityPlan(Bar(), start=10, window_s=20, precision=0.1, runs=1, max_trials=12)
    assert "generator" not in measure_capacity(driver, plan).limit
    driver.late_ms = [[50.0]]
    result = measure_capacity(driver, plan)
    assert "the generator itself was 50 ms late" in result.limit
    assert "no, void" in capacity_table(result)
