"""Position of a received piece of audio within a known speech."""

from __future__ import annotations

from typing import Any

import numpy as np

Samples = np.ndarray[Any, Any]

MATCH_RATE_HZ = 8_000  # is enough to know a sound again
LOUD = 300  # of int16
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
