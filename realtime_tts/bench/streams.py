"""Results of streams, a simulated player with its underruns, and the requirements on both. Pure."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

GAVE_UP = "gave_up"  # error of streams that had not ended by the deadline of their load
PRE_BUFFERS_MS = (0, 100, 200)
_TOLERANCE_S = 1e-3  # a delay below this is inaudible


def gaps(chunks: Sequence[tuple[float, float]], pre_buffer_s: float) -> list[tuple[float, float, float]]:
    """Play chunks as they came. Return the player's gaps: start, length and place in the audio of each, seconds.

    Args:
        chunks: (when it arrived, where in the audio it begins) of each, in order, seconds; at least one.
        pre_buffer_s: how long after the first arrival the player starts.
    """
    if not chunks:
        raise ValueError("nothing to play")
    found = []
    play_at_s = chunks[0][0] + pre_buffer_s - chunks[0][1]  # when the audio's beginning is played
    for arrived_s, begins_s in chunks:
        due_s = play_at_s + begins_s
        if arrived_s - due_s > _TOLERANCE_S:
            found.append((due_s, arrived_s - due_s, begins_s))
            play_at_s += arrived_s - due_s
    return found


def mean_and_peak(spans: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> tuple[float, int]:
    """Return how many of the spans (from, to) cover a moment of [begin_s, end_s): mean and maximum."""
    if end_s <= begin_s:
        raise ValueError("an empty window")
    inside = [(max(start_s, begin_s), min(stop_s, end_s)) for start_s, stop_s in spans]
    inside = [(start_s, stop_s) for start_s, stop_s in inside if stop_s > start_s]
    mean = sum(stop_s - start_s for start_s, stop_s in inside) / (end_s - begin_s)
    # A span that ends where another one starts does not overlap it.
    changes = sorted([(start_s, 1) for start_s, _ in inside] + [(stop_s, -1) for _, stop_s in inside])
    return mean, max(itertools.accumulate(change for _, change in changes), default=0)


@dataclasses.dataclass(slots=True)
class Heard:
    """One stream as a client received it. Times are seconds since its text was due, however late it was really sent.

    scheduled_s: when its text was due, since the load began. judged: results of the load count it; the others only keep
    the load steady before and after.
    chunks: (arrival, position in the audio) of the pieces of audio that can stall a player: each came later, for its
    position, than all before it. num_chunks: number of all pieces. last_s, position_s: arrival and position of the
    last one. audio_s: length of all audio, from the terminal message.
    terminal, ended_s: the server's last message, and when it came. error: its code, or "" if all went well.
    cancelled_at_s: time of the barge-in; None: none.
    written: for each piece of text from the second complete word on: when it was sent, and the number of characters in
    complete words until then. words: for each word where it begins in the audio, seconds, and in the text, characters.
    """

    scheduled_s: float = 0.0
    chunks: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    num_chunks: int = 0
    last_s: float = 0.0
    position_s: float = 0.0
    audio_s: float = 0.0
    ended_s: float = 0.0
    error: str = ""
    judged: bool = True
    cancelled_at_s: float | None = None
    terminal: dict[str, Any] = dataclasses.field(default_factory=dict)
    written: list[tuple[float, int]] = dataclasses.field(default_factory=list)
    words: list[tuple[float, int]] = dataclasses.field(default_factory=list)

    def hear(self, arrived_s: float, begins_s: float) -> None:
        """Record a piece of audio."""
        self.num_chunks += 1
        self.last_s, self.position_s = arrived_s, begins_s
        if not self.chunks or arrived_s - begins_s > self.chunks[-1][0] - self.chunks[-1][1]:
            self.chunks.append((arrived_s, begins_s))

    @property
    def after_cancel_ms(self) -> float:
        """Time from the barge-in to the last audio, ms; 0 if none came after it."""
        assert self.cancelled_at_s is not None
        return max(0.0, (self.last_s - self.cancelled_at_s) * 1000)

    @property
    def first_s(self) -> float:
        """Time to the first audio, seconds; infinite if none came."""
        return self.chunks[0][0] if self.chunks else math.inf

    def stalls_s(self, pre_buffer_s: float) -> list[float]:
        """Return the lengths of a player's `gaps`; a stream without audio stalls forever."""
        return [length_s for _, length_s, _ in gaps(self.chunks, pre_buffer_s)] if self.chunks else [math.inf]

    @property
    def span(self) -> tuple[float, float]:
        """Start and end, seconds since the load began: from the time its text was due until all audio was played, or
        until the barge-in."""
        if not self.chunks or self.cancelled_at_s is not None:
            return self.scheduled_s, self.scheduled_s + self.ended_s
        # Without a terminal message, the length of the audio is not known, but the place of its last piece.
        heard_s = self.first_s + (self.audio_s or self.position_s) + sum(self.stalls_s(0.0))
        return self.scheduled_s, self.scheduled_s + heard_s


@dataclasses.dataclass(frozen=True, slots=True)
class Bar:
    """Requirements on a load: a p95 of first audio, and the share of streams that never stall in a player with this
    pre-buffer."""

    first_audio_ms: float = 100.0
    stall_free: float = 0.999
    pre_buffer_ms: float = 0.0

    def holds(self, streams: Sequence[Heard]) -> bool:
        """Return True if the streams meet the bar. Streams without audio do not meet it, nor do no streams at all.
        Streams that failed, were cut off or given up count as stalled."""
        num_late = sum(1000 * stream.first_s > self.first_audio_ms for stream in streams)
        num_stalled = sum(bool(stream.error or stream.stalls_s(self.pre_buffer_ms / 1000)) for stream in streams)
        allowed_late, allowed_stalled = (share * len(streams) + 1e-9 for share in (0.05, 1 - self.stall_free))
        return bool(streams) and num_late <= allowed_late and num_stalled <= allowed_stalled


@dataclasses.dataclass(kw_only=True)
class Stalls:
    """Underruns of streams with one pre-buffer.

    num_streams, share: number and share of the streams that stalled. num_stalls, longest_ms: of all streams.
    """

    num_streams: int
    share: float
    num_stalls: int
    longest_ms: float

    @classmethod
    def of(cls, streams: Sequence[Heard], pre_buffer_ms: int) -> Stalls:
        played = [stream.stalls_s(pre_buffer_ms / 1000) for stream in streams]
        num_stalled = sum(map(bool, played))
        return cls(
            num_streams=num_stalled,
            share=num_stalled / len(played) if played else math.nan,
            num_stalls=sum(map(len, played)),
            longest_ms=1000 * max(itertools.chain.from_iterable(played), default=0.0),
        )
