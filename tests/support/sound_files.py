"""Encoded speech as another program, FFmpeg, reads it."""

from __future__ import annotations

import io

import av
import numpy as np


def read_sound_file(data: bytes) -> tuple[np.ndarray, int]:
    """[n] samples of one channel as float64 in -1…1, and their rate."""
    with av.open(io.BytesIO(data)) as container:
        frames = [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
        rate = container.streams.audio[0].rate
    samples = np.concatenate(frames)
    return samples / (32_768 if samples.dtype == np.int16 else 1), rate
