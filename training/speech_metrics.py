"""Measures of speech in numpy: pitch, length, clicks. Audio is int16 at 16 kHz."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 16_000
Samples = NDArray[np.int16]
Floats = NDArray[np.float64]
HOP = 160
WINDOW = 640
PERIOD = 320  # no voice's is longer


def frames(samples: Samples) -> Floats:
    """[num_frames, WINDOW], 40 ms every 10 ms."""
    padded = np.pad(samples.astype(np.float64) / 32768, (0, max(0, WINDOW - len(samples))))
    return np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]


def pitch_track(samples: Samples, low_hz: float = 60, high_hz: float = 400) -> Floats:
    """Hz of each frame: the autocorrelation's highest peak, where it exceeds half of the energy; nan elsewhere."""
    windowed = frames(samples)
    loud = np.sqrt(np.square(windowed).mean(1)) > 0.01
    track = np.full(len(windowed), np.nan)
    if not loud.any():
        return track
    windowed = windowed[loud]
    windowed = windowed - windowed.mean(1, keepdims=True)
    correlation = np.fft.irfft(np.abs(np.fft.rfft(windowed, 2 * WINDOW)) ** 2)
    lags = np.arange(int(SAMPLE_RATE_HZ / high_hz), int(SAMPLE_RATE_HZ / low_hz))
    # a window's autocorrelation falls with the lag merely because less of it overlaps
    scores = correlation[:, lags] / (correlation[:, :1] + 1e-12) / (1 - lags / WINDOW)
    # two periods correlate as well as one: of equals, the shorter
    best = (scores * (1 - 0.2 * lags / lags[-1])).argmax(1)
    voiced = scores[np.arange(len(best)), best] > 0.5
    track[loud] = np.where(voiced, SAMPLE_RATE_HZ / lags[best], np.nan)
    return track


def pitch(samples: Samples, low_hz: float = 60, high_hz: float = 400) -> Floats:
    """Hz of each voiced frame."""
    track = pitch_track(samples, low_hz, high_hz)
    return track[~np.isnan(track)]


def speech_span(samples: Samples) -> slice:
    """From the first to the last 10 ms block within 40 dB of the loudest, in samples; empty if all is silence."""
    blocks = samples[: len(samples) // HOP * HOP].astype(np.float64).reshape(-1, HOP)
    rms = np.sqrt(np.square(blocks).mean(1))
    loud = np.flatnonzero(rms > max(rms.max(initial=0) / 100, 30))
    return slice(loud[0] * HOP, (loud[-1] + 1) * HOP) if len(loud) else slice(0, 0)


def speech_seconds(samples: Samples) -> float:
    span = speech_span(samples)
    return float(span.stop - span.start) / SAMPLE_RATE_HZ


def jumps_at(samples: Samples, seams: Sequence[int] | NDArray[np.int64]) -> Floats:
    """At each seam (index of the first sample after it), by how much the step across it exceeds the steps around it,
    over the local RMS.

    A waveform moves from sample to sample anyhow; a click is a step larger than the largest within 20 ms, where the
    neighbouring pulses of a voice lie. Silent seams (RMS under -50 dB) are left out.
    """
    wave = samples.astype(np.float64) / 32768
    result = []
    for seam in seams:
        rms = np.sqrt(np.square(wave[max(0, seam - 80) : seam + 80]).mean())
        steps = np.abs(np.diff(wave[max(0, seam - PERIOD) : seam + PERIOD]))
        across = min(seam, PERIOD) - 1
        if rms > 0.003:
            result.append(max(0.0, steps[across] - np.delete(steps, across).max()) / rms)
    return np.array(result)
