"""Percentiles and summaries. Pure."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least `percent` (0 … 100) of all values do not exceed: a measured one, never a
    mean of two. NaN without values."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """Distribution of values."""

    count: int
    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(len(values), *(percentile(values, percent) for percent in (50, 95, 99, 100)))

    @classmethod
    def counted(cls, counts: Mapping[float, int]) -> Spread:
        """Return the distribution of values given with their frequencies."""
        total = sum(counts.values())
        if not total:
            return cls.of(())
        ordered = sorted(counts)
        upto = list(itertools.accumulate(counts[value] for value in ordered))
        ranks = (max(1, math.ceil(percent / 100 * total)) for percent in (50, 95, 99, 100))
        return cls(total, *(ordered[bisect.bisect_left(upto, rank)] for rank in ranks))
