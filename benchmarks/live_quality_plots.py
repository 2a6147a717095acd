"""The pictures of `live_quality`: rates and lengths, and sentences spoken whole beside the same ones spoken live."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("agg")
from matplotlib import pyplot

from benchmarks.recognition import RECOGNISER_RATE_HZ
from training.speech_metrics import HOP, WINDOW, log_spectra, pitch

WAYS = ("whole", "live")
_COLUMNS = 4


def draw_figures(rows: Sequence[dict[str, Any]], figures: dict[str, dict[str, Any]], path: Path) -> None:
    """Word error rates, their differences, lengths and first sounds, by voice."""
    figure, ((rates, differences), (lengths, firsts)) = pyplot.subplots(2, 2, figsize=(11, 7.5))
    places = np.arange(len(figures))
    for number, way in enumerate(WAYS):
        heights = [one[f"wer_{way}"] for one in figures.values()]
        rates.bar(places + 0.4 * (number - 0.5), heights, 0.4, label=way)
    rates.set(xticks=places, xticklabels=list(figures), ylabel="word error rate, %")
    rates.legend()
    points = np.array([one["difference"] for one in figures.values()])
    ends = np.array([(one["difference_low"], one["difference_high"]) for one in figures.values()]).T
    differences.errorbar(places, points, np.abs(ends - points), fmt="o", capsize=4)
    differences.axhline(0, color="grey", linewidth=1)
    differences.axhline(0.5, color="grey", linestyle=":", linewidth=1)
    differences.set(xticks=places, xticklabels=list(figures), ylabel="live − whole, points, 95 %")
    for voice in dict.fromkeys(row["voice"] for row in rows):
        own = [row for row in rows if row["voice"] == voice]
        ratios = np.array([row["live"]["speech_s"] / max(row["whole"]["speech_s"], 1e-3) for row in own])
        lengths.hist(ratios.clip(0.7, 1.4), np.linspace(0.7, 1.4, 57), histtype="step", label=voice)
        first_ms = 1000 * np.sort([row["live"]["first_audio_s"] for row in own])
        firsts.plot(first_ms, 100 * (np.arange(len(first_ms)) + 1) / len(first_ms), label=voice)
    for bound in (0.8, 1.25):
        lengths.axvline(bound, color="grey", linestyle=":", linewidth=1)
    lengths.set(xlabel="length, live over whole", ylabel="sentences", yscale="log")
    lengths.legend()
    firsts.set(xlabel="first token → first sound, ms", ylabel="% of sentences")
    firsts.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def draw_pairs(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Each row's two recordings, one above the other, with their pitch."""
    num_rows = -(-len(rows) // _COLUMNS)
    figure, axes = pyplot.subplots(2 * num_rows, _COLUMNS, figsize=(4.2 * _COLUMNS, 3.2 * num_rows), squeeze=False)
    for plain in axes.flat:
        plain.set_axis_off()
    for number, row in enumerate(rows):
        for way, samples in enumerate(row["samples"]):
            own = axes[2 * (number // _COLUMNS) + way, number % _COLUMNS]
            own.set_axis_on()
            _draw_speech(own, samples, max(map(len, row["samples"])) / RECOGNISER_RATE_HZ)
            own.set_title(f"{row['voice']}, {WAYS[way]}: {row['text'][:44]}", fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _draw_speech(axes: Any, samples: np.ndarray[Any, np.dtype[np.int16]], length_s: float) -> None:
    spectra = log_spectra(samples)
    end_s = len(samples) / RECOGNISER_RATE_HZ
    axes.imshow(
        spectra.T,
        origin="lower",
        aspect="auto",
        extent=(0, end_s, 0, RECOGNISER_RATE_HZ / 2000),
        vmin=-60,
        cmap="magma",
    )
    axes.set(xlim=(0, length_s), ylim=(0, 5))
    axes.tick_params(labelsize=6)
    hops = range(0, len(samples) - 2 * WINDOW, 2 * HOP)
    tones = [pitch(samples[start : start + 2 * WINDOW]) for start in hops]
    found = [(start, np.median(tone)) for start, tone in zip(hops, tones, strict=True) if len(tone) > 2]
    if found:
        times, hz = np.array(found).T
        twin = axes.twinx()
        twin.plot((times + WINDOW) / RECOGNISER_RATE_HZ, hz, ".", markersize=1.5, color="cyan")
        twin.set(ylim=(50, 350))
        twin.tick_params(labelsize=6)
