"""Speech as a person might record it: by two of the starter voice's voices (recordings/*.ogg), whose text is `TEXT`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import av
import numpy as np
import soxr

from realtime_tts.audio.containers import wav_header

TEXT = "The harbour was quiet in the morning. Two boats came in, and a third one waited outside for the tide."
RATE_HZ = 48_000
_FOLDER = Path(__file__).parent / "recordings"


@lru_cache
def said(voice: str, pitch: float = 1.0) -> np.ndarray[Any, Any]:
    """`TEXT` in −1…1 at 48 kHz, at a usual level, by "heart" or "michael", played `pitch` times as fast."""
    with av.open(str(_FOLDER / f"{voice}.ogg")) as container:
        parts = [frame.to_ndarray()[0] for frame in container.decode(audio=0)]
    samples = soxr.resample(np.concatenate(parts).astype(np.float64), pitch * RATE_HZ, RATE_HZ)
    return 0.5 * samples / np.abs(samples).max()


def wav(samples: np.ndarray[Any, Any]) -> bytes:
    """A file of samples in −1…1 at 48 kHz."""
    pcm = (np.clip(samples, -1.0, 1.0) * 32767).round().astype("<i2").tobytes()
    return wav_header(RATE_HZ, num_samples=len(pcm) // 2) + pcm
