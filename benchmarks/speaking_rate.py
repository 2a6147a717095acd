"""Speech at other speeds: how exactly its length follows what was asked for, and what a recogniser makes of it.

    python -m benchmarks.speaking_rate --sentences 100 --speeds 0.7,1.4 --json speaking_rate.json

Each sentence is spoken by the starter voice with one seed at each speed, on the road that every door takes. What is
asked for is the length at speed 1 over the speed; the word error rate is of PocketSphinx.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.recognition import Recogniser, word_error_rate
from realtime_tts import TTS

SENTENCES = Path(__file__).parents[1] / "training" / "texts" / "evaluation_sentences.txt"


def held_out(count: int) -> list[str]:
    """So many of the sentences that the voice was not trained on, spread over all of them."""
    lines = [line.strip() for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    sentences = [line for line in lines if line and not line.startswith("#")]
    return sentences[:: max(1, len(sentences) // count)][:count]


def measure(sentences: Sequence[str], speeds: Sequence[float], voice: str) -> dict[str, dict[str, Any]]:
    """By speed: the worst and the mean distance of a length from what was asked for, and the word error rate."""
    recogniser = Recogniser()
    lengths: dict[float, list[int]] = {}
    heard: dict[float, list[str]] = {}
    with TTS() as tts:
        for seed, text in enumerate(sentences):
            for speed in (1.0, *speeds):
                chunks = tts.generate(text, voice=voice, seed=seed, speed=speed)
                samples = np.concatenate([*chunks, np.zeros(0, np.float32)])
                lengths.setdefault(speed, []).append(len(samples))
                heard.setdefault(speed, []).append(recogniser.transcribe(samples, tts.sample_rate))
    found: dict[str, dict[str, Any]] = {}
    for speed in (1.0, *speeds):
        asked = np.array(lengths[1.0]) / speed
        off = np.abs(np.array(lengths[speed]) / asked - 1)
        found[f"{speed:g}"] = {
            "worst_length_error": round(float(off.max()), 5),
            "mean_length_error": round(float(off.mean()), 5),
            "word_error_rate": round(word_error_rate(sentences, heard[speed]), 4),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--speeds", default="0.7,1.4")
    parser.add_argument("--voice", default="slt")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    speeds = [float(speed) for speed in options.speeds.split(",")]
    report = {"voice": options.voice, "sentences": options.sentences}
    report |= measure(held_out(options.sentences), speeds, options.voice)
    text = json.dumps(report, indent=1)
    sys.stdout.write(text + "\n")
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
