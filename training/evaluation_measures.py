"""Measures of the evaluation's processes, for one recording or for one against the teacher's."""

from __future__ import annotations

import dataclasses

import numpy as np

from training.evaluation_pool import Worker
from training.formants import Reading, formants
from training.speech_metrics import (
    Floats,
    Samples,
    distances,
    ending,
    pitch,
    speech_seconds,
    voice_features,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Length:
    """Seconds of speech over the teacher's; seconds missing at the end, seconds too many there."""

    ratio: float
    missing_s: float
    extra_s: float


def measure_length(_worker: Worker, pair: tuple[Samples, Samples]) -> Length:
    ours, theirs = pair
    return Length(speech_seconds(ours) / speech_seconds(theirs), *ending(ours, theirs))


def measure_distances(_worker: Worker, pair: tuple[Samples, Samples]) -> tuple[float, float]:
    """(mel-cepstral, log-spectral) in dB, warped in time."""
    return distances(*pair, aligned=False)


def measure_aligned_distances(_worker: Worker, pair: tuple[Samples, Samples]) -> tuple[float, float]:
    """(mel-cepstral, log-spectral) in dB of recordings that run in step."""
    return distances(*pair, aligned=True)


def measure_voice(_worker: Worker, samples: Samples) -> Floats:
    return voice_features(samples)


def measure_pitch(_worker: Worker, samples: Samples) -> float:
    """Median in Hz; nan if nothing is voiced."""
    voiced = pitch(samples)
    return float(np.median(voiced)) if len(voiced) else float("nan")


def measure_speaker(_worker: Worker, job: tuple[list[Samples], list[list[Samples]]]) -> tuple[float, float]:
    """(median pitch in Hz, log of the formants over those of base voices) of one speaker's texts.

    job: the texts as the speaker says them, and as each base voice does.
    """
    own, bases = job
    readings = [[Reading.of(samples) for samples in base] for base in bases]
    voiced = np.concatenate([pitch(samples) for samples in own])
    tone = float(np.median(voiced)) if len(voiced) else float("nan")
    return tone, formants([Reading.of(samples) for samples in own], readings)
