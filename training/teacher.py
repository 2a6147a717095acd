"""Speaks the corpus with the teacher, on all cores.

    python -m training.teacher --corpus build/corpus/train.txt --out build/audio --hours 150

writes chunks of utterances (`AudioChunk`), each complete when its name appears, so that training can begin on the first
ones while the rest is made. Rerunning makes only what is missing; more hours than the texts have are other speakers'
readings of them. Who says a text is a seeded draw (`cast`); the utterances of a pseudo-speaker lie in one chunk.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import multiprocessing
import os
import random
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from training.flite import NAMED_SPEAKERS, SAMPLE_RATE_HZ, Flite, Speaker, pseudo_speakers, trim

CHUNK_TEXTS = 240
CHUNK_HOURS, MIN_CHUNK_HOURS = 0.3, 0.1  # of speech in a chunk: usual, and surely
NUM_PSEUDO_SPEAKERS = 2400
PSEUDO_SPEAKERS_SEED = 1
MIN_SAMPLES = 4 * 2560  # the stop flag is ignored for the first patches, so nothing shorter than four can be said


@dataclasses.dataclass(frozen=True, slots=True)
class AudioChunk:
    """Utterances end to end. `ends` [n] in samples; `speakers` [n] index `all_speakers()`."""

    audio: NDArray[np.int16]
    ends: NDArray[np.int64]
    speakers: NDArray[np.int32]
    texts: list[str]

    @classmethod
    def load(cls, path: Path) -> AudioChunk:
        with np.load(path) as data:
            return cls(data["audio"], data["ends"], data["speakers"], str(data["texts"]).split("\n"))

    def save(self, path: Path) -> None:
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez(
                file, audio=self.audio, ends=self.ends, speakers=self.speakers, texts=np.array("\n".join(self.texts))
            )
        partial.rename(path)

    def utterances(self) -> list[NDArray[np.int16]]:
        return np.split(self.audio, self.ends[:-1])


def all_speakers() -> list[Speaker]:
    """The named voices, then the pseudo-speakers of the training set."""
    return [*NAMED_SPEAKERS, *pseudo_speakers(NUM_PSEUDO_SPEAKERS, PSEUDO_SPEAKERS_SEED)]


def is_short(text: str) -> bool:
    """One or two words: cheap to say, and the hardest to learn the length of."""
    return len(text.split()) <= 2


def cast(texts: list[str], chunk: int, named_share: float = 0.6) -> list[tuple[str, int]]:
    """Who says what in a chunk, as (text, speaker index).

    A text is said by a named voice or by one of ten pseudo-speakers; a short one by all named voices, and perhaps by a
    pseudo-speaker as well.
    """
    rng = random.Random(chunk)
    named = range(len(NAMED_SPEAKERS))
    pseudo = rng.sample(range(len(named), len(named) + NUM_PSEUDO_SPEAKERS), 10)
    result = []
    for n, text in enumerate(texts):
        speakers = {rng.choice(named) if rng.random() < named_share else pseudo[n * len(pseudo) // len(texts)]}
        if is_short(text):
            speakers.update(named)
        result += [(text, speaker) for speaker in sorted(speakers)]
    return result


_flite: Flite | None = None
_speakers: list[Speaker] = []


def _start_worker(library_dir: Path | None) -> None:
    global _flite, _speakers
    os.nice(10)  # training runs beside it
    _flite, _speakers = Flite(library_dir), all_speakers()


def utterance(flite: Flite, text: str, speaker: Speaker) -> NDArray[np.int16]:
    """What the model learns to say: trimmed, and never shorter than the shortest thing it can say."""
    samples = trim(flite.speak(text, speaker))
    return np.pad(samples, (0, max(0, MIN_SAMPLES - len(samples))))


def _synthesise_chunk(job: tuple[int, list[str], Path]) -> float:
    index, texts, path = job
    assert _flite is not None
    spoken, speakers = zip(*cast(texts, index), strict=True)
    audio = [utterance(_flite, text, _speakers[speaker]) for text, speaker in zip(spoken, speakers, strict=True)]
    ends = np.cumsum([len(samples) for samples in audio])
    AudioChunk(np.concatenate(audio), ends, np.array(speakers, np.int32), list(spoken)).save(path)
    return float(ends[-1]) / SAMPLE_RATE_HZ / 3600


def spoken_hours(folder: Path) -> float:
    """About how much speech there is."""
    return CHUNK_HOURS * len(list(folder.glob("*.npz")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=Path("build/corpus/train.txt"))
    parser.add_argument("--out", type=Path, default=Path("build/audio"))
    parser.add_argument("--hours", type=float, default=150.0, help="stop after about this much speech")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--library-dir", type=Path, help="where Flite's shared libraries lie, if not installed")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    texts = args.corpus.read_text().splitlines()
    groups = [texts[start : start + CHUNK_TEXTS] for start in range(0, len(texts), CHUNK_TEXTS)]
    # a second reading is by other speakers: the casting goes by a chunk's number
    readings = itertools.islice(itertools.cycle(groups), len(groups) + int(args.hours / MIN_CHUNK_HOURS))
    jobs = ((index, group, args.out / f"{index:04d}.npz") for index, group in enumerate(readings))
    hours = spoken_hours(args.out)
    missing = (job for job in jobs if not job[2].exists())
    with (
        multiprocessing.Pool(args.workers, _start_worker, (args.library_dir,)) as pool,
        tqdm(total=args.hours, initial=hours, unit="h", mininterval=5) as progress,
    ):
        for made in pool.imap_unordered(_synthesise_chunk, missing):
            hours += made
            progress.update(made)
            if hours >= args.hours:
                break
        pool.terminate()
    (args.out / "complete").write_text(f"{hours:.2f}\n")


if __name__ == "__main__":
    main()
