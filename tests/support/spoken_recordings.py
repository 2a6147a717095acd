"""Speech of people who are none, as somebody might record it: from Flite, whose voices the training uses too."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import soxr

from realtime_tts.audio.containers import wav_header
from training.flite import SAMPLE_RATE_HZ, Flite, Speaker

TEXT = "The harbour was quiet in the morning. Two boats came in, and a third one waited outside for the tide."
RATE_HZ = 48_000


@lru_cache
def said(voice: str, pitch: float = 1.0) -> np.ndarray[Any, Any]:
    """`TEXT` in −1…1 at 48 kHz, at a usual level."""
    try:
        samples = Flite().speak(TEXT, Speaker(voice, voice, pitch))
    except OSError:
        if os.environ.get("CI"):
            raise
        pytest.skip("needs Flite's libraries: apt-get install libflite1")
    samples = soxr.resample(np.asarray(samples, dtype=np.float64), SAMPLE_RATE_HZ, RATE_HZ)
    return 0.5 * samples / np.abs(samples).max()


def wav(samples: np.ndarray[Any, Any]) -> bytes:
    """A file of samples in −1…1 at 48 kHz."""
    pcm = (np.clip(samples, -1.0, 1.0) * 32767).round().astype("<i2").tobytes()
    return wav_header(RATE_HZ, num_samples=len(pcm) // 2) + pcm
