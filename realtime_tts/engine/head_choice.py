"""Choice of the attention head that shows the place in the text, without labels, by comparison with the audio. Pure.

A head that follows the text has a sharp peak, moves forward, and passes from the first character to the last by the
time that speech stops. It also agrees with the sound: loud where it points at a vowel, quiet where it points at a
comma. The shift in time with the best agreement is the head's lag.
"""

from __future__ import annotations

import dataclasses
import math
import unicodedata
from collections.abc import Sequence

import numpy as np

from realtime_tts.contract.policy import TextHead
from realtime_tts.engine.text_track import TextTrack
from realtime_tts.model.sequence import Array

MIN_SENTENCES = 4  # minimum to score heads; with fewer, chance decides
_MIN_SPEECH_S = 0.5
_FRAME_S = 0.01
_LOUDNESS_RANGE_DB = 45.0
_VOWELS = "aeiouyæøœаеиоуыэюя"
_VOICED = "lmnrwbdgvzбвгджзлмнр"
_LAST_CYRILLIC = "\u04ff"
# A letter sounds that much later than forced alignments place it: they count from a word's first sound, and the loud
# part of a syllable comes after its onset. The value was the same, within 10 ms, for four heads and three voices.
_LETTER_IS_LOUD_AFTER_S = 0.045
_LAGS_S = np.arange(-0.15, 0.2501, 0.01)


@dataclasses.dataclass(frozen=True, slots=True)
class SpokenSentence:
    """A text that the checkpoint spoke to its end, and the attention of each head for each patch.

    chars: the first character of each token. index, spread: [patches, layers, heads] in tokens, mean and deviation
    under the attention within the text; mass: the share of the attention on the text. pcm: [samples] in −1…1.
    """

    text: str
    chars: tuple[int, ...]
    index: Array
    spread: Array
    mass: Array
    pcm: Array
    sample_rate: int


@dataclasses.dataclass(frozen=True, slots=True)
class HeadScore:
    """Statistics of one head over all sentences.

    first, last: mean share of the text passed at the first patch, and at most; reach: the latter in the sentence where
    it is least. backward: share of backward moves in all moves. spread: in shares of the text.
    agreement: correlation of the loudness expected at its positions with the measured one, at the best lag; lag_ms:
    that lag. Both are 0 if the head does not follow the text.
    """

    layer: int
    head: int
    mass: float
    spread: float
    backward: float
    first: float
    last: float
    reach: float
    agreement: float = 0.0
    lag_ms: float = 0.0

    @property
    def follows(self) -> bool:
        goes_through = self.first < 0.3 and self.last > 0.85 and self.backward < 0.2
        return goes_through and self.mass > 0.1 and self.spread < 0.1

    @property
    def qualifies(self) -> bool:
        return self.follows and self.agreement > 0.2


def choose_head(scores: Sequence[HeadScore]) -> TextHead | None:
    """Return the qualifying head with the best agreement, None without one. (All heads cost the same.)"""
    best = max((score for score in scores if score.qualifies), key=lambda score: score.agreement, default=None)
    if best is None:
        return None
    return TextHead(best.layer, best.head, round(best.lag_ms, 1), math.floor(100 * best.reach) / 100)


def score_heads(sentences: Sequence[SpokenSentence]) -> list[HeadScore]:
    """Return the scores of all heads, best agreement first. Empty with fewer than `MIN_SENTENCES` long enough."""
    sentences = [sentence for sentence in sentences if len(sentence.pcm) >= _MIN_SPEECH_S * sentence.sample_rate]
    if len(sentences) < MIN_SENTENCES:
        return []
    loudness = [loudness_db(sentence) for sentence in sentences]
    _, num_layers, num_heads = sentences[0].index.shape
    scores = [_score(sentences, loudness, layer, head) for layer in range(num_layers) for head in range(num_heads)]
    return sorted(scores, key=lambda score: (-score.agreement, -score.last))


