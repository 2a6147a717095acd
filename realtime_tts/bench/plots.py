"""Results as pictures; needs matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot

Document = Mapping[str, Any]


def draw(document: Document, path: Path) -> None:
    """The picture of a bench's document, as its name's ending says."""
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


_DRAWN: dict[str, Callable[[Any], Any]] = {"engine": _engine}
