"""Plots of results; needs matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot

Document = Mapping[str, Any]


def draw(document: Document, path: Path) -> None:
    """Draw the plot of a bench's document, in the file format of the path's suffix."""
    figure = _DRAWN[document["bench"]](document["results"])
    subject = document["subject"]
    figure.suptitle(f"{subject['model']}, {subject['device_name']}, {subject['dtype']}", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)


def _engine(rows: Sequence[Document]) -> Any:
    streams = [row["streams"] for row in rows]
    has_stages = any(row.get("stages_ms") for row in rows)
    figure, axes = pyplot.subplots(1, 1 + has_stages, figsize=(5.5 + 5 * has_stages, 4), squeeze=False)
    left = axes[0][0]
    for name in ("p50", "p95", "p99"):
        left.plot(streams, [row["step_ms"][name] for row in rows], marker="o", label=name)
    left.set(xscale="log", yscale="log", xlabel="streams", ylabel="ms a step")
    left.set_xticks(streams, [str(number) for number in streams])
    left.grid(alpha=0.3)
    left.legend()
    if has_stages:
        _stages(axes[0][1], rows)
    return figure


def _stages(axes: Any, rows: Sequence[Document]) -> None:
    names = [str(row["streams"]) for row in rows]
    below = [0.0] * len(rows)
    for stage in rows[0]["stages_ms"]:
        heights = [row["stages_ms"].get(stage, 0.0) for row in rows]
        axes.bar(names, heights, bottom=below, label=stage)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set(xlabel="streams", ylabel="ms a step, by stage")
    axes.legend()


def _latency(rows: Sequence[Document]) -> Any:
    streams = [row["streams"] for row in rows]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10.5, 4))
    for kind, style in (("closed", "-"), ("burst", ":")):
        for name, colour in (("p50", "C0"), ("p95", "C1"), ("p99", "C2")):
            values = [row[kind]["first_audio_ms"][name] for row in rows]
            left.plot(streams, values, style, color=colour, marker="o", label=f"{kind}, {name}")
    left.set(xscale="log", yscale="log", xlabel="callers", ylabel="first audio, ms")
    right.plot(streams, [row["closed"]["times_real_time"] for row in rows], marker="o", label="made, × real time")
    right.plot(streams, streams, ":", color="grey", label="needed")
    right.set(xscale="log", yscale="log", xlabel="callers", ylabel="seconds of audio a second")
    for axes in (left, right):
        axes.set_xticks(streams, [str(number) for number in streams])
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def _capacity(result: Document) -> Any:
    trials = [trial for trial in result["trials"] if trial["streams"] and not trial["gave_up"]]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10.5, 4))
    offered = [trial["offered"] for trial in trials]
    for name in ("p50", "p95", "p99"):
        left.plot(offered, [trial["first_audio_ms"][name] for trial in trials], "o", label=name)
    left.set(xlabel="streams at once", ylabel="first audio, ms", yscale="log")
    for pre_buffer in trials[0]["stalls"] if trials else ():
        shares = [100 * trial["stalls"][pre_buffer]["share"] for trial in trials]
        right.plot(offered, shares, "o", label=f"{pre_buffer} ms of pre-buffer")
    right.set(xlabel="streams at once", ylabel="% of streams that stalled")
    for axes in (left, right):
        axes.axvline(result["streams"], color="grey", linestyle=":", label="held")
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def _load(result: Document) -> Any:
    """Plot the distribution and the times of first packets, underruns, and streams without audio."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10.5, 4))
    spoken = [stream for stream in result["raw"] if stream["packets"]]
    firsts = sorted(stream["first_ms"] for stream in spoken)
    left.step(firsts, [100 * (rank + 1) / len(firsts) for rank in range(len(firsts))], where="post")
    for name, colour in (("p50", "C0"), ("p95", "C1"), ("p99", "C2")):
        left.axvline(result["first_audio_ms"][name], color=colour, linestyle=":", label=name)
    left.set(xlabel="first token → first packet, ms", ylabel="% of listeners")
    for label, colour, streams in (
        ("never dry", "C0", [stream for stream in spoken if not stream["stalled_ms"]]),
        ("ran dry", "C3", [stream for stream in spoken if stream["stalled_ms"]]),
    ):
        moments = [stream["scheduled_s"] for stream in streams]
        right.plot(moments, [stream["first_ms"] for stream in streams], ".", color=colour, label=label)
    failed = [stream["scheduled_s"] for stream in result["raw"] if stream["error"]]
    right.plot(failed, [0.0] * len(failed), "x", color="black", label="refused or failed")
    right.set(xlabel="seconds", ylabel="first packet, ms")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    if result["void"]:
        figure.text(0.5, -0.02, "VOID: the generator was late", ha="center", color="C3")
    return figure


_DRAWN: dict[str, Callable[[Any], Any]] = {
    "engine": _engine,
    "latency": _latency,
    "capacity": _capacity,
    "server": _capacity,
    "load": _load,
}
