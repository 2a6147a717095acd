"""Recognition of generated speech: word error rate and forced alignment by PocketSphinx and its US English model."""

from __future__ import annotations

import functools
import multiprocessing
import re
from collections.abc import Sequence
from typing import Any

import jiwer
import numpy as np
import soxr
from num2words import num2words
from pocketsphinx import Decoder

RECOGNISER_RATE_HZ = 16_000
_FRAMES_PER_S, _WINDOW_S = 100, 0.025625  # what the recogniser's models were made with
_PADDING = np.zeros(RECOGNISER_RATE_HZ // 5, dtype=np.int16)  # the recogniser wants silence around speech


class Recogniser:
    """One decoder, reset before each utterance so that results do not depend on what came before.

    Args:
        words: words of its dictionary; it recognises sequences of these only. Empty: English texts.
        pace: of the speech, against a usual one. The decoder looks at that many times as many frames a second, each
            that much shorter, so that its models meet as many frames of a sound as at the usual pace.
    """

    def __init__(self, words: Sequence[str] = (), pace: float = 1.0) -> None:
        analysis = {"frate": round(_FRAMES_PER_S * pace), "wlen": _WINDOW_S / max(1.0, pace)}
        model = {"lm": None} if words else {}
        self._decoder = Decoder(samprate=float(RECOGNISER_RATE_HZ), loglevel="FATAL", **analysis, **model)
        if words:
            grammar = f"#JSGF V1.0; grammar row; public <row> = ({' | '.join(words)})+;"
            self._decoder.add_jsgf_string("row", grammar)
            self._decoder.activate_search("row")

    def transcribe(self, samples: np.ndarray[Any, Any], rate_hz: int = RECOGNISER_RATE_HZ) -> str:
        """Words heard, lower case, in float samples −1…1 or int16 ones."""
        _decode(self._decoder, samples, rate_hz)
        hypothesis = self._decoder.hyp()
        return "" if hypothesis is None else str(hypothesis.hypstr)


class Aligner:
    """Finds the words of a known text in speech."""

    def __init__(self) -> None:
        self._decoder = Decoder(samprate=float(RECOGNISER_RATE_HZ), loglevel="FATAL")

    def word_times_s(
        self, words: Sequence[str], samples: np.ndarray[Any, Any], rate_hz: int
    ) -> list[tuple[float, float]] | None:
        """Return each word's start and end in seconds, to 10 ms; None if they cannot be found. samples: float −1…1."""
        try:
            self._decoder.set_align_text(" ".join(words))
            _decode(self._decoder, samples, rate_hz)
        except RuntimeError:  # a word that its dictionary lacks
            return None
        found = [segment for segment in self._decoder.seg() or () if segment.word[0] not in "<["]
        if [re.sub(r"\(\d+\)$", "", segment.word) for segment in found] != list(words):
            return None
        frames = [(segment.start_frame, segment.end_frame + 1) for segment in found]
        padding_s = len(_PADDING) / RECOGNISER_RATE_HZ
        return [(start / 100 - padding_s, end / 100 - padding_s) for start, end in frames]


def _decode(decoder: Decoder, samples: np.ndarray[Any, Any], rate_hz: int) -> None:
    """Decode one utterance of float samples −1…1 or int16 ones."""
    speech = samples if samples.dtype == np.int16 else (np.clip(samples, -1, 1) * 32767).astype(np.int16)
    pcm = speech if rate_hz == RECOGNISER_RATE_HZ else soxr.resample(speech, rate_hz, RECOGNISER_RATE_HZ)
    decoder.reinit_feat()
    decoder.start_utt()
    try:
        decoder.process_raw(np.concatenate([_PADDING, pcm, _PADDING]).tobytes(), full_utt=True)
    finally:  # also where a test's time is over: no other utterance could be begun
        decoder.end_utt()


_recogniser = functools.cache(Recogniser)  # one for each process of a pool


def _hear(samples: np.ndarray[Any, Any]) -> str:
    return _recogniser().transcribe(samples)


def transcribe_all(recordings: Sequence[np.ndarray[Any, Any]]) -> list[str]:
    """Return the recognised text of each recording (16 kHz), in parallel over the cores."""
    with multiprocessing.get_context("spawn").Pool() as pool:
        return pool.map(_hear, recordings, chunksize=2)


def plain_words(text: str) -> str:
    """Text as the recogniser would write it: lower case, digits as words, apostrophes kept, no other punctuation."""
    spelt = re.sub(r"\d+", lambda match: f" {num2words(int(match.group()))} ", text.lower())
    return " ".join(re.sub(r"[^a-z' ]+", " ", spelt).split())


def count_errors(reference: str, transcript: str) -> tuple[int, int]:
    """(wrong words: the fewest that must be put in, left out or changed, words of the reference)."""
    found = jiwer.process_words(plain_words(reference), plain_words(transcript))
    return found.substitutions + found.deletions + found.insertions, sum(map(len, found.references))


def word_error_rate(references: Sequence[str], transcripts: Sequence[str]) -> float:
    """Errors over words of all sentences together, 0…"""
    errors, words = zip(*map(count_errors, references, transcripts), strict=True)
    return sum(errors) / sum(words)
