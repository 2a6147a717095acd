"""Casts the corpus: which speaker says which text, and with which phones.

    python -m training.script --corpus build/corpus/train.txt --out build/corpus/script.tsv

writes a line for each utterance: number of the speaker (`speakers.all_speakers`), text, phones. Needs the packages
misaki, spaCy and its tagger; see README.md. For texts that are held out, so that the teacher speaks what an evaluation
compares: `--readers named` lets every named voice, and no mixture, read each text; `--readers unseen` lets the speakers
that training never hears read them in turn.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
from collections import Counter
from pathlib import Path

from tqdm import tqdm

from training.pronunciation import Pronunciation
from training.speakers import MAX_PHONES, NAMED_SPEAKERS, NUM_MIXTURES, NUM_UNSEEN, all_speakers

DEFAULT_VOICE_SHARE = 0.4  # of the named readings of a long text; the other voices share the rest
MIXTURE_SHARE = {True: 0.35, False: 0.5}  # short texts, others: how often a mixture reads them as well
_BLOCK = 2000


def is_short(text: str) -> bool:
    """One or two words: cheap to say, and the hardest to learn the length of."""
    return len(text.split()) <= 2


def cast(text: str, rng: random.Random) -> list[int]:
    """Return the speakers of a text: all named voices for a short one, else one of them; and perhaps a mixture."""
    named = range(len(NAMED_SPEAKERS))
    others = (1 - DEFAULT_VOICE_SHARE) / (len(named) - 1)
    one = rng.choices(named, [DEFAULT_VOICE_SHARE, *[others] * (len(named) - 1)])
    speakers = list(named) if is_short(text) else one
    if rng.random() < MIXTURE_SHARE[is_short(text)]:
        speakers.append(len(named) + rng.randrange(NUM_MIXTURES))
    return speakers


_pronunciations: dict[bool, Pronunciation] = {}


def _start_worker() -> None:
    os.nice(5)
    _pronunciations.update({british: Pronunciation(british=british) for british in (False, True)})


def cast_all(texts: list[str], *, seed: int, readers: str) -> list[list[int]]:
    """Return each text's speakers: as `cast` draws them for `training`, every named voice for `named`, one unseen
    speaker after the other for `unseen`."""
    if readers == "named":
        return [list(range(len(NAMED_SPEAKERS)))] * len(texts)
    if readers == "unseen":
        first = len(NAMED_SPEAKERS) + NUM_MIXTURES
        return [[first + n % NUM_UNSEEN] for n in range(len(texts))]
    rng = random.Random(seed)
    return [cast(text, rng) for text in texts]


def _lines(job: tuple[int, list[str], str]) -> list[str]:
    index, texts, readers = job
    speakers = all_speakers()
    casting = cast_all(texts, seed=index, readers=readers)
    phones: list[dict[bool, str]] = [{} for _ in texts]
    for british, pronunciation in _pronunciations.items():
        wanted = [
            n for n, chosen in enumerate(casting) if any(speakers[speaker].british == british for speaker in chosen)
        ]
        for n, spoken in zip(wanted, pronunciation.phones(texts[n] for n in wanted), strict=True):
            if spoken is not None and len(spoken) < MAX_PHONES:
                phones[n][british] = spoken
    return [
        f"{speaker}\t{text}\t{own[speakers[speaker].british]}"
        for text, chosen, own in zip(texts, casting, phones, strict=True)
        for speaker in chosen
        if speakers[speaker].british in own
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, nargs="+", default=[Path("build/corpus/train.txt")])
    parser.add_argument("--out", type=Path, default=Path("build/corpus/script.tsv"))
    parser.add_argument("--readers", choices=("training", "named", "unseen"), default="training")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    args = parser.parse_args()
    texts = [text for path in args.corpus for text in path.read_text().splitlines()]
    starts = range(0, len(texts), _BLOCK)
    blocks = [(n, texts[start : start + _BLOCK], args.readers) for n, start in enumerate(starts)]
    counts: Counter[int] = Counter()
    partial = args.out.with_suffix(".partial")
    with multiprocessing.Pool(args.workers, _start_worker) as pool, partial.open("w", encoding="utf-8") as file:
        for lines in tqdm(pool.imap(_lines, blocks), total=len(blocks), unit="block"):
            file.writelines(f"{line}\n" for line in lines)
            counts.update(int(line.split("\t")[0]) for line in lines)
    partial.rename(args.out)
    named = ", ".join(f"{speaker.name} {counts[n]}" for n, speaker in enumerate(NAMED_SPEAKERS))
    mixtures = sum(speaker >= len(NAMED_SPEAKERS) for speaker in counts)
    print(f"{counts.total()} utterances of {len(texts)} texts: {named}, {mixtures} mixtures")


if __name__ == "__main__":
    main()
