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
END_FRAMES = 3
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
    squares = np.square(ours).sum(1)[:, None] + np.square(theirs).sum(1)[None] - 2 * ours @ theirs.T
    cost = np.sqrt(np.maximum(squares, 0))
    total = np.full((len(ours) + 1, len(theirs) + 1), np.inf)
    total[0, 0] = 0
    for i, row in enumerate(cost):
        # a row at once: entered at column k from above, then straight on, costs best[k] and the row's costs from k on
        best = np.minimum(total[i, :-1], total[i, 1:])
        ends = np.cumsum(row)
        total[i + 1, 1:] = ends + np.minimum.accumulate(best - (ends - row))
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


def speech_span(samples: Samples) -> slice:
    """From the first to the last 10 ms block within 40 dB of the loudest, in samples; empty if all is silence."""
    blocks = samples[: len(samples) // HOP * HOP].astype(np.float64).reshape(-1, HOP)
    rms = np.sqrt(np.square(blocks).mean(1))
    loud = np.flatnonzero(rms > max(rms.max(initial=0) / 100, 30))
    return slice(loud[0] * HOP, (loud[-1] + 1) * HOP) if len(loud) else slice(0, 0)


def speech_seconds(samples: Samples) -> float:
    span = speech_span(samples)
    return float(span.stop - span.start) / SAMPLE_RATE_HZ


def ending(ours: Samples, theirs: Samples) -> tuple[float, float]:
    """Seconds of (the teacher's speech missing at our end, our speech after the teacher's end).

    The two are warped onto each other. A last word that is cut leaves many of the teacher's frames for our last ones;
    babble leaves many of ours for the teacher's last ones.
    """
    a, b = ours[speech_span(ours)], theirs[speech_span(theirs)]
    if not len(a) or not len(b):
        return len(b) / SAMPLE_RATE_HZ, len(a) / SAMPLE_RATE_HZ
    rows, columns = align(cepstra(a), cepstra(b))
    last_row, last_column = (max(0, steps[-1] - END_FRAMES) for steps in (rows, columns))
    missing = np.ptp(columns[rows >= last_row]) - (rows[-1] - last_row)
    extra = np.ptp(rows[columns >= last_column]) - (columns[-1] - last_column)
    return float(max(0, missing)) * HOP / SAMPLE_RATE_HZ, float(max(0, extra)) * HOP / SAMPLE_RATE_HZ


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


def seam_jumps(samples: Samples, every: int, shift: int = 0) -> Floats:
    """`jumps_at` the seams of pieces of `every` samples, or `shift` samples after each."""
    return jumps_at(samples, np.arange(every + shift, len(samples) - 80, every))


def voice_features(samples: Samples) -> Floats:
    """Return features that distinguish voices: log pitch (median, spread), spectral tilt, means of the cepstra."""
    voiced = pitch(samples)
    tones = np.log(voiced) if len(voiced) else np.zeros(1)
    spectra = log_spectra(samples)
    loud = spectra[spectra.max(1) > spectra.max() - 40]
    tilt = loud[:, 4:40].mean() - loud[:, 80:280].mean()
    return np.concatenate(
        [[np.median(tones), tones.std(), tilt], cepstra(samples)[spectra.max(1) > spectra.max() - 40].mean(0)]
    )


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rho; equal values share their mean rank."""

    def ranks(values: Sequence[float]) -> Floats:
        _, index, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[index]

    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])
