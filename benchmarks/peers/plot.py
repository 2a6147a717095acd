"""A picture of the comparison: a step and the first audio of each engine by streams at once.

    python -m benchmarks.peers.plot docs/images/peers.png peers.json more-peers.json --engine engine.json

The files are those of `benchmarks.peers --json`; of an engine that is in several of them the last one counts.
`--engine` is of `realtime-tts bench engine --json`: the engine's own steps, without worker and client, drawn beside
them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

OURS = "ours"
PATCH_MS = 160.0  # of sound: a step that takes longer is too slow for a listener
MARKS = [factor * power for power in (1, 10, 100, 1000) for factor in (1, 2, 5)]
COLOURS = ("#2f6db3", "#e08a2c", "#b0571c", "#7a7a7a", "#bbbbbb")
Rows = Sequence[Mapping[str, Any]]


def gather(documents: Sequence[Mapping[str, Any]]) -> dict[str, Rows]:
    """The rows of each engine that did not fail, ours first."""
    found: dict[str, Rows] = {OURS: ()}
    for document in documents:
        found.update({name: result["rows"] for name, result in document["results"].items() if "rows" in result})
    return {name: rows for name, rows in found.items() if rows}


def draw(engines: Mapping[str, Rows], steps: Rows, path: Path) -> None:
    """steps: of the engine alone, as `bench engine` has them; none if there are none."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10.5, 4.2))
    for (name, rows), colour in zip(engines.items(), COLOURS, strict=False):
        streams = [row["streams"] for row in rows]
        firsts_ms = [row["first_audio_ms"]["p50"] for row in rows]
        for axes, values in ((left, [row["step_ms"] for row in rows]), (right, firsts_ms)):
            axes.plot(streams, values, marker="o", markersize=4, color=colour, label=name)
            _number(axes, streams, values, colour, -12 if name == OURS or "tuned" in name else 5)
    if steps:
        alone = [row["streams"] for row in steps], [row["step_ms"]["p50"] for row in steps]
        left.plot(*alone, ":", color=COLOURS[0], label="ours, the engine alone")
    left.axhline(PATCH_MS, color="grey", linestyle=":", linewidth=1, label="real time")
    streams = sorted({row["streams"] for rows in (*engines.values(), steps) for row in rows})
    for axes, label in ((left, "ms a step"), (right, "first audio, ms (median, all at once)")):
        axes.set(xscale="log", yscale="log", xlabel="streams at once", ylabel=label)
        axes.margins(y=0.12)
        axes.minorticks_off()
        axes.set_xticks(streams, [str(number) for number in streams])
        low, high = axes.get_ylim()
        marks = [mark for mark in MARKS if low <= mark <= high]
        axes.set_yticks(marks, [f"{mark:g}" for mark in marks])
        axes.grid(alpha=0.3)
    figure.legend(*left.get_legend_handles_labels(), loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)


def _number(axes: Axes, streams: Sequence[int], values: Sequence[float], colour: str, above: int) -> None:
    for number, value in zip(streams, values, strict=True):
        shown = f"{value:.1f}" if value < 100 else f"{value:.0f}"
        axes.annotate(
            shown, (number, value), (0, above), textcoords="offset points", ha="center", fontsize=8, color=colour
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--engine", type=Path)
    given = parser.parse_args()
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in given.runs]
    steps = json.loads(given.engine.read_text(encoding="utf-8"))["results"] if given.engine else ()
    draw(gather(documents), steps, given.picture)


if __name__ == "__main__":
    main()
