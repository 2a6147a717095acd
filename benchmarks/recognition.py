"""How much of generated speech a recogniser understands: word error rate by PocketSphinx and its US English model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jiwer
import numpy as np
import soxr
from num2words import num2words
from pocketsphinx import Decoder

RECOGNISER_RATE_HZ = 16_000
_PADDING = np.zeros(RECOGNISER_RATE_HZ // 5, dtype=np.int16)  # the recogniser wants silence around speech


class Recogniser:
    """One decoder, reset before each utterance so that results do not depend on what came before."""

    def __init__(self) -> None:
        self._decoder = Decoder(samprate=float(RECOGNISER_RATE_HZ), loglevel="FATAL")

    def transcribe(self, samples: np.ndarray[Any, Any], rate_hz: int) -> str:
        """Words heard in float samples −1…1, lower case."""
        speech = samples.astype(np.float32)
        if rate_hz != RECOGNISER_RATE_HZ:
            speech = soxr.resample(speech, rate_hz, RECOGNISER_RATE_HZ)
        pcm = (np.clip(speech, -1, 1) * 32767).astype(np.int16)
        self._decoder.reinit_feat()
        self._decoder.start_utt()
        self._decoder.process_raw(np.concatenate([_PADDING, pcm, _PADDING]).tobytes(), full_utt=True)
        self._decoder.end_utt()
        hypothesis = self._decoder.hyp()
        return "" if hypothesis is None else str(hypothesis.hypstr)


def plain_words(text: str) -> str:
    """Text as the recogniser would write it: lower case, digits as words, apostrophes kept, no other punctuation."""
    spelt = re.sub(r"\d+", lambda match: f" {num2words(int(match.group()))} ", text.lower())
    return " ".join(re.sub(r"[^a-z' ]+", " ", spelt).split())


def word_error_rate(references: Sequence[str], transcripts: Sequence[str]) -> float:
    """Errors over words of all sentences together, 0…"""
    return float(jiwer.wer([plain_words(r) for r in references], [plain_words(t) for t in transcripts]))
