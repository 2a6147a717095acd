"""Arrivals and the search for the highest load."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_tts.bench.arrivals import OpenLoad
from realtime_tts.bench.search import highest_load


@settings(max_examples=40)
@given(st.floats(0.5, 50), st.floats(0.5, 8), st.floats(1, 20), st.integers(0, 2**32))
def test_arrivals_are_in_order_and_judged_inside_the_window(
    rate: float, turn_s: float, window_s: float, seed: int
) -> None:
    load = OpenLoad(rate, turn_s, window_s)
    arrivals = load.arrivals(seed)
    assert arrivals == load.arrivals(seed)
    assert [arrival.number for arrival in arrivals] == list(range(len(arrivals)))
    moments = [arrival.at_s for arrival in arrivals]
    assert moments == sorted(moments)
    begin_s, end_s = load.window
    assert all(begin_s <= arrival.at_s < end_s and arrival.share == 1.0 for arrival in arrivals if arrival.judged)
    assert all(0 < arrival.share <= 1 for arrival in arrivals)
    assert moments[-1] < load.end_s if moments else True
    assert sum(arrival.share < 1 for arrival in arrivals) <= round(rate * turn_s)


def test_arrivals_are_poisson() -> None:
    """Count and spread of the gaps, over many: within five standard errors."""
    load = OpenLoad(rate_per_s=20, turn_s=1, window_s=500)
    moments = [arrival.at_s for arrival in load.arrivals(1) if arrival.judged]
    assert len(moments) == pytest.approx(20 * 500, abs=5 * math.sqrt(20 * 500))
    gaps = [after - before for before, after in itertools.pairwise(moments)]
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert deviation / mean == pytest.approx(1, abs=5 * math.sqrt(2 / len(gaps)))


def test_the_load_is_steady_when_the_window_opens() -> None:
    load = OpenLoad(rate_per_s=50, turn_s=4, window_s=10)
    arrivals, at_s = load.arrivals(3), load.window[0]
    running = sum(arrival.at_s <= at_s < arrival.at_s + arrival.share * load.turn_s for arrival in arrivals)
    assert 0.6 * 200 < running < 1.4 * 200


@given(st.floats(0.5, 50), st.floats(0.5, 8), st.integers(0, 2**32))
def test_even_arrivals_keep_their_distance(rate: float, turn_s: float, seed: int) -> None:
    load = OpenLoad(rate, turn_s, 10.0, even=True)
    whole = [arrival.at_s for arrival in load.arrivals(seed) if arrival.share == 1.0]
    assert all(after - before == pytest.approx(1 / rate) for before, after in itertools.pairwise(whole))
    assert abs(len(whole) - rate * load.end_s) <= 1
    judged = sum(arrival.judged for arrival in load.arrivals(seed))
    assert abs(judged - rate * 10.0) <= 1


def test_so_many_are_interrupted_and_nothing_else_changes() -> None:
    plain, load = (OpenLoad(20, 2.0, 100.0, barge_ins=share) for share in (0.0, 0.25))
    arrivals = load.arrivals(5)
    heard = [arrival.heard for arrival in arrivals if arrival.heard is not None]
    assert len(heard) / len(arrivals) == pytest.approx(0.25, abs=5 * math.sqrt(0.25 * 0.75 / len(arrivals)))
    assert all(0.2 <= share <= 0.9 for share in heard)
    assert [dataclasses.replace(arrival, heard=None) for arrival in arrivals] == plain.arrivals(5)


@given(st.floats(0.01, 1e4), st.floats(0.01, 1e4), st.sampled_from([0.02, 0.1, 0.5]), st.sampled_from([1.25, 2.0]))
def test_the_search_finds_where_it_stops_holding(limit: float, start: float, precision: float, factor: float) -> None:
    held, failed = highest_load(lambda load: load <= limit, start, precision, 100, factor=factor)
    assert held <= limit < failed
    assert failed <= held * (1 + precision)


@given(st.lists(st.booleans(), min_size=12, max_size=12), st.integers(1, 12))
def test_whatever_the_verdicts_what_held_is_below_what_failed(verdicts: list[bool], max_trials: int) -> None:
    outcomes: dict[float, bool] = {}

    def holds(load: float) -> bool:
        assert load not in outcomes
        outcomes[load] = verdicts[len(outcomes)]
        return outcomes[load]

    held, failed = highest_load(holds, 1.0, 0.05, max_trials)
    assert held < failed
    assert 1 <= len(outcomes) <= max_trials
    assert held == max((load for load, is_held in outcomes.items() if is_held), default=0.0)
    assert failed == min((load for load, is_held in outcomes.items() if not is_held), default=math.inf)


def test_what_does_not_hold_again_is_looked_for_below() -> None:
    tried: list[float] = []

    def holds(load: float) -> bool:
        tried.append(load)
        return load < 20

    held, failed = highest_load(holds, 8.0, 0.5, 20, is_sure=lambda load: load < 10)
    assert tried == [8.0, 16.0, 32.0, math.sqrt(512), math.sqrt(128)]
    assert (held, failed) == (8.0, math.sqrt(128))
    assert highest_load(holds, 8.0, 0.5, 4, is_sure=lambda load: False) == (0.0, 8.0)


def test_the_search_gives_up() -> None:
    tried: list[float] = []
    assert highest_load(lambda load: bool(tried.append(load)), 1.0, 0.1, 100, lowest=0.2) == (0.0, 0.25)
    assert tried == [1.0, 0.5, 0.25]
