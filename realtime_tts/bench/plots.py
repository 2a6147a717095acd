"""Plots of results; needs matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot
from matplotlib.axes import Axes

from realtime_tts.bench.figures import Spread

if TYPE_CHECKING:
    from realtime_tts.bench.capacity import Capacity
    from realtime_tts.bench.engine_steps import StepRow
    from realtime_tts.bench.latency import LatencyRow
    from realtime_tts.bench.server_load import LoadResult

PERCENTILES = ("p50", "p95", "p99")


def draw(bench: str, subject: dict[str, object], results: object, path: Path) -> None:
    """Draw the plot of a bench's results, in the file format of the path's suffix."""
    figure, axes = pyplot.subplots(1, 2, figsize=(10.5, 4))
    _DRAWN[bench](results, *axes)
    for one in axes:
        one.grid(alpha=0.3)
        if one.has_data():
            one.legend()
        else:
            one.remove()
    figure.suptitle(f"{subject['model']}, {subject['device_name']}, {subject['dtype']}", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)


def _plot_percentiles(axes: Axes, at: Sequence[float], spreads: Sequence[Spread], style: str, label: str = "") -> None:
    for number, name in enumerate(PERCENTILES):
        values = [getattr(spread, name) for spread in spreads]
        axes.plot(at, values, style, color=f"C{number}", label=f"{label}{name}")


def _over_streams(axes: Axes, streams: Sequence[int], xlabel: str, ylabel: str) -> None:
    axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
    axes.set_xticks(streams, [str(number) for number in streams])


def _engine(rows: Sequence[StepRow], left: Axes, right: Axes) -> None:
    streams = [row.streams for row in rows]
    _plot_percentiles(left, streams, [row.step_ms for row in rows], "o-")
    _over_streams(left, streams, "streams", "ms a step")
    below = [0.0] * len(rows)
    for stage in rows[0].stages_ms or ():
        heights = [(row.stages_ms or {}).get(stage, 0.0) for row in rows]
        right.bar(list(map(str, streams)), heights, bottom=below, label=stage)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    right.set(xlabel="streams", ylabel="ms a step, by stage")


def _latency(rows: Sequence[LatencyRow], left: Axes, right: Axes) -> None:
    streams = [row.streams for row in rows]
    _plot_percentiles(left, streams, [row.closed.first_audio_ms for row in rows], "o-", "closed, ")
    _plot_percentiles(left, streams, [row.burst.first_audio_ms for row in rows], "o:", "burst, ")
    _over_streams(left, streams, "callers", "first audio, ms")
    right.plot(streams, [row.closed.times_real_time for row in rows], "o-", label="made, × real time")
    right.plot(streams, streams, ":", color="grey", label="needed")
    _over_streams(right, streams, "callers", "seconds of audio a second")


def _capacity(result: Capacity, left: Axes, right: Axes) -> None:
    trials = [trial for trial in result.trials if trial.streams and not trial.gave_up]
    offered = [trial.offered for trial in trials]
    _plot_percentiles(left, offered, [trial.first_audio_ms for trial in trials], "o")
    left.set(xlabel="streams at once", ylabel="first audio, ms", yscale="log")
    for pre_buffer in trials[0].stalls if trials else ():
        shares = [100 * trial.stalls[pre_buffer].share for trial in trials]
        right.plot(offered, shares, "o", label=f"{pre_buffer} ms of pre-buffer")
    right.set(xlabel="streams at once", ylabel="% of streams that stalled")
    for axes in (left, right):
        axes.axvline(result.streams, color="grey", linestyle=":", label="held")


def _load(result: LoadResult, left: Axes, right: Axes) -> None:
    """Plot the distribution and the times of first packets, underruns, and streams without audio."""
    spoken = [stream for stream in result.raw if stream.chunks]
    firsts = sorted(1000 * stream.first_s for stream in spoken)
    left.step(firsts, [100 * (rank + 1) / len(firsts) for rank in range(len(firsts))], where="post")
    for number, name in enumerate(PERCENTILES):
        left.axvline(getattr(result.first_audio_ms, name), color=f"C{number}", linestyle=":", label=name)
    left.set(xlabel="first token → first packet, ms", ylabel="% of listeners")
    for label, colour, stalled in (("no underruns", "C0", False), ("underruns", "C3", True)):
        shown = [stream for stream in spoken if (stream.playback(0.0).num_stalls > 0) is stalled]
        moments, first_ms = [stream.scheduled_s for stream in shown], [1000 * stream.first_s for stream in shown]
        right.plot(moments, first_ms, ".", color=colour, label=label)
    failed = [stream.scheduled_s for stream in result.raw if stream.error]
    right.plot(failed, [0.0] * len(failed), "x", color="black", label="refused or failed")
    right.set(xlabel="seconds", ylabel="first packet, ms")
    if result.void:
        left.set_title("VOID: the generator was late", color="C3")


_DRAWN: dict[str, Callable[[Any, Axes, Axes], None]] = {
    "engine": _engine,
    "latency": _latency,
    "capacity": _capacity,
    "server": _capacity,
    "load": _load,
}
