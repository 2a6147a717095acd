"""Recognition of spelt-out text: digits, telephone numbers, letters.

    python -m benchmarks.spelt_out --count 10

Random numbers and codes are spoken by the starter voice through SSML's `say-as`. PocketSphinx recognises them twice:
with its model of English texts, in which a row of digits is unlikely, and with a grammar of the signs only. The same
words spoken by Flite show the recogniser's own share of the errors.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.recognition import Recogniser, word_error_rate
from realtime_tts import TTS
from training.flite import SAMPLE_RATE_HZ, Flite, Speaker, trim

_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
DIGITS = {str(number): name for number, name in enumerate(_NAMES)}
LETTERS = {letter.upper(): letter for letter in "abcdefghijklmnopqrstuvwxyz"}
KINDS = {"digits": DIGITS, "telephone": DIGITS, "characters": LETTERS}


@dataclass(frozen=True, slots=True)
class Spelt:
    """text: as it is written; words: what is to be heard."""

    text: str
    words: str


def examples(kind: str, count: int) -> Iterator[Spelt]:
    """Random ones of 3 to 10 signs; the same for the same arguments."""
    rng, signs = random.Random(1), KINDS[kind]
    for _ in range(count):
        chosen = rng.choices(list(signs), k=rng.randint(3, 10))
        text = "".join(chosen)
        if kind == "telephone" and len(text) > 6:
            text = f"({text[:3]}) {text[3:6]}-{text[6:]}"
        yield Spelt(text, " ".join(signs[sign] for sign in chosen))


def heard_of(kind: str, count: int, speak: Callable[[Spelt], NDArray[np.float32]], rate_hz: int) -> dict[str, float]:
    """Word error rates in percent of what `speak` makes of the examples."""
    spelt = list(examples(kind, count))
    audio = [speak(each) for each in spelt]
    found = {}
    for name, recogniser in (("english", Recogniser()), ("grammar", Recogniser(sorted(set(KINDS[kind].values()))))):
        transcripts = [recogniser.transcribe(samples, rate_hz) for samples in audio]
        found[name] = round(100 * word_error_rate([each.words for each in spelt], transcripts), 1)
    return found


def speaking(tts: TTS, kind: str) -> Callable[[Spelt], NDArray[np.float32]]:
    def speak(spelt: Spelt) -> NDArray[np.float32]:
        ssml = f'<speak><say-as interpret-as="{kind}">{spelt.text}</say-as></speak>'
        return np.concatenate(list(tts.generate(ssml, voice="slt", seed=1)))

    return speak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10, help="of each kind")
    options = parser.parse_args()
    flite = Flite()

    def teach(spelt: Spelt) -> NDArray[np.float32]:
        spoken = flite.speak(spelt.words.upper(), Speaker("slt", "slt"))
        return trim(spoken).astype(np.float32) / 32768

    with TTS() as tts:
        report = {
            kind: {
                "say-as": heard_of(kind, options.count, speaking(tts, kind), tts.sample_rate),
                "teacher": heard_of(kind, options.count, teach, SAMPLE_RATE_HZ),
            }
            for kind in KINDS
        }
    sys.stdout.write(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
