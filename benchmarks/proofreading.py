"""Faults of speech that the engine mends before they are heard: injected ones, and false finds in speech that is right.

    OMP_NUM_THREADS=1 python -m benchmarks.proofreading --texts 100 --json proofreading.json
    OMP_NUM_THREADS=1 python -m benchmarks.proofreading --texts 2000 --right

The starter voice speaks each text as it is, and then once more with a fault. From some patch on the model reads another
text, which lacks the next words (a skip, of 14 characters or more) or has the last one seven times (a loop); or it
loses its memory of the last patches (a repeat, of 16 characters or more). So words are really left out or said again.
Steps take `--step-ms` of a clock that is not the machine's; a listener plays what is sent. The fault comes once: what
is made again has the right input. With `--right` there are no faults: each find is a false one, or the voice's own.
Texts are sentences in all voices; where these are used up, they come again with another seed.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from benchmarks.sentences import held_out
from realtime_tts.bench.report import figure, table, write_json
from realtime_tts.contract import frames
from realtime_tts.contract.location import STARTER_VOICE
from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.engine import Engine
from realtime_tts.model.checkpoint import LoadedModel, load_model

KINDS = ("skips", "repeats", "stuck")
MIN_SKIP, MIN_REPEAT = 14, 16  # characters
AT_ONCE = 32  # streams
EARLY_S = 1.5  # before that the listener has little audio ahead


@dataclasses.dataclass
class Speech:
    """One text as it was spoken. places: the furthest character at each patch."""

    places: list[float]
    done: frames.Done
    underruns: int


class Misread(NamedTuple):
    """A text that the model reads from `patch` on. chars: the character of the right text for each of its own.
    num_patches: patches that it remembers; None: all."""

    patch: int
    text: str
    chars: list[int]
    num_patches: int | None = None


class Speaker:
    """Engine with a clock of its own, in which the model may read another text from some patch on."""

    def __init__(self, loaded: LoadedModel, step_s: float) -> None:
        shape = loaded.config
        self.patch_s = shape.patch_samples / shape.sample_rate
        self.misread: dict[int, Misread] = {}
        self._now, self._step_s, self._rate_hz = 0.0, step_s, shape.sample_rate
        self._sent: list[tuple[float, frames.Message]] = []
        config = SchedulerConfig(
            num_blocks=4096, max_streams=AT_ONCE, max_positions=512, patch_s=self.patch_s, min_patches=2
        )
        emit = lambda message: self._sent.append((self._now, message))  # noqa: E731
        self._engine = Engine(loaded, config, emit, clock=lambda: self._now)

    def speak(self, texts: dict[int, tuple[str, str]]) -> dict[int, Speech]:
        """Speak texts, by seed a voice and a text, as many at a time as there are streams."""
        engine, waiting, self._sent = self._engine, list(texts.items()), []
        with tqdm(total=len(texts)) as progress:
            while waiting or not engine.is_idle:
                while waiting and len(engine._segments) < AT_ONCE:
                    seed, (voice, text) = waiting.pop(0)
                    engine.post(frames.Generate(str(seed), f"{seed} {self._now}", text, voice=voice, seed=seed))
                    engine._handle_messages()
                    progress.update()
                for seed in [int(name) for name in engine._segments if int(name) in self.misread]:
                    self._misread(seed)
                if engine.step():
                    self._now += self._step_s
                else:
                    self._now += max(0.001, engine.idle_s() or 0.0)
        return {seed: self._heard(str(seed)) for seed in texts}

    def _misread(self, seed: int) -> None:
        """Let the model read the other text once its patch has come."""
        segment, lay_out = self._engine._segments[str(seed)], self._engine.continuity.lay_out
        if segment.conditioning is None or len(segment.patches) < self.misread[seed].patch:
            return
        change = self.misread.pop(seed)
        source = lay_out(segment.conditioning, change.text, segment.patches[: change.num_patches])
        source = dataclasses.replace(source, spoken_chars=tuple(change.chars[char] for char in source.spoken_chars))
        self._engine.continuity.lay_out = lambda *_: source  # type: ignore[method-assign]
        request = segment.request
        self._engine.scheduler._read_anew(request)
        request.num_computed = min(request.num_computed, request.num_prefill - 1)
        self._engine.continuity.lay_out = lay_out  # type: ignore[method-assign]

    def _heard(self, name: str) -> Speech:
        mine = [(at_s, message) for at_s, message in self._sent if getattr(message, "request_id", "") == name]
        audio = [(at_s, message) for at_s, message in mine if isinstance(message, frames.Audio)]
        (done,) = [message for _, message in mine if isinstance(message, frames.Done)]
        ends_s, underruns = audio[0][0], 0
        for at_s, message in audio:
            underruns += at_s > ends_s + 1e-6
            ends_s = max(ends_s, at_s) + len(message.payload) / 2 / self._rate_hz
        return Speech([message.text_position or 0.0 for _, message in audio], done, underruns)


def misread(kind: str, text: str, places: list[float], rng: random.Random) -> Misread | None:
    """Return a fault at random in a text that was spoken; None: the text is too short."""
    starts = [match.start() for match in re.finditer(r"\S+", text)]
    found = []
    for patch in range(2, len(places) - 3):
        following = next((start for start in starts if start >= places[patch] + 2), len(text))
        if kind == "skips":
            after = next((start for start in starts if start >= following + MIN_SKIP), len(text))
            if after <= len(text) - MIN_SKIP:
                found.append(
                    Misread(patch, text[:following] + text[after:], [*range(following), *range(after, len(text))])
                )
            continue
        if kind == "repeats":
            before = [number for number in range(patch) if places[number] <= places[patch] - MIN_REPEAT]
            if before and places[patch] <= len(text) - MIN_REPEAT:
                found.append(Misread(patch, text, [*range(len(text))], before[-1]))
            continue
        again = max((start for start in starts if start < following), default=0)
        if 0 < following <= len(text) - MIN_REPEAT:
            chars = [*range(following), *[*range(again, following)] * 6, *range(following, len(text))]
            found.append(Misread(patch, "".join(text[char] for char in chars), chars))
    return rng.choice(found) if found else None


def measure(num_texts: int, step_s: float, seed: int, kinds: Sequence[str] = KINDS) -> dict[str, float]:
    """Return the figures."""
    loaded = load_model(STARTER_VOICE)
    speaker, rng = Speaker(loaded, step_s), random.Random(seed)
    sentences, voices = held_out(317), list(loaded.policy.voices)
    texts = {n + 1: (voices[n % len(voices)], sentences[n // len(voices) % len(sentences)]) for n in range(num_texts)}
    right = speaker.speak(texts)
    figures: dict[str, float] = {"texts": len(texts), "right.underruns": sum(each.underruns for each in right.values())}
    figures["right.found"] = sum(any(_counts(each.done).values()) for each in right.values())
    for kind in kinds:
        found = {each: misread(kind, texts[each][1], right[each].places, rng) for each in texts}
        changes = {each: change for each, change in found.items() if change is not None}
        speaker.misread = dict(changes)
        spoken = speaker.speak({each: texts[each] for each in changes})
        counts: collections.Counter[str] = collections.Counter()
        for each, speech in spoken.items():
            faults = _counts(speech.done)
            is_mended = bool(faults) and all(name.endswith("mended") for name in faults)
            is_late = changes[each].patch * speaker.patch_s >= EARLY_S
            counts.update(injected=1, found=bool(faults), mended=is_mended, underruns=speech.underruns)
            counts.update(late=is_late, late_mended=is_late and is_mended)
        figures |= {f"{kind}.{name}": value for name, value in counts.items()}
    return figures


def _counts(done: frames.Done) -> dict[str, int]:
    names = [*KINDS, *(f"{kind}_mended" for kind in KINDS)]
    return {name: getattr(done, name) for name in names if getattr(done, name)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--step-ms", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--right", action="store_true", help="speech without faults only")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    figures = measure(arguments.texts, arguments.step_ms / 1000, arguments.seed, () if arguments.right else KINDS)
    print(table(["figure", "value"], [[name, figure(value)] for name, value in figures.items()]))
    if arguments.json:
        write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
