"""Results as tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from realtime_tts.bench.figures import Spread
from realtime_tts.bench.report import figure, percent, table

Row = Mapping[str, Any]


def engine_table(rows: Sequence[Row]) -> str:
    """Steps by the number of streams; stages in ms."""
    stages = list(dict.fromkeys(stage for row in rows for stage in row.get("stages_ms") or ()))
    header = ["streams", "p50 ms", "p95", "p99", "runs' p50", *stages]
    if has_kernels := any(row.get("kernels") for row in rows):
        header.append("kernels")
    header += ["× real time", "MiB"]
    lines = []
    for row in rows:
        step, of_runs, memory = row["step_ms"], row["p50_ms_of_runs"], row["memory"]
        line = [str(row["streams"]), *(figure(step[name]) for name in ("p50", "p95", "p99"))]
        line.append(f"{figure(min(of_runs))}–{figure(max(of_runs))}")
        line += [figure((row.get("stages_ms") or {}).get(stage)) for stage in stages]
        if has_kernels:
            line.append(str(row["kernels"]))
        lines.append([*line, figure(row["times_real_time"]), figure(memory.get("peak_mib", memory["rss_mib"]))])
    return table(header, lines)


def latency_table(rows: Sequence[Row]) -> str:
    """First audio in ms; of the closed loop also how fast speech is made."""
    header = ["callers", "first audio p50 ms", "p95", "p99", "runs' p50", "RTF p50", "p95"]
    header += ["× real time", "burst p50", "p95"]
    lines = []
    for row in rows:
        closed, burst = row["closed"], row["burst"]
        first, of_runs, rtf = closed["first_audio_ms"], closed["first_audio_p50_ms_of_runs"], closed["rtf"]
        line = [str(row["streams"]), *(figure(first[name]) for name in ("p50", "p95", "p99"))]
        line.append(f"{figure(min(of_runs))}–{figure(max(of_runs))}")
        line += [f"{rtf['p50']:.3f}", f"{rtf['p95']:.3f}", figure(closed["times_real_time"])]
        lines.append([*line, *(figure(burst["first_audio_ms"][name]) for name in ("p50", "p95"))])
    return table(header, lines)


def capacity_table(result: Row) -> str:
    """Every trial, and what came of them."""
    header = ["offered", "a second", "listening", "streams", "first audio p50 ms", "p95", "p99"]
    header += ["stalled with 0 ms", "100", "200", "longest ms", "held"]
    lines = []
    for trial in sorted(result["trials"], key=lambda trial: (trial["offered"], trial["seed"])):
        first, stalls = trial["first_audio_ms"], trial["stalls"]
        line = [figure(trial["offered"]), figure(trial["rate_per_s"]), figure(trial["listening_mean"])]
        line += [str(trial["streams"]), *(figure(first[name]) for name in ("p50", "p95", "p99"))]
        line += [percent(stalls[name]["share"]) for name in ("0", "100", "200")]
        verdict = "yes" if trial["held"] else "no, given up" if trial["gave_up"] else "no"
        lines.append([*line, figure(stalls["0"]["longest_ms"]), verdict])
    held, failed = figure(result["streams"]), figure(result["failed"])
    rate, turn = figure(result["rate_per_s"]), figure(result["turn_s"])
    outcome = f"Nothing holds: {failed} streams at once are too many."
    if result["streams"]:
        outcome = f"{held} streams at once hold, {failed} do not: {rate} a second of {turn} s each."
    steps = [_steps(trial) for trial in result["trials"] if trial["held"] and trial["offered"] == result["streams"]]
    return "\n".join([table(header, lines), "", *filter(None, steps[-1:]), outcome])


def _steps(trial: Row) -> str:
    """How long the engine's steps took, where that is known."""
    if "busy" not in trial:
        return ""
    p50, p99 = (figure(trial["step_ms"][name]) for name in ("p50", "p99"))
    return f"Steps then: p50 {p50} ms, p99 {p99} ms, {percent(trial['busy'])} of the time."


def server_table(result: Row) -> str:
    """One caller alone, every trial, how busy everything was in the highest load that held, and the limit."""
    alone = [Spread.of(times_ms) for times_ms in result["alone_ms"]]
    firsts = ", ".join(f"{figure(run.p50)} / {figure(run.p95)} / {figure(run.p99)}" for run in alone)
    lines = [f"One caller, first packet p50 / p95 / p99 ms: {firsts}", "", capacity_table(result)]
    held = [trial for trial in result["trials"] if trial["held"] and trial["offered"] == result["streams"]]
    if held:
        shares = {name.replace("_", " "): share for name, share in held[-1]["usage"].items() if share is not None}
        lines.append("Busy then: " + ", ".join(f"{name} {percent(share)}" for name, share in shares.items()))
    if result["limit"]:
        lines.append(f"The limit above that: {result['limit']}.")
    return "\n".join(lines)
