"""Which head follows the text, on sound and readings that are made up; and what the starter voice's own heads say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from realtime_tts.engine.calibrate import SENTENCES
from realtime_tts.engine.head_choice import (
    MIN_SENTENCES,
    HeadScore,
    SpokenSentence,
    choose_head,
    expected_loudness,
    score_heads,
)

RATE_HZ, PATCH_S = 8000, 0.16
TEXTS = [
    "the morning was cold, but the kitchen stayed warm.",
    "she opened the window, and a bird flew in.",
    "we can meet at the station, or wait by the river.",
    "my brother has a boat, a dog and a garden.",
    "if it rains, the match will be on sunday.",
    "he read the letter twice, then he began to laugh.",
]


def sentence(text: str, seed: int, lag_s: float) -> SpokenSentence:
    """Speech whose loudness is that of its letters, at a pace that changes; one layer of heads that look

    0: anywhere, 1: always at the same place, 2: at what is spoken `lag_s` before the end of each patch, 3: the same
    from the end to the beginning, 4: where a steady voice would be, 5: as 2, with a share of the attention too small to
    mean it, 6: as 2, but never further than half way.
    """
    random = np.random.RandomState(seed)
    length_s = np.repeat(random.uniform(0.04, 0.1, -(-len(text) // 6)), 6)[: len(text)]
    begins_s = np.concatenate(([0.0], np.cumsum(length_s)))
    num_patches = int(np.ceil(begins_s[-1] / PATCH_S)) + 1
    # Letters are heard a little after their begin, as in real speech.
    times_s = np.arange(int(num_patches * PATCH_S * RATE_HZ)) / RATE_HZ - 0.045
    spoken = np.interp(times_s, begins_s, np.arange(len(text) + 1.0))
    level = np.interp(spoken, np.arange(len(text)) + 0.5, expected_loudness(text)) * (times_s > 0)
    pcm = random.standard_normal(len(times_s)) * 0.3 * 10 ** (1.5 * (level - 1))
    at_s = PATCH_S * np.arange(1, num_patches + 1) - lag_s
    true = np.interp(at_s, begins_s, np.arange(len(text) + 1.0)).clip(max=len(text) - 1)
    last = len(text) - 1
    heads = np.stack(
        [
            random.uniform(0, last, num_patches),
            np.full(num_patches, 0.4 * last),
            true + random.normal(0, 0.2, num_patches),
            last - true,
            np.linspace(0, last, num_patches),
            true,
            np.minimum(true, last / 2),
        ],
        axis=1,
    )[:, None]
    spread = np.full_like(heads, 1.0)
    mass = np.full_like(heads, 0.9)
    mass[:, :, 5] = 0.01
    return SpokenSentence(text, tuple(range(len(text))), heads, spread, mass, pcm, RATE_HZ)


@pytest.mark.parametrize("lag_s", [-0.06, 0.0, 0.1])
def test_the_head_that_follows_the_speech_is_found_with_its_lag(lag_s: float) -> None:
    scores = score_heads([sentence(text, seed, lag_s) for seed, text in enumerate(TEXTS)])
    found = choose_head(scores)
    assert found is not None
    assert (found.layer, found.head) == (0, 2)
    assert found.lag_ms == pytest.approx(1000 * lag_s, abs=12)
    assert {score.head for score in scores if score.qualifies} <= {2, 4}


def test_a_head_that_looks_all_over_the_text_does_not_qualify() -> None:
    spoken = [sentence(text, seed, 0.1) for seed, text in enumerate(TEXTS)]
    blurred = [dataclasses.replace(one, spread=one.spread * 20) for one in spoken]
    assert choose_head(score_heads(blurred)) is None


def test_too_few_sentences_say_nothing() -> None:
    spoken = [sentence(text, seed, 0.1) for seed, text in enumerate(TEXTS)]
    assert score_heads(spoken[: MIN_SENTENCES - 1]) == []
    assert choose_head([]) is None


def test_readings_that_are_no_numbers_and_silence_choose_no_head() -> None:
    spoken = [sentence(text, seed, 0.1) for seed, text in enumerate(TEXTS)]
    broken = [dataclasses.replace(one, index=np.full_like(one.index, np.nan)) for one in spoken]
    silent = [dataclasses.replace(one, pcm=np.zeros_like(one.pcm)) for one in spoken]
    assert choose_head(score_heads(broken)) is None
    assert choose_head(score_heads(silent)) is None


@pytest.mark.parametrize("language", ["zh", "ja", "ko", "ru", "es"])
def test_other_scripts_are_told_by_their_pauses_and_vowels(language: str) -> None:
    spoken = [sentence(text, seed, 0.1) for seed, text in enumerate(SENTENCES[language][:6])]
    chosen = choose_head(score_heads(spoken))
    assert chosen is not None
    assert chosen.head == 2
    assert chosen.lag_ms == pytest.approx(100, abs=40)


def test_of_the_heads_that_qualify_the_one_that_agrees_best_is_taken() -> None:
    good = HeadScore(3, 1, 0.9, 0.02, backward=0.01, first=0.05, last=1.0, reach=0.9899, agreement=0.4, lag_ms=20.04)
    better = dataclasses.replace(good, layer=5, agreement=0.5)
    unfit = dataclasses.replace(good, layer=7, agreement=0.9, backward=0.5)
    chosen = choose_head([unfit, good, better])
    assert chosen is not None
    assert (chosen.layer, chosen.head, chosen.lag_ms, chosen.reach) == (5, 1, 20.0, 0.98)
