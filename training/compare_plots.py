"""Spectrogram and pitch of one text as several systems say it."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

from training.judges import RATE_HZ, Audio
from training.speech_metrics import HOP, WINDOW, pitch_track

mpl.use("Agg")
from matplotlib import pyplot as plt

MAX_PITCH_HZ = 500


def plot_recordings(text: str, recordings: dict[str, Audio], path: Path) -> None:
    """Draw a row for each recording (16 kHz): its spectrogram, and over it the pitch with an axis on the right."""
    figure, rows = plt.subplots(
        len(recordings), 1, figsize=(12, 3 * len(recordings)), sharex=True, squeeze=False, constrained_layout=True
    )
    for axis, (title, audio) in zip(rows[:, 0], recordings.items(), strict=True):
        padded = np.pad(audio, (0, max(0, WINDOW - len(audio))))
        axis.specgram(padded + 1e-6, NFFT=512, Fs=RATE_HZ, noverlap=384, vmin=-130, vmax=-40)
        axis.set(title=title, ylabel="Hz")
        track = pitch_track((padded.clip(-1, 1) * 32767).astype(np.int16))
        right = axis.twinx()
        right.plot((np.arange(len(track)) * HOP + WINDOW / 2) / RATE_HZ, track, ".", color="white", markersize=3)
        right.set(ylabel="pitch, Hz", ylim=(0, MAX_PITCH_HZ))
    figure.suptitle(text)
    rows[-1, 0].set_xlabel("seconds")
    figure.savefig(path, dpi=70)
    plt.close(figure)
