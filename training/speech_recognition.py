"""Word error rate by pocketsphinx's US English model, in parallel over the cores."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_decoder = None


def words(text: str) -> list[str]:
    """What is compared: lower-case words, hyphens split, punctuation dropped."""
    return re.findall(r"[a-z']+", text.lower().replace("-", " "))


def edit_distance(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """Substitutions, insertions and deletions that turn one into the other."""
    row = list(range(len(hypothesis) + 1))
    for i, wanted in enumerate(reference, start=1):
        previous, row[0] = row[0], i
        for j, heard in enumerate(hypothesis, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (wanted != heard))
    return row[-1]


def _start() -> None:
    from pocketsphinx import Decoder  # an optional package, loaded once in each worker

    global _decoder
    _decoder = Decoder(samprate=16000, loglevel="FATAL")


def _hear(samples: NDArray[np.int16]) -> str:
    assert _decoder is not None
    # a recogniser wants some room around the speech
    padded = np.pad(samples, 4800)
    _decoder.start_utt()
    _decoder.process_raw(padded.tobytes(), no_search=False, full_utt=True)
    _decoder.end_utt()
    hypothesis = _decoder.hyp()
    return hypothesis.hypstr if hypothesis else ""


def transcribe(audio: Sequence[NDArray[np.int16]], workers: int | None = None) -> list[str]:
    """What the recogniser hears in each recording (16 kHz)."""
    with multiprocessing.get_context("spawn").Pool(workers or os.cpu_count(), _start) as pool:
        return pool.map(_hear, audio, chunksize=2)


def word_error_rate(texts: Sequence[str], heard: Sequence[str]) -> float:
    """Errors over words of all texts together, in percent."""
    errors = sum(edit_distance(words(text), words(hypothesis)) for text, hypothesis in zip(texts, heard, strict=True))
    return 100 * errors / sum(len(words(text)) for text in texts)
