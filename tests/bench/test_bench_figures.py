from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.bench.figures import Spread, percentile

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60)


@given(VALUES, st.floats(0, 100))
def test_a_percentile_was_measured_and_splits_the_values(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    assert found in values
    share = percent / 100 * len(values)
    assert sum(value <= found for value in values) >= share - 1e-9
    assert sum(value < found for value in values) < max(share, 1) + 1e-9


@given(VALUES)
def test_a_spread_rises(values: list[float]) -> None:
    spread = Spread.of(values)
    assert min(values) <= spread.p50 <= spread.p95 <= spread.p99 <= spread.max == max(values)
    assert spread.count == len(values)


def test_known_values() -> None:
    hundred = [float(value) for value in range(1, 101)]
    assert [percentile(hundred, percent) for percent in (0, 50, 95, 99, 100)] == [1, 50, 95, 99, 100]
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert math.isnan(percentile([], 50))
