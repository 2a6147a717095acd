"""Plot of the latency from a model's first token to the first audio at the caller, by stage.

    python -m benchmarks.agent_latency_plot docs/images/agent-latency.png "one room=one.json" "three rooms=three.json"

The files are those of `benchmarks.agent_rooms --json`; each is drawn with its tone, where it has one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("agg")
from matplotlib import pyplot

STAGES = {
    "to_text": "token → text leaves the plugin",
    "to_packet": "→ first packet from the server",
    "to_output": "→ first frame into the room",
    "to_ear": "→ audible at the caller",
}
COLOURS = ("#7a7a7a", "#2f6db3", "#111111", "#e08a2c")
TITLES = ("", "a tone, ")
TOKEN_MS = 50.0
BAR_MS = 280.0
NARROW_MS = 12.0  # too narrow for its number


def draw(runs: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Each run's stages one behind the other, at their medians; a dot where half, a bar where 95 % of the turns are."""
    rows = [(f"{title}{name}", one) for name, pair in runs.items() for title, one in zip(TITLES, pair, strict=False)]
    figure, axes = pyplot.subplots(figsize=(10, 1.3 + 0.75 * len(rows)))
    for place, (_, figures) in enumerate(rows):
        start = 0.0
        for colour, name in zip(COLOURS, STAGES, strict=True):
            length = float(np.median(figures[name]))
            axes.barh(place, length, 0.5, left=start, color=colour, label=STAGES[name] if place == 0 else None)
            if length > NARROW_MS:
                axes.text(
                    start + length / 2, place, f"{length:.0f}", color="white", ha="center", va="center", fontsize=9
                )
            start += length
        middle, late = np.percentile(figures["token_to_ear"], [50, 95])
        axes.plot([middle, late], [place, place], color="black", linewidth=1.2)
        axes.plot([middle], [place], "o", color="black", markersize=5)
        axes.plot([late], [place], "|", color="black", markersize=12)
        axes.text(late + 5, place, f"{middle:.0f} / {late:.0f}", va="center", fontsize=9)
    axes.axvline(BAR_MS, color="grey", linestyle=":", linewidth=1)
    tokens_ms = np.arange(0.0, axes.get_xlim()[1], TOKEN_MS)
    axes.plot(tokens_ms, np.full(len(tokens_ms), len(rows) - 0.45), "v", color="#2f6db3", markersize=6, clip_on=False)
    axes.text(-4, len(rows) - 0.45, "tokens come", ha="right", va="center", fontsize=9)
    axes.set(
        yticks=range(len(rows)), yticklabels=[title for title, _ in rows], xlabel="ms after the model's first token"
    )
    axes.set_ylim(len(rows) - 0.3, -0.6)
    axes.set_xlim(0)
    axes.set_title("stages at their medians; dot and bar: half and 95 % of the turns are heard", fontsize=10)
    axes.legend(loc="upper center", bbox_to_anchor=(0.42, -0.28), ncols=4, fontsize=8, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("runs", nargs="+", help="name=file")
    options = parser.parse_args()
    named = dict(run.rsplit("=", 1) for run in options.runs)
    draw({name: json.loads(Path(file).read_text(encoding="utf-8")) for name, file in named.items()}, options.picture)


if __name__ == "__main__":
    main()
