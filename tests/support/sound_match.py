"""Position of a received piece of audio within a known speech."""

from __future__ import annotations

from typing import Any

import numpy as np

Samples = np.ndarray[Any, Any]

MATCH_RATE_HZ = 8_000  # is enough to know a sound again
LOUD = 300  # of int16
FITS = 0.7  # of the same sound through an encoder; other words are below
ROOM_RATE_HZ = 48_000


def decimated(samples: Samples, rate_hz: int) -> Samples:
    """At `MATCH_RATE_HZ`."""
    step = rate_hz // MATCH_RATE_HZ
    return samples[: len(samples) // step * step].reshape(-1, step).mean(axis=1)


def find(piece: Samples, spoken: Samples) -> tuple[float, float]:
    """Where a piece ends in `spoken`, in seconds, and how well it fits there: 1 is the same sound."""
    score = np.correlate(spoken, piece, mode="valid")
    energy = np.convolve(np.square(spoken), np.ones(len(piece)), mode="valid") * np.sum(np.square(piece))
    fits = score / np.sqrt(energy + 1.0)
    best = int(np.argmax(fits))
    return (best + len(piece)) / MATCH_RATE_HZ, float(fits[best])


def occurrences(piece: Samples, heard: Samples) -> list[float]:
    """Where a piece is in `heard`, in seconds: each place where it fits, once."""
    size = 1 << (len(heard) + len(piece)).bit_length()
    product = np.fft.rfft(heard, size) * np.conj(np.fft.rfft(piece, size))
    num_places = len(heard) - len(piece) + 1
    energy = np.concatenate([[0.0], np.cumsum(np.square(heard))])
    energies = (energy[len(piece) :] - energy[: -len(piece)]) * np.sum(np.square(piece))
    fits = np.fft.irfft(product, size)[:num_places] / np.sqrt(np.maximum(energies, 0.0) + 1.0)
    found: list[float] = []
    while fits.max() > FITS:
        best = int(np.argmax(fits))
        found.append(best / MATCH_RATE_HZ)
        fits[max(0, best - len(piece) // 2) : best + len(piece) // 2] = 0.0
    return found


def last_sounds(heard: Samples, rate_hz: int = ROOM_RATE_HZ) -> Samples:
    """The last third of a second that is loud, at `MATCH_RATE_HZ`: what came before may have gaps."""
    slow = decimated(heard, rate_hz)
    end = int(np.flatnonzero(np.abs(slow) > LOUD)[-1]) + 1
    return slow[max(0, end - MATCH_RATE_HZ // 3) : end]


def loud_pieces(heard: Samples, rate_hz: int = ROOM_RATE_HZ) -> list[Samples]:
    """Pieces of 0.15 s that are loud on average, at `MATCH_RATE_HZ`, one after the other."""
    slow = decimated(heard, rate_hz)
    length = round(0.15 * MATCH_RATE_HZ)
    pieces = slow[: len(slow) // length * length].reshape(-1, length)
    return [piece for piece in pieces if np.abs(piece).mean() > LOUD]
