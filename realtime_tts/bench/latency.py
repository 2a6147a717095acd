"""Time to first audio and real-time factor in process: closed loop, and all at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from realtime_tts.bench.in_process import InProcess
from realtime_tts.bench.streams import Heard, Summary, summary
from realtime_tts.bench.subject import Subject


@dataclasses.dataclass(frozen=True, slots=True)
class LatencyPlan:
    """Parameters of the measurement. num_streams: judged in a run, at least as many as there are callers. num_patches:
    of a turn."""

    callers: tuple[int, ...]
    num_streams: int
    num_patches: int
    runs: int
    steps: int | None = None
    cfg: float | None = None

    @property
    def num_parts(self) -> int:
        return 1 + 2 * self.runs * len(self.callers)


@dataclasses.dataclass(kw_only=True)
class Latency(Summary):
    """Figures over all runs of a kind of load. times_real_time: seconds of audio made per second."""

    first_audio_p50_ms_of_runs: list[float]
    times_real_time: float

    @classmethod
    def of(cls, runs: list[list[Heard]], num_callers: int) -> Latency:
        streams = [stream for run in runs for stream in run if stream.judged]
        result = summary(streams)
        return cls(
            **vars(result),
            first_audio_p50_ms_of_runs=[summary(run).first_audio_ms.p50 for run in runs],
            # So many streams at a time, each this much slower or faster than it is played.
            times_real_time=num_callers / result.rtf.p50,
        )


@dataclasses.dataclass(frozen=True)
class LatencyRow:
    """Figures by the number of callers: of a closed loop, and of requests that begin at once."""

    streams: int
    closed: Latency
    burst: Latency


def measure_latency(
    subject: Subject, plan: LatencyPlan, progress: Callable[[str], None] = lambda what: None
) -> list[LatencyRow]:
    """Measure one row per number of callers.

    Args:
        progress: told what comes before each part of the work, of which there are `plan.num_parts`.
    """
    progress("warming up")
    driver = InProcess(subject, plan.num_patches, plan.steps, plan.cfg)
    closed: dict[int, list[list[Heard]]] = {callers: [] for callers in plan.callers}
    burst: dict[int, list[list[Heard]]] = {callers: [] for callers in plan.callers}
    for run in range(plan.runs):
        for callers in plan.callers:
            progress(f"{callers} streams, closed loop, run {run + 1}")
            closed[callers].append(driver.closed_loop(callers, max(plan.num_streams, callers), seed=run))
            progress(f"{callers} streams, burst, run {run + 1}")
            burst[callers].append(driver.burst(callers))
    return [
        LatencyRow(callers, Latency.of(closed[callers], callers), Latency.of(burst[callers], callers))
        for callers in plan.callers
    ]
