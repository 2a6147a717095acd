"""Plots of results; needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot

from realtime_tts.bench.figures import Spread

Curves = dict[str, float]  # values at one x, by curve


def draw(bench: str, subject: dict[str, object], results: Any, path: Path) -> None:
    """Draw the plot of a bench's results, in the file format of the path's suffix."""
    xlabel, ylabels, values = _PLOTS[bench]
    rows = getattr(results, "trials", getattr(results, "raw", results))
    figure, axes = pyplot.subplots(1, 2, figsize=(10.5, 4))
    for number, (one, ylabel) in enumerate(zip(axes, ylabels, strict=True)):
        curves: dict[str, list[tuple[float, float]]] = {}
        for x, *panels in map(values, rows):
            for name, y in panels[number].items():
                curves.setdefault(name, []).append((x, y if math.isfinite(y) else math.nan))
        for name, points in curves.items():
            one.plot(*zip(*points, strict=True), ".", label=name)
        one.set(xlabel=xlabel, ylabel=ylabel)
        one.grid(alpha=0.3)
        one.legend() if curves else one.remove()
    void = getattr(results, "void", "") and ", VOID"
    figure.suptitle(f"{subject['model']}, {subject['device_name']}, {subject['dtype']}{void}", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)


def _percentiles(spread: Spread) -> Curves:
    return {name: getattr(spread, name) for name in ("p50", "p95", "p99")}


def _search(trial: Any) -> tuple[float, Curves, Curves]:
    stalls = {f"{buffer_ms} ms of buffer": 100 * stalls.share for buffer_ms, stalls in trial.stalls.items()}
    return trial.offered, _percentiles(trial.first_audio_ms), stalls


def _listener(stream: Any) -> tuple[float, Curves, Curves]:
    label = "refused or failed" if stream.error else "heard"
    stall_ms = 1000 * max(stream.stalls_s(0.0), default=0.0)
    return stream.scheduled_s, {label: 0.0 if stream.error else 1000 * stream.first_s}, {label: stall_ms}


# Label of the x axis, labels of both y axes, and the values of one result.
_PLOTS: dict[str, tuple[str, tuple[str, str], Callable[[Any], tuple[float, Curves, Curves]]]] = {
    "engine": (
        "streams",
        ("ms a step", "ms a step, by stage"),
        lambda row: (row.streams, _percentiles(row.step_ms), row.stages_ms),
    ),
    "server": ("streams at once", ("first audio, ms", "% of streams that stalled"), _search),
    "load": ("seconds", ("first packet, ms", "longest wait of the player, ms"), _listener),
}