def loudness_db(sentence: SpokenSentence) -> Array:
    """Return the loudness in dB, [frames of 10 ms], limited to 45 dB below the loudest frame."""
    hop = round(_FRAME_S * sentence.sample_rate)
    frames = sentence.pcm[: len(sentence.pcm) // hop * hop].reshape(-1, hop).astype(np.float64)
    db = 10 * np.log10((frames**2).mean(axis=1) + 1e-9)
    return np.asarray(np.maximum(db, db.max() - _LOUDNESS_RANGE_DB))


def expected_loudness(text: str) -> Array:
    """Return the expected loudness of each character, [characters] in 0…1."""
    return np.array([_loudness(unicodedata.normalize("NFD", c)[0]) for c in text.lower()])


def _loudness(letter: str) -> float:
    """Return the expected loudness of a lower-case letter without diacritics. In scripts of syllables, and those whose
    vowels are not known here, only pauses are quiet."""
    if letter in _VOWELS:
        return 1.0
    if letter in _VOICED:
        return 0.4
    return 1.0 if letter > _LAST_CYRILLIC and letter.isalpha() else 0.0


def _score(sentences: Sequence[SpokenSentence], loudness: Sequence[Array], layer: int, head: int) -> HeadScore:
    index = [sentence.index[:, layer, head] for sentence in sentences]
    lasts = [max(1, len(sentence.chars) - 1) for sentence in sentences]
    moves = [np.diff(path) for path in index]
    statistics = {
        "mass": np.mean([np.median(sentence.mass[:, layer, head]) for sentence in sentences]),
        "spread": np.mean([np.median(s.spread[:, layer, head]) / n for s, n in zip(sentences, lasts, strict=True)]),
        "backward": np.mean([-move.clip(max=0).sum() / max(1e-9, np.abs(move).sum()) for move in moves]),
        "first": np.mean([path[0] / n for path, n in zip(index, lasts, strict=True)]),
        "last": np.mean([path.max() / n for path, n in zip(index, lasts, strict=True)]),
        "reach": np.min([path.max() / n for path, n in zip(index, lasts, strict=True)]),
    }
    score = HeadScore(layer, head, **{name: float(value) for name, value in statistics.items()})
    if not score.follows:
        return score
    paths = [_path(*pair) for pair in zip(sentences, index, strict=True)]
    lag_s, agreement = _best_lag(sentences, loudness, paths)
    return dataclasses.replace(score, agreement=agreement, lag_ms=1000 * lag_s)


def _best_lag(
    sentences: Sequence[SpokenSentence], loudness: Sequence[Array], paths: Sequence[Array]
) -> tuple[float, float]:
    """Return the lag with the best agreement (interpolated by a parabola) in seconds, and that agreement."""
    found = np.array([_agreement(sentences, loudness, paths, lag - _LETTER_IS_LOUD_AFTER_S) for lag in _LAGS_S])
    best = int(found.argmax())
    if best in (0, len(found) - 1):
        return float(_LAGS_S[best]), 0.0  # no peak
    before, at, after = found[best - 1 : best + 2]
    bend = before - 2 * at + after
    between = 0.5 * (before - after) / bend if bend < 0 else 0.0
    return float(_LAGS_S[best] + (_LAGS_S[1] - _LAGS_S[0]) * between), float(at)


def _path(sentence: SpokenSentence, index: Array) -> Array:
    """Return the characters, [patches], that the engine would send."""
    track = TextTrack()
    positions = [track.advance(float(value), sentence.chars) for value in index]
    return np.array([np.nan if position is None else position for position in positions])


def _agreement(
    sentences: Sequence[SpokenSentence], loudness: Sequence[Array], paths: Sequence[Array], lag_s: float
) -> float:
    """Return the mean correlation of expected and measured loudness, if positions are `lag_s` before a patch's end."""
    found = []
    for sentence, heard, path in zip(sentences, loudness, paths, strict=True):
        patch_s = _patch_s(sentence)
        times_s = patch_s * np.arange(len(path) + 1) - lag_s
        frames_s = _FRAME_S * (np.arange(len(heard)) + 0.5)
        character = np.interp(frames_s, times_s, np.concatenate(([0.0], path)))
        expected = expected_loudness(sentence.text)
        middle = np.arange(len(expected)) + 0.5
        found.append(_correlation(np.interp(character, middle, expected), heard))
    return float(np.mean(found))


def _correlation(a: Array, b: Array) -> float:
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    value = float((a * b).sum()) / scale if scale > 0 else 0.0
    return value if np.isfinite(value) else 0.0


def _patch_s(sentence: SpokenSentence) -> float:
    return len(sentence.pcm) / sentence.sample_rate / len(sentence.index)
