"""Quality of live speech: each sentence is spoken as complete text and while it is written, and recognised.

    python -m benchmarks.live_quality --jobs 16 --json live_quality.json --plot live_quality.png

Everything runs in processes of one thread, on clocks of their own (`live_turns`): results are those of an idle machine,
however busy this one is. Word error rates are pocketsphinx's; intervals hold 95 % of what resampled sentences give.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.live_turns import StepTime, Turn, TurnSpeaker
from benchmarks.recognition import RECOGNISER_RATE_HZ, Recogniser, count_errors
from realtime_tts.contract.location import local_directory
from realtime_tts.model.checkpoint import load_model
from training.speech_metrics import pitch, speech_seconds

SENTENCES = Path(__file__).parents[1] / "training" / "texts" / "evaluation_sentences.txt"
RESAMPLINGS = 2000
MIN_RATIO, MAX_RATIO = 0.8, 1.25  # of the live sentence's duration to the complete one's
MAX_GAP_S = 0.06  # of a gap that late text did not cause
NUM_DRAWN = 20
FAULTS = ("ends_cut", "ends_continued", "babbles", "skips", "repeats")
Row = dict[str, Any]


class Listener:
    """State of one process, which speaks and recognises."""

    def __init__(self, model: str, tokens_per_s: float, step: StepTime) -> None:
        torch.set_num_threads(1)
        self._loaded = load_model(model)
        self._tokens_per_s, self._recogniser = tokens_per_s, Recogniser()
        self._speaker = TurnSpeaker(self._loaded, step)

    def compare(self, voice: str, number: int, text: str, keep: bool) -> Row:
        """One sentence both ways, with the same noise. `keep`: the samples too, to be drawn."""
        whole = self._speaker.whole(text, voice, number)
        live = self._speaker.live(text, voice, number, self._tokens_per_s)
        row = {"voice": voice, "number": number, "text": text}
        row |= {"whole": self._measure(text, whole), "live": self._measure(text, live)}
        if keep:
            row["samples"] = [self._samples(turn) for turn in (whole, live)]
        return row

    def _samples(self, turn: Turn) -> np.ndarray[Any, np.dtype[np.int16]]:
        if self._loaded.config.sample_rate != RECOGNISER_RATE_HZ:
            import soxr

            pcm = soxr.resample(turn.pcm, self._loaded.config.sample_rate, RECOGNISER_RATE_HZ)
        else:
            pcm = turn.pcm
        return (np.clip(pcm, -1, 1) * 32767).astype(np.int16)

    def _measure(self, text: str, turn: Turn) -> Row:
        samples = self._samples(turn)
        heard = self._recogniser.transcribe(samples)
        errors, words = count_errors(text, heard)
        voiced = np.log2(pitch(samples)) if samples.size else np.zeros(0)
        return {
            "heard": heard,
            "errors": errors,
            "words": words,
            "speech_s": speech_seconds(samples),
            "pitch_octaves": float(np.median(voiced)) if voiced.size else None,
            "pitch_spread_octaves": float(voiced.std()) if voiced.size else None,
            "first_audio_s": turn.first_audio_s,
            "gap_s": turn.gap_s,
            "text_wait_s": turn.text_wait_s,
            "segments": turn.num_segments,
            "extensions": turn.num_extensions,
            "extension_share": turn.extension_share,
            "too_long": sum(done.finish_reason == "length" for done in turn.ends),
            **{name: sum(getattr(done, name) for done in turn.ends) for name in FAULTS},
        }


_listener: Listener | None = None  # of a pool's process


def _start(*arguments: Any) -> None:
    global _listener
    _listener = Listener(*arguments)


def _compare(job: tuple[str, int, str, bool]) -> Row:
    assert _listener is not None
    return _listener.compare(*job)


def difference(rows: Sequence[Row], seed: int = 0) -> tuple[float, float, float]:
    """Word error rate live − whole, percentage points: (of these rows, and where 95 % of resampled texts lie). A text
    that several voices speak is one sample."""
    by_text: dict[int, np.ndarray[Any, Any]] = collections.defaultdict(lambda: np.zeros(2))
    for row in rows:
        by_text[row["number"]] += row["live"]["errors"] - row["whole"]["errors"], row["live"]["words"]
    counts = np.array([by_text[number] for number in sorted(by_text)])
    chosen = np.random.default_rng(seed).integers(0, len(counts), (RESAMPLINGS, len(counts)))
    sums = counts[chosen].sum(axis=1)
    low, high = np.percentile(100 * sums[:, 0] / sums[:, 1], [2.5, 97.5])
    return float(100 * counts[:, 0].sum() / counts[:, 1].sum()), float(low), float(high)


def summary(rows: Sequence[Row]) -> Row:
    """The figures of some rows, percent, seconds and cents."""
    whole, live = ([row[way] for row in rows] for way in ("whole", "live"))

    def column(part: Sequence[Row], name: str) -> np.ndarray[Any, Any]:
        return np.array([np.nan if row[name] is None else row[name] for row in part], dtype=np.float64)

    def rate(part: Sequence[Row]) -> float:
        return float(100 * column(part, "errors").sum() / column(part, "words").sum())

    points, low, high = difference(rows)
    ratios = column(live, "speech_s") / np.maximum(column(whole, "speech_s"), 1e-3)
    # A delay of one step after a wait for text counts as caused by the text, too.
    gaps = np.where(column(live, "text_wait_s") > 0, 0.0, column(live, "gap_s"))
    cents = 1200 * (column(live, "pitch_octaves") - column(whole, "pitch_octaves"))
    spread = column(live, "pitch_spread_octaves") / column(whole, "pitch_spread_octaves")
    return {
        "sentences": len(rows),
        "wer_whole": rate(whole),
        "wer_live": rate(live),
        "difference": points,
        "difference_low": low,
        "difference_high": high,
        "within_length": float(100 * np.mean((ratios >= MIN_RATIO) & (ratios <= MAX_RATIO))),
        "ratio_p1": float(np.percentile(ratios, 1)),
        "ratio_p50": float(np.median(ratios)),
        "ratio_p99": float(np.percentile(ratios, 99)),
        "pitch_cents_p50": float(np.nanmedian(cents)),
        "pitch_cents_p95": float(np.nanpercentile(np.abs(cents), 95)),
        "pitch_spread_ratio": float(np.nanmedian(spread)),
        "first_audio_p50_s": float(np.median(column(live, "first_audio_s"))),
        "first_audio_max_s": float(column(live, "first_audio_s").max()),
        "with_gaps": float(100 * np.mean(gaps > MAX_GAP_S)),
        "with_text_waits": float(100 * np.mean(column(live, "text_wait_s") > 0)),
        "extensions": float(column(live, "extensions").mean()),
        "extension_share": float(100 * column(live, "extension_share").mean()),
        "whole_faults": _faults(whole),
        "live_faults": _faults(live),
    }


def _faults(part: Sequence[Row]) -> dict[str, int]:
    return {name: int(sum(row[name] for row in part)) for name in ("too_long", *FAULTS)}


def print_report(rows: Sequence[Row], voices: Sequence[str], tokens_per_s: float) -> None:
    print(f"{len(rows)} sentences, live at {tokens_per_s:g} tokens/s")
    head = f"{'voice':<6} {'whole':>6} {'live':>6} {'live − whole':>22} {'0.8–1.25':>9} {'ratio p1/p50/p99':>18}"
    print(head + f" {'first':>7} {'gaps':>6} {'waits':>6} {'ext.':>5} {'share':>6} {'pitch':>9}")
    for voice in [*voices, "all"] if len(voices) > 1 else voices:
        own = summary([row for row in rows if voice in ("all", row["voice"])])
        interval = f"{own['difference']:+.2f} [{own['difference_low']:+.2f}, {own['difference_high']:+.2f}]"
        ratios = "/".join(f"{own[name]:.2f}" for name in ("ratio_p1", "ratio_p50", "ratio_p99"))
        print(
            f"{voice:<6} {own['wer_whole']:5.1f}% {own['wer_live']:5.1f}% {interval:>22} {own['within_length']:8.1f}% "
            f"{ratios:>18} {1000 * own['first_audio_p50_s']:4.0f} ms {own['with_gaps']:5.1f}% "
            f"{own['with_text_waits']:5.1f}% {own['extensions']:5.1f} {own['extension_share']:5.1f}% "
            f"{own['pitch_cents_p50']:+3.0f} ({own['pitch_cents_p95']:.0f})"
        )
        for way in ("whole", "live"):
            found = {name: count for name, count in own[f"{way}_faults"].items() if count}
            print(f"       {way}: {', '.join(f'{name} {count}' for name, count in found.items()) or 'no faults'}")


def held_out(count: int, skip: int) -> list[tuple[int, str]]:
    """Return (number, text) of sentences that no model was trained on, evenly from the whole list."""
    lines = [line.strip() for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    found = [line for line in lines if line and not line.startswith("#")][skip:]
    places = np.linspace(0, len(found) - 1, min(count, len(found)), dtype=int).tolist()
    return [(skip + place, found[place]) for place in places]


def run(jobs: Sequence[tuple[str, int, str, bool]], num_processes: int, arguments: tuple[Any, ...]) -> list[Row]:
    """Run all jobs; return the results in the order of `jobs`."""
    rows: list[Row] = []
    with multiprocessing.get_context("spawn").Pool(num_processes, _start, arguments) as pool:
        for row in pool.imap(_compare, jobs, chunksize=2):
            rows.append(row)
            if len(rows) % 10 == 0 or len(rows) == len(jobs):
                print(f"\r{len(rows)} of {len(jobs)} sentences", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="starter-voice")
    parser.add_argument("--voices", nargs="+", help="(default: all of the checkpoint)")
    parser.add_argument("--sentences", type=int, default=300, help="of each voice (default 300)")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first of them")
    parser.add_argument("--tokens-per-s", type=float, default=20.0, help="at which live text comes (default 20)")
    parser.add_argument("--step-ms", type=float, default=40.0, help="that a step is taken to last (default 40)")
    parser.add_argument("--position-us", type=float, default=200.0, help="for each prefill position (default 200)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--json", type=Path, help="write all rows and figures here")
    parser.add_argument("--plot", type=Path, help="draw word error rates and lengths")
    parser.add_argument("--pairs", type=Path, help=f"draw {NUM_DRAWN} sentences, whole beside live: spectrum and pitch")
    options = parser.parse_args()
    model = str(local_directory(options.model) or options.model)
    voices = options.voices or list(load_model(model).policy.voices)
    texts = held_out(options.sentences, options.skip)
    drawn = {(voices[n % len(voices)], texts[n % len(texts)][0]) for n in range(NUM_DRAWN)} if options.pairs else set()
    jobs = [(voice, number, text, (voice, number) in drawn) for voice in voices for number, text in texts]
    step = StepTime(options.step_ms / 1e3, options.position_us / 1e6)
    rows = run(jobs, options.jobs, (model, options.tokens_per_s, step))
    print_report(rows, voices, options.tokens_per_s)
    if options.pairs:
        from benchmarks.live_quality_plots import draw_pairs

        draw_pairs([row for row in rows if "samples" in row], options.pairs)
    for row in rows:
        row.pop("samples", None)
    figures = {voice: summary([row for row in rows if row["voice"] == voice]) for voice in voices}
    figures["all"] = summary(rows)
    if options.json:
        given = {name: str(value) for name, value in vars(options).items()}
        options.json.write_text(json.dumps({"options": given, "figures": figures, "rows": rows}, indent=1) + "\n")
    if options.plot:
        from benchmarks.live_quality_plots import draw_figures

        draw_figures(rows, figures, options.plot)


if __name__ == "__main__":
    main()
