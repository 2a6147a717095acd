"""Time to first audio and real-time factor in process: closed loop, and all at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from realtime_tts.bench.in_process import InProcess
from realtime_tts.bench.streams import Heard, summary
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


def measure_latency(
    subject: Subject, plan: LatencyPlan, progress: Callable[[str], None] = lambda what: None
) -> list[dict[str, Any]]:
    """One row per number of callers: of the closed loop and of the burst the summary over all runs, each run's p50 of
    the first audio, and every stream's own figures.

    Args:
        progress: told what comes before each part of the work, of which there are `plan.num_parts`.
    """
    progress("warming up")
    driver = InProcess(subject, plan.num_patches, plan.steps, plan.cfg)
    rows: list[dict[str, Any]] = [{"streams": callers, "closed": [], "burst": []} for callers in plan.callers]
    for run in range(plan.runs):
        for row in rows:
            callers = row["streams"]
            progress(f"{callers} streams, closed loop, run {run + 1}")
            row["closed"].append(driver.closed_loop(callers, max(plan.num_streams, callers), seed=run))
            progress(f"{callers} streams, burst, run {run + 1}")
            row["burst"].append(driver.burst(callers))
    return [
        {
            "streams": row["streams"],
            "closed": _outcome(row["closed"], row["streams"]),
            "burst": _outcome(row["burst"], row["streams"]),
        }
        for row in rows
    ]


def _outcome(runs: list[list[Heard]], num_callers: int) -> dict[str, Any]:
    streams = [stream for run in runs for stream in run if stream.judged]
    result = summary(streams)
    result["first_audio_p50_ms_of_runs"] = [summary(run)["first_audio_ms"]["p50"] for run in runs]
    # So many streams at a time, each this much slower or faster than it is played.
    result["times_real_time"] = num_callers / result["rtf"]["p50"]
    result["raw"] = [
        {"first_ms": 1000 * stream.first_s, "rtf": stream.rtf, "audio_s": stream.audio_s, "error": stream.error}
        for stream in streams
    ]
    return result


def default_callers(device: torch.device) -> tuple[int, ...]:
    return (1, 2, 4) if device.type == "cpu" else (1, 2, 4, 8, 16, 32, 64, 128, 256)
