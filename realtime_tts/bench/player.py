"""Simulated player: starts a while after the first audio, and stalls whenever it has no audio. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

PRE_BUFFERS_MS = (0, 100, 200)
_TOLERANCE_S = 1e-3  # a delay below this is inaudible


@dataclasses.dataclass(frozen=True, slots=True)
class Playback:
    """Playback figures of a stream. Times in seconds."""

    num_stalls: int
    longest_stall_s: float
    stalled_s: float


def play(chunks: Iterable[tuple[float, float]], pre_buffer_s: float) -> Playback:
    """Play chunks as they came.

    Args:
        chunks: (when it arrived, where in the audio it begins) of each, in order, seconds; at least one.
        pre_buffer_s: how long after the first arrival the player starts.
    """
    play_at_s: float | None = None  # when the audio's beginning is played
    num_stalls, longest_s, stalled_s = 0, 0.0, 0.0
    for arrived_s, begins_s in chunks:
        if play_at_s is None:
            play_at_s = arrived_s + pre_buffer_s - begins_s
        late_s = arrived_s - (play_at_s + begins_s)
        if late_s > _TOLERANCE_S:
            num_stalls, longest_s, stalled_s = num_stalls + 1, max(longest_s, late_s), stalled_s + late_s
            play_at_s += late_s
    if play_at_s is None:
        raise ValueError("nothing to play")
    return Playback(num_stalls, longest_s, stalled_s)


def mean_and_peak(spans: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> tuple[float, int]:
    """Return how many of the spans (from, to) cover a moment of [begin_s, end_s): mean and maximum."""
    if end_s <= begin_s:
        raise ValueError("an empty window")
    inside = [(max(start_s, begin_s), min(stop_s, end_s)) for start_s, stop_s in spans]
    inside = [(start_s, stop_s) for start_s, stop_s in inside if stop_s > start_s]
    mean = sum(stop_s - start_s for start_s, stop_s in inside) / (end_s - begin_s)
    # A span that ends where another one starts does not overlap it.
    changes = sorted([(start_s, 1) for start_s, _ in inside] + [(stop_s, -1) for _, stop_s in inside])
    count = peak = 0
    for _, change in changes:
        count += change
        peak = max(peak, count)
    return mean, peak
