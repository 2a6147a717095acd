"""Percentiles and summaries. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence


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
