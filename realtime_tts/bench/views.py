"""Results as tables for the terminal. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from realtime_tts.bench.report import figure, table

Row = Mapping[str, Any]


def engine_table(rows: Sequence[Row]) -> str:
    """Steps by the number of streams; all but the last column in ms."""
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
