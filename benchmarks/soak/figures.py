"""Slopes, percentiles and their intervals. A short or noisy run must be able to say that it cannot tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from benchmarks.soak.process import Sample

MAX_SLOPE_MB_PER_H = 1.0
MAX_RATIO = 1.2
WARM_UP_S = 180.0  # the largest step, the most clients: what they allocate for good, and how pages come to lie
BLOCK_S = 20.0  # neighbouring samples say the same; a block of them counts once
_MIN_BLOCKS = 8
_Z_95 = 1.96  # of the normal distribution
_MIB_PER_S_IN_MB_PER_H = 3600 * 1.048576


class Verdict(StrEnum):
    PASS = "pass"
    FAIL = "FAIL"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True)
class Estimate:
    """A figure and where it lies with 95 % confidence."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def memory_slope(samples: Sequence[Sample]) -> Estimate | None:
    """Growth in MB/h of what the last process among them keeps, after its warm-up; None if there is too little.

    The median of the slopes between any two blocks (Theil and Sen), with the interval that Kendall's statistic gives: a
    step at one end does not tilt it, steps that go on do, as a leak in a heap of whole pages makes them.
    """
    last = [sample for sample in samples if sample.pid == samples[-1].pid]
    last = [sample for sample in last if sample.kept_mib is not None] or last  # where it answered, if it ever does
    blocks = _blocks([sample for sample in last if sample.at_s >= last[0].at_s + WARM_UP_S])
    count = len(blocks)
    if count < _MIN_BLOCKS:
        return None
    at_s, mib = np.array(blocks).T
    first, second = np.triu_indices(count, 1)
    slopes = np.sort((mib[second] - mib[first]) / (at_s[second] - at_s[first])) * _MIB_PER_S_IN_MB_PER_H
    spread = _Z_95 * np.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = max(0, int((len(slopes) - spread) / 2))
    return Estimate(float(np.median(slopes)), float(slopes[low]), float(slopes[-1 - low]))


def _blocks(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """Mean time and least memory of each block: what is left right after a collection, whatever was under way."""
    blocks: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        blocks[int((sample.at_s - samples[0].at_s) / BLOCK_S)].append(sample)
    return [(float(np.mean([s.at_s for s in block])), min(s.settled_mib for s in block)) for block in blocks.values()]


def judge(estimate: Estimate | None, bar: float) -> Verdict:
    """Return whether the figure is below the bar, as far as its interval lies on one side of it."""
    if estimate is None or estimate.low <= bar <= estimate.high:
        return Verdict.UNKNOWN
    return Verdict.PASS if estimate.high < bar else Verdict.FAIL


def p95_ratio(loaded: Sequence[float], quiet: Sequence[float], seed: int) -> Estimate | None:
    """p95 under chaos over p95 in quiet, with a bootstrap's interval; None with fewer than 20 of either."""
    if min(len(loaded), len(quiet)) < 20:
        return None
    rng = np.random.default_rng(seed)
    p95s = [_p95(rng.choice(values, (2000, len(values)))) for values in (loaded, quiet)]
    low, high = np.percentile(p95s[0] / p95s[1], [2.5, 97.5])
    return Estimate(float(_p95(loaded) / _p95(quiet)), float(low), float(high))


def _p95(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the 95th percentile along the last axis, as `realtime_tts.bench.figures.percentile` defines it."""
    return np.asarray(np.percentile(np.asarray(values, np.float64), 95, axis=-1, method="inverted_cdf"))
