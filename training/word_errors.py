"""Word errors by sentence, and the significance of a difference between two systems on the same sentences."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jiwer
import numpy as np
from numpy.typing import NDArray

from benchmarks.recognition import plain_words

RESAMPLINGS = 2000


@dataclasses.dataclass(frozen=True, slots=True)
class WordErrors:
    """Counts for each sentence [n]: errors, words; whether the last word was not heard; words heard after the last."""

    errors: NDArray[np.int64]
    words: NDArray[np.int64]
    last_missed: NDArray[np.bool_]
    words_after: NDArray[np.int64]

    @classmethod
    def count(cls, texts: Sequence[str], heard: Sequence[str]) -> WordErrors:
        spoken = [plain_words(text) for text in texts]
        output = jiwer.process_words(spoken, [plain_words(text) for text in heard])
        words = [len(text.split()) for text in spoken]
        errors, missed, after = [], [], []
        for chunks, num_words in zip(output.alignments, words, strict=True):
            wrong = [chunk for chunk in chunks if chunk.type != "equal"]
            errors.append(sum(max(c.ref_end_idx - c.ref_start_idx, c.hyp_end_idx - c.hyp_start_idx) for c in wrong))
            missed.append(any(c.type in ("substitute", "delete") and c.ref_end_idx == num_words for c in wrong))
            inserted = [c for c in wrong if c.type == "insert" and c.ref_start_idx == num_words]
            after.append(sum(c.hyp_end_idx - c.hyp_start_idx for c in inserted))
        return cls(np.array(errors), np.array(words), np.array(missed), np.array(after))

    @classmethod
    def together(cls, parts: Sequence[WordErrors]) -> WordErrors:
        """The same sentences said several times: sentence n's errors are added up, so that it stays one sample."""
        return cls(
            *(np.sum([getattr(part, field.name) for part in parts], axis=0) for field in dataclasses.fields(cls))
        )

    @property
    def percent(self) -> float:
        return float(100 * self.errors.sum() / self.words.sum())


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """First minus second, percentage points; the interval holds 95 % of what resampled sentences give."""

    points: float
    low: float
    high: float

    @classmethod
    def between(cls, ours: WordErrors, theirs: WordErrors, seed: int = 0) -> Difference:
        """Return the difference of two word error rates on the same sentences, resampled in pairs."""
        number = len(ours.errors)
        chosen = np.random.default_rng(seed).integers(0, number, (RESAMPLINGS, number))
        rates = [100 * part.errors[chosen].sum(1) / part.words[chosen].sum(1) for part in (ours, theirs)]
        low, high = np.percentile(rates[0] - rates[1], [2.5, 97.5])
        return cls(ours.percent - theirs.percent, float(low), float(high))
