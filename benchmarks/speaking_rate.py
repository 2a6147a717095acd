"""Speech at other speeds: accuracy of its duration, and word error rates.

    python -m benchmarks.speaking_rate --sentences 100 --speeds 0.7,1.4 --json speaking_rate.json

Each sentence is spoken by the starter voice with one seed at each speed, on the road that every door takes. What is
asked for is the length at speed 1 over the speed; word error rates are of PocketSphinx: as it is, and told the pace, so
that it meets as many frames of a sound as in usual speech. `--control` has Flite, the voice's teacher, speak the same
sentences at those rates by itself: what is understood less well there is no stretch's fault.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.recognition import Recogniser, word_error_rate
from realtime_tts import TTS
from training.flite import SAMPLE_RATE_HZ, Flite, Speaker, trim

SENTENCES = Path(__file__).parents[1] / "training" / "texts" / "evaluation_sentences.txt"
Speak = Callable[[str, int, float], np.ndarray[Any, Any]]  # text, its number, speed → samples


def held_out(count: int) -> list[str]:
    """So many of the sentences that the voice was not trained on, spread over all of them."""
    lines = [line.strip() for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    sentences = [line for line in lines if line and not line.startswith("#")]
    return sentences[:: max(1, len(sentences) // count)][:count]


def measure(
    sentences: Sequence[str], speeds: Sequence[float], speak: Speak, rate_hz: int, *, told_only: bool = False
) -> dict[str, dict[str, Any]]:
    """By speed: the worst and the mean distance of a length from what was asked for, and word error rates: of the
    recogniser as it is (not with `told_only`, but at speed 1), and of one that is told the pace."""
    lengths: dict[float, np.ndarray[Any, Any]] = {}
    found: dict[str, dict[str, Any]] = {}
    for speed in (1.0, *speeds):
        audio = [speak(text, number, speed) for number, text in enumerate(sentences)]
        lengths[speed] = np.array([len(samples) for samples in audio])
        off = np.abs(lengths[speed] * speed / lengths[1.0] - 1)
        entry = {"worst_length_error": round(float(off.max()), 5), "mean_length_error": round(float(off.mean()), 5)}
        paces = {"word_error_rate": 1.0, "word_error_rate_told": speed}
        if speed == 1.0 or told_only:
            del paces["word_error_rate_told" if speed == 1.0 else "word_error_rate"]
        for name, pace in paces.items():
            recogniser = Recogniser(pace=pace)
            heard = [recogniser.transcribe(samples, rate_hz) for samples in audio]
            entry[name] = round(word_error_rate(sentences, heard), 4)
        found[f"{speed:g}"] = entry
    return found


def speaking(tts: TTS, voice: str) -> Speak:
    def speak(text: str, number: int, speed: float) -> np.ndarray[Any, Any]:
        return np.concatenate([*tts.generate(text, voice=voice, seed=number, speed=speed), np.zeros(0, np.float32)])

    return speak


def teacher(voice: str) -> Speak:
    flite = Flite()
    return lambda text, number, speed: trim(flite.speak(text, Speaker(voice, voice, rate=speed)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--speeds", default="0.7,1.4")
    parser.add_argument("--voice", default="slt")
    parser.add_argument("--control", action="store_true", help="also Flite at its own rates")
    parser.add_argument("--told-only", action="store_true", help="at other speeds only the recogniser that is told")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    speeds = [float(speed) for speed in options.speeds.split(",")]
    sentences = held_out(options.sentences)
    report: dict[str, Any] = {"voice": options.voice, "sentences": options.sentences}
    with TTS() as tts:
        speak = speaking(tts, options.voice)
        report["stretched"] = measure(sentences, speeds, speak, tts.sample_rate, told_only=options.told_only)
    if options.control:
        speak = teacher(options.voice)
        report["control"] = measure(sentences, speeds, speak, SAMPLE_RATE_HZ, told_only=options.told_only)
    text = json.dumps(report, indent=1)
    sys.stdout.write(text + "\n")
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
