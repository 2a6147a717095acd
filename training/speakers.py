"""The voices that the teacher speaks with: four named ones, and mixtures of styles as further speakers.

A style pack of the teacher is a table [510, 256]: one row for each number of phones. Columns 0 to 127 set timbre,
columns 128 to 255 set prosody. Weighted sums of packs are further speakers.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 24_000
VOICES = ("heart", "michael", "emma", "isabella")
NUM_MIXTURES = 400
MIXTURES_SEED = 1
NUM_UNSEEN, UNSEEN_SEED = 30, 99  # mixtures that training never hears: cloning is judged on them
MAX_PHONES = 510

_PACKS = {
    "heart": "af_heart",
    "nicole": "af_nicole",
    "michael": "am_michael",
    "emma": "bf_emma",
    "isabella": "bf_isabella",
    "lewis": "bm_lewis",
}
# Timbres only: their prosody is that of other languages.
_TIMBRES = {
    "dora": "ef_dora",
    "alex": "em_alex",
    "sara": "if_sara",
    "nicola": "im_nicola",
    "dora_pt": "pf_dora",
    "alex_pt": "pm_alex",
}
_BRITISH = frozenset({"emma", "isabella", "lewis"})


@dataclasses.dataclass(frozen=True, slots=True)
class Speaker:
    """Weights of style packs for timbre and for prosody, each summing to 1; a factor for pitch and one for speed."""

    name: str
    timbre: tuple[tuple[str, float], ...]
    prosody: tuple[tuple[str, float], ...]
    british: bool
    pitch: float = 1.0
    speed: float = 1.0


def _named(name: str) -> Speaker:
    weights = ((name, 1.0),)
    return Speaker(name, weights, weights, name in _BRITISH)


NAMED_SPEAKERS = tuple(_named(name) for name in VOICES)


def mixtures(count: int, seed: int, prefix: str = "m") -> list[Speaker]:
    """Return `count` random speakers.

    Each has two or three timbres, the prosody of one or two packs of one accent, a pitch within ± 20 % and a speed from
    0.8 to 1.25.
    """
    rng = random.Random(seed)

    def weights(names: list[str], most: int) -> tuple[tuple[str, float], ...]:
        chosen = rng.sample(names, rng.randint(most - 1, most))
        raw = [rng.uniform(0.2, 1.0) for _ in chosen]
        return tuple((name, value / sum(raw)) for name, value in zip(chosen, raw, strict=True))

    result = []
    for number in range(count):
        british = rng.random() < 0.35
        prosody = weights([name for name in _PACKS if (name in _BRITISH) == british], 2)
        timbre = weights([*_PACKS, *_PACKS, *_TIMBRES], 3)
        pitch, speed = 2 ** rng.uniform(-0.26, 0.26), 2 ** rng.uniform(-0.32, 0.32)
        result.append(Speaker(f"{prefix}{number}", timbre, prosody, british, pitch, speed))
    return result


def all_speakers() -> list[Speaker]:
    """Return the named voices, the mixtures of the training set, and those that it never hears."""
    trained = mixtures(NUM_MIXTURES, MIXTURES_SEED)
    return [*NAMED_SPEAKERS, *trained, *mixtures(NUM_UNSEEN, UNSEEN_SEED, "unseen")]


def load_packs(folder: Path) -> dict[str, NDArray[np.float32]]:
    """Return each pack's table [510, 256] from `folder` (the `voices` of the npm package kokoro-js).

    Raises FileNotFoundError or ValueError for a pack that is missing or of another size.
    """
    files = {**_PACKS, **_TIMBRES}
    return {
        name: np.fromfile(folder / f"{file}.bin", np.float32).reshape(MAX_PHONES, 256) for name, file in files.items()
    }


def style(packs: dict[str, NDArray[np.float32]], speaker: Speaker) -> NDArray[np.float32]:
    """Return the speaker's table [510, 256]."""
    parts = [
        sum(weight * packs[name][:, columns] for name, weight in weights)
        for weights, columns in ((speaker.timbre, slice(0, 128)), (speaker.prosody, slice(128, 256)))
    ]
    return np.concatenate(parts, axis=1).astype(np.float32)
