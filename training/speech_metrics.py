"""Measures of speech in numpy: pitch, spectral envelope, distances to a teacher, clicks. Audio is int16 at 16 kHz."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from training.flite import SAMPLE_RATE_HZ
from training.spectral import mel_filters

Samples = NDArray[np.int16]
Floats = NDArray[np.float64]
HOP = 160
WINDOW = 640
NUM_CEPSTRA = 25


def frames(samples: Samples) -> Floats:
    """[num_frames, WINDOW], 40 ms every 10 ms."""
    padded = np.pad(samples.astype(np.float64) / 32768, (0, max(0, WINDOW - len(samples))))
    return np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]


def pitch(samples: Samples, low_hz: float = 60, high_hz: float = 400) -> Floats:
    """Hz of each voiced frame: the autocorrelation's highest peak, where it exceeds half of the energy."""
    windowed = frames(samples)
    windowed = windowed[np.sqrt(np.square(windowed).mean(1)) > 0.01]
    if not len(windowed):
        return np.zeros(0)
    windowed = windowed - windowed.mean(1, keepdims=True)
    correlation = np.fft.irfft(np.abs(np.fft.rfft(windowed, 2 * WINDOW)) ** 2)
    lags = np.arange(int(SAMPLE_RATE_HZ / high_hz), int(SAMPLE_RATE_HZ / low_hz))
    # a window's autocorrelation falls with the lag merely because less of it overlaps
    scores = correlation[:, lags] / (correlation[:, :1] + 1e-12) / (1 - lags / WINDOW)
    # two periods correlate as well as one: of equals, the shorter
    best = (scores * (1 - 0.2 * lags / lags[-1])).argmax(1)
    return SAMPLE_RATE_HZ / lags[best][scores[np.arange(len(best)), best] > 0.5]


def log_spectra(samples: Samples) -> Floats:
    """[num_frames, WINDOW // 2 + 1], dB."""
    return 10 * np.log10(np.abs(np.fft.rfft(frames(samples) * np.hanning(WINDOW))) ** 2 + 1e-7)


def cepstra(samples: Samples) -> Floats:
    """Mel cepstra [num_frames, NUM_CEPSTRA], without the 0th."""
    power = np.abs(np.fft.rfft(frames(samples) * np.hanning(WINDOW))) ** 2
    mel = np.log(power @ mel_filters(40, WINDOW).numpy().T.astype(np.float64) + 1e-7)
    index = np.arange(40)
    basis = np.cos(np.pi / 40 * (index[:, None] + 0.5) * np.arange(1, NUM_CEPSTRA + 1)) * np.sqrt(2 / 40)
    return mel @ basis


def align(ours: Floats, theirs: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Dynamic time warping of two feature sequences: the frames paired by the cheapest path."""
    cost = np.sqrt(np.square(ours[:, None] - theirs[None]).sum(-1))
    total = np.full((len(ours) + 1, len(theirs) + 1), np.inf)
    total[0, 0] = 0
    for i in range(len(ours)):
        for j in range(len(theirs)):
            total[i + 1, j + 1] = cost[i, j] + min(total[i, j], total[i, j + 1], total[i + 1, j])
    path = []
    i, j = len(ours), len(theirs)
    while i and j:
        path.append((i - 1, j - 1))
        i, j = min(((i - 1, j - 1), (i - 1, j), (i, j - 1)), key=lambda cell: total[cell])
    rows, columns = np.array(path[::-1]).T
    return rows, columns


def distances(ours: Samples, theirs: Samples, *, aligned: bool) -> tuple[float, float]:
    """(mel-cepstral distance, log-spectral distance), dB, over the teacher's loud frames; warped unless `aligned`."""
    a, b = cepstra(ours), cepstra(theirs)
    if aligned:
        rows = columns = np.arange(min(len(a), len(b)))
    else:
        rows, columns = align(a, b)
    mcd = 10 / np.log(10) * np.sqrt(2 * np.square(a[rows] - b[columns]).sum(1))
    spectra = log_spectra(ours)[rows], log_spectra(theirs)[columns]
    lsd = np.sqrt(np.square(spectra[0] - spectra[1]).mean(1))
    loud = spectra[1].max(1) > spectra[1].max() - 40
    return float(mcd[loud].mean()), float(lsd[loud].mean())


def speech_seconds(samples: Samples) -> float:
    """From the first to the last 10 ms block within 40 dB of the loudest."""
    blocks = samples[: len(samples) // HOP * HOP].astype(np.float64).reshape(-1, HOP)
    rms = np.sqrt(np.square(blocks).mean(1))
    loud = np.flatnonzero(rms > max(rms.max() / 100, 30))
    return 0.0 if not len(loud) else (loud[-1] + 1 - loud[0]) * HOP / SAMPLE_RATE_HZ


def seam_jumps(samples: Samples, every: int) -> Floats:
    """At each seam, by how much the step across it exceeds the steps around it, over the local RMS.

    A waveform moves from sample to sample anyhow; a click is a step larger than its neighbours' largest. Silent seams
    (RMS under -50 dB) are left out.
    """
    wave = samples.astype(np.float64) / 32768
    result = []
    for seam in range(every, len(wave) - 80, every):
        local = wave[seam - 80 : seam + 80]
        rms = np.sqrt(np.square(local).mean())
        steps = np.abs(np.diff(local))
        if rms > 0.003:
            result.append(max(0.0, steps[79] - np.delete(steps, 79).max()) / rms)
    return np.array(result)


def voice_features(samples: Samples) -> Floats:
    """What tells voices apart: log pitch (median, spread), spectral tilt, means of the cepstra."""
    voiced = pitch(samples)
    tones = np.log(voiced) if len(voiced) else np.zeros(1)
    spectra = log_spectra(samples)
    loud = spectra[spectra.max(1) > spectra.max() - 40]
    tilt = loud[:, 4:40].mean() - loud[:, 80:280].mean()
    return np.concatenate(
        [[np.median(tones), tones.std(), tilt], cepstra(samples)[spectra.max(1) > spectra.max() - 40].mean(0)]
    )


def formant_scale(samples: Samples, template: Floats) -> float:
    """How far the spectral envelope is stretched against `template` (an `envelope`): above 1, a shorter vocal tract."""
    own = envelope(samples)
    shifts = np.arange(-50, 51)
    core = slice(60, -60)
    scores = [np.corrcoef(template[core], np.roll(own, -shift)[core])[0, 1] for shift in shifts]
    return float(np.exp(shifts[int(np.argmax(scores))] * _LOG_STEP))


_LOG_GRID = np.linspace(np.log(250), np.log(5000), 500)
_LOG_STEP = float(_LOG_GRID[1] - _LOG_GRID[0])


def envelope(samples: Samples) -> Floats:
    """Mean smoothed log spectrum of the loud frames on a logarithmic frequency axis [500]."""
    spectra = log_spectra(samples)
    loud = spectra[spectra.max(1) > np.median(spectra.max(1))]
    cepstrum = np.fft.irfft(loud)
    cepstrum[:, 26:-25] = 0
    smooth = np.fft.rfft(cepstrum).real.mean(0)
    return np.interp(np.exp(_LOG_GRID), np.arange(len(smooth)) * SAMPLE_RATE_HZ / WINDOW, smooth)


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rho; equal values share their mean rank."""

    def ranks(values: Sequence[float]) -> Floats:
        _, index, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[index]

    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])
