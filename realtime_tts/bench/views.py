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
    """Return every trial and its outcome."""
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
    """Return the duration of the engine's steps, if known."""
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
        shares = {name: share for name, share in held[-1]["usage"].items() if isinstance(share, float)}
        lines.append(
            "Busy then: " + ", ".join(f"{name.replace('_', ' ')} {percent(part)}" for name, part in shares.items())
        )
    if result["limit"]:
        lines.append(f"The limit above that: {result['limit']}.")
    return "\n".join(lines)


def load_table(result: Row) -> str:
    """Return a load's playback quality, its cost, and whether it counts."""
    first, late, usage = result["first_audio_ms"], result["late_ms"], result["usage"]
    rows = [
        [
            "asked for",
            f"{result['asked']} turns of {figure(result['turn_s'])} s, {figure(result['rate_per_s'])} a second",
        ],
        ["refused", f"{result['refused']} ({percent(_share(result['refused'], result['asked']))})"],
        ["errors", ", ".join(f"{count} × {code}" for code, count in sorted(result["errors"].items())) or "none"],
        ["listening", f"{figure(result['listening_mean'])} on average, {result['listening_peak']} at most"],
        ["first token → first packet, ms", " / ".join(figure(first[name]) for name in ("p50", "p95", "p99", "max"))],
    ]
    for pre_buffer_ms, stalls in result["stalls"].items():
        late_share = percent(_share(stalls["late"], result["packets"]))
        rows.append(
            [
                f"ran dry with {pre_buffer_ms} ms of buffer",
                f"{percent(stalls['share'])} of listeners, {late_share} of packets late, "
                f"the longest wait {figure(stalls['longest_ms'])} ms",
            ]
        )
    if (barge_ins := result["barge_ins"])["streams"]:
        last, told = barge_ins["last_packet_ms"], barge_ins["acknowledged_ms"]
        rows.append(
            [
                f"{barge_ins['streams']} barge-ins, p95 ms",
                f"last packet after {figure(last['p95'])}, told after {figure(told['p95'])}",
            ]
        )
    rows.append(["speech", f"{figure(result['speech_per_s'])} s a second"])
    if result["gateway_ms_per_speech_s"] is not None:
        cores = f"{figure(usage['gateway_cores'])} cores, the busiest loop {percent(usage['event_loop'])}"
        rows.append(
            ["gateways' processor time", f"{figure(result['gateway_ms_per_speech_s'])} ms a second of speech ({cores})"]
        )
    if result["worker_ms_per_speech_s"] is not None:
        rows.append(["workers' processor time", f"{figure(result['worker_ms_per_speech_s'])} ms a second of speech"])
    lateness = " / ".join(figure(late[name]) for name in ("p50", "p95", "p99", "max"))
    rows.append(["the generator itself late by, ms", f"{lateness}; busy {percent(usage['busiest_client'])} at most"])
    verdict = f"VOID: {result['void']}." if result["void"] else ""
    return "\n".join([*(f"{name:<32} {value}" for name, value in rows), *filter(None, [verdict])])


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
