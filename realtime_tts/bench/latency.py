"""Time to first audio and real-time factor in process: closed loop, and all at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from realtime_tts.bench.in_process import InProcess
from realtime_tts.bench.streams import Heard, Summary, summary
from realtime_tts.bench.subject import Subject


@dataclasses.dataclass(frozen=True, slots=True)
class LatencyPlan:
    """Parameters of the measurement. num_streams: judged in a run, at least as many as there are callers. patches: of a
    turn."""

    callers: tuple[int, ...]
    num_streams: int
    patches: int
    runs: int
    steps: int | None = None
    cfg: float | None = None


@dataclasses.dataclass(frozen=True)
class LatencyRow:
    """Figures by the number of callers: of a closed loop, and of requests that begin at once. times_real_time: seconds
    of audio made per second in the closed loop."""

    streams: int
    closed: Summary
    burst: Summary

    @property
    def times_real_time(self) -> float:
        # So many streams at a time, each this much slower or faster than it is played.
        return self.streams / self.closed.rtf.p50


def measure_latency(
    subject: Subject, plan: LatencyPlan, progress: Callable[[str], None] = lambda what: None
) -> list[LatencyRow]:
    """Measure one row per number of callers.

    Args:
        progress: told what comes before each part of the work.
    """
    progress("warming up")
    driver = InProcess(subject, plan.patches, plan.steps, plan.cfg)
    closed: dict[int, list[Heard]] = {callers: [] for callers in plan.callers}
    burst: dict[int, list[Heard]] = {callers: [] for callers in plan.callers}
    for run in range(plan.runs):
        for callers in plan.callers:
            progress(f"{callers} streams, closed loop, run {run + 1}")
            closed[callers] += driver.closed_loop(callers, max(plan.num_streams, callers), seed=run)
            progress(f"{callers} streams, burst, run {run + 1}")
            burst[callers] += driver.burst(callers)
    return [LatencyRow(callers, summary(closed[callers]), summary(burst[callers])) for callers in plan.callers]
