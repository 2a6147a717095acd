"""Results as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from realtime_tts.bench.capacity import Capacity
from realtime_tts.bench.figures import Spread, percentile
from realtime_tts.bench.load_result import LoadResult
from realtime_tts.bench.report import figure, percent, table
from realtime_tts.bench.streams import GAVE_UP

if TYPE_CHECKING:  # only for its type: it loads torch
    from realtime_tts.bench.engine_steps import StepRow


def _percentiles(spread: Spread) -> list[str]:
    return [figure(spread.p50), figure(spread.p95), figure(spread.p99)]


def _range(values: Sequence[float]) -> str:
    return f"{figure(min(values))}–{figure(max(values))}"


def engine_table(rows: Sequence[StepRow]) -> str:
    """Return steps by the number of streams; stages in ms."""
    stages = list(dict.fromkeys(stage for row in rows for stage in row.stages_ms))
    kernels = ["kernels"] if any(row.kernels for row in rows) else []
    header = ["streams", "p50 ms", "p95", "p99", "runs' p50", *stages, *kernels, "× real time", "MiB"]
    lines = [
        [
            str(row.streams),
            *_percentiles(row.step_ms),
            _range([percentile(run_ms, 50) for run_ms in row.runs]),
            *(figure(row.stages_ms.get(stage)) for stage in stages),
            *(str(row.kernels) for _ in kernels),
            figure(row.times_real_time),
            figure(row.memory.get("peak_mib", row.memory["rss_mib"])),
        ]
        for row in rows
    ]
    return table(header, lines)


def capacity_table(result: Capacity) -> str:
    """Return the times of one stream alone, every trial, the utilisation in the best trial, and the limit."""
    header = ["offered", "a second", "listening", "streams", "first audio p50 ms", "p95", "p99"]
    header += ["stalled with 0 ms", "100", "200", "longest ms", "held"]
    lines = [
        [
            *map(figure, (trial.offered, trial.rate_per_s, trial.listening_mean)),
            str(trial.streams),
            *_percentiles(trial.first_audio_ms),
            *(percent(trial.stalls[name].share) for name in ("0", "100", "200")),
            figure(trial.stalls["0"].longest_ms),
            "yes" if trial.held else "no, void" if trial.void else "no, given up" if GAVE_UP in trial.errors else "no",
        ]
        for trial in sorted(result.trials, key=lambda trial: (trial.offered, trial.seed))
    ]
    firsts = [" / ".join(_percentiles(Spread.of(times_ms))) for times_ms in result.alone_ms]
    outcome = [f"One stream alone, first packet p50 / p95 / p99 ms: {', '.join(firsts)}"]
    held, failed, turn = map(figure, (result.streams, result.failed, result.turn_s))
    if best := result.best:
        shares = best.usage.shares().items()
        outcome.append("Busy then: " + ", ".join(f"{name.replace('_', ' ')} {percent(part)}" for name, part in shares))
        outcome.append(
            f"{held} streams at once hold, {failed} do not: {figure(best.rate_per_s)} a second of {turn} s each."
        )
    else:
        outcome.append(f"Nothing holds: {failed} streams at once are too many.")
    if result.limit:
        outcome.append(f"The limit above that: {result.limit}.")
    return "\n".join([table(header, lines), "", *outcome])


def load_table(result: LoadResult) -> str:
    """Return a load's playback quality, its cost, and whether it counts."""
    rows = {
        "asked for": f"{result.asked} turns of {figure(result.turn_s)} s, {figure(result.rate_per_s)} a second",
        "refused": f"{result.refused} ({percent(_share(result.refused, result.asked))})",
        "errors": ", ".join(f"{count} × {code}" for code, count in sorted(result.errors.items())) or "none",
        "listening": f"{figure(result.listening_mean)} on average, {result.listening_peak} at most",
        "first token → first packet, ms": _line(result.first_audio_ms),
    }
    for pre_buffer_ms, stalls in result.stalls.items():
        rows[f"underruns with {pre_buffer_ms} ms of buffer"] = (
            f"{percent(stalls.share)} of listeners, {percent(_share(stalls.num_stalls, result.packets))} of packets "
            f"late, the longest wait {figure(stalls.longest_ms)} ms"
        )
    if number := result.barge_in_last_ms.count:
        last_ms, told_ms = figure(result.barge_in_last_ms.p95), figure(result.barge_in_told_ms.p95)
        rows[f"{number} barge-ins, p95 ms"] = f"last packet after {last_ms}, acknowledged after {told_ms}"
    rows["speech"] = f"{figure(result.speech_per_s)} s a second"
    if result.gateway_ms_per_speech_s is not None:
        cores = f"{figure(result.usage.gateway_cores)} cores, the busiest loop {percent(result.usage.event_loop)}"
        rows["gateways' processor time"] = f"{figure(result.gateway_ms_per_speech_s)} ms a second of speech ({cores})"
    if result.worker_ms_per_speech_s is not None:
        rows["workers' processor time"] = f"{figure(result.worker_ms_per_speech_s)} ms a second of speech"
    busy = percent(result.usage.busiest_client)
    rows["the generator itself late by, ms"] = f"{_line(result.late_ms)}; busy {busy} at most"
    void = [f"VOID: {result.void}."] if result.void else []
    return "\n".join([*(f"{name:<32} {value}" for name, value in rows.items()), *void])


def _line(spread: Spread) -> str:
    return " / ".join([*_percentiles(spread), figure(spread.max)])


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
