"""Results of streams, and their summary for a load. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

from realtime_tts.bench.figures import Spread
from realtime_tts.bench.player import PRE_BUFFERS_MS, Playback, mean_and_peak, play

GAVE_UP = "gave_up"  # error of streams that were cut off when their load was given up


@dataclasses.dataclass(slots=True)
class Heard:
    """One stream. Times in seconds since the moment at which its text was to be sent, however late it really was.

    scheduled_s: that moment, since the load began. chunks: (arrived, begins in the audio) of each piece of audio that
    is later, by its place, than all before it: no player stands still for another. num_chunks: all of them.
    last_s, position_s: when the last of them came, and where it begins.
    loud_s: position of the first sample above −50 dBFS in the audio; None if there is none, or it was not measured.
    ended_s: when its terminal message came. error: its code, or "" if all went well.
    cancelled_at_s: time of the barge-in; None: none.
    """

    scheduled_s: float = 0.0
    chunks: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    num_chunks: int = 0
    last_s: float = 0.0
    position_s: float = 0.0
    audio_s: float = 0.0
    loud_s: float | None = None
    ended_s: float = 0.0
    error: str = ""
    judged: bool = True
    cancelled_at_s: float | None = None

    def hear(self, arrived_s: float, begins_s: float) -> None:
        """Record a piece of audio."""
        self.num_chunks += 1
        self.last_s, self.position_s = arrived_s, begins_s
        if not self.chunks or arrived_s - begins_s > self.chunks[-1][0] - self.chunks[-1][1]:
            self.chunks.append((arrived_s, begins_s))

    @property
    def after_cancel_ms(self) -> float:
        """Return the time from the barge-in to the last of its audio, ms; 0 if none came after it."""
        assert self.cancelled_at_s is not None
        return max(0.0, (self.last_s - self.cancelled_at_s) * 1000)

    @property
    def first_s(self) -> float:
        """Time to the first audio; infinite if none came."""
        return self.chunks[0][0] if self.chunks else math.inf

    @property
    def audible_s(self) -> float | None:
        """Time to the first audible sample, for a player without a pre-buffer."""
        return None if self.loud_s is None else self.first_s + self.loud_s

    @property
    def rtf(self) -> float:
        """Time until everything was there over its length, the wait for the first audio included."""
        return self.ended_s / self.audio_s if self.audio_s else math.inf

    def playback(self, pre_buffer_s: float) -> Playback:
        """Simulate playback, see `play`; a stream without audio stalls forever."""
        return play(self.chunks, pre_buffer_s) if self.chunks else Playback(1, math.inf, math.inf)

    @property
    def span(self) -> tuple[float, float]:
        """From its text until the last of its audio has been played, or until it was interrupted, since the load
        began."""
        if not self.chunks or self.cancelled_at_s is not None:
            return self.scheduled_s, self.scheduled_s + self.ended_s
        heard_s = self.first_s + self.audio_s + self.playback(0.0).stalled_s
        return self.scheduled_s, self.scheduled_s + heard_s


@dataclasses.dataclass(frozen=True, slots=True)
class Bar:
    """Requirements on a load: a p95 of first audio, and the share of streams that never stall in a player with this
    pre-buffer."""

    first_audio_s: float = 0.1
    stall_free: float = 0.999
    pre_buffer_s: float = 0.0

    def holds(self, streams: Sequence[Heard]) -> bool:
        """Return True if the streams meet the bar; those without audio do not. No streams do not meet it."""
        if not streams:
            return False
        num_late = sum(stream.first_s > self.first_audio_s for stream in streams)
        num_stalled = sum(stream.playback(self.pre_buffer_s).num_stalls > 0 for stream in streams)
        return num_late <= self.allowed_late(len(streams)) and num_stalled <= self.allowed_stalled(len(streams))

    def allowed_late(self, num_streams: float) -> int:
        return math.floor(0.05 * num_streams + 1e-9)

    def allowed_stalled(self, num_streams: float) -> int:
        return math.floor((1 - self.stall_free) * num_streams + 1e-9)


class Watch:
    """Detects early that a load cannot meet its bar any more.

    Args:
        expected: how many judged streams there will be, on average.
    """

    def __init__(self, bar: Bar, expected: float) -> None:
        self._bar = bar
        # Twice what is allowed, and some: how many there are is drawn by chance.
        self._max_late = 2 * bar.allowed_late(expected) + 3
        self._max_stalled = 2 * bar.allowed_stalled(expected) + 3
        self._num_late = self._num_stalled = 0

    def ended(self, stream: Heard) -> None:
        """Count a stream that is over."""
        if stream.judged:
            self._num_late += stream.first_s > self._bar.first_audio_s
            self._num_stalled += stream.playback(self._bar.pre_buffer_s).num_stalls > 0

    def is_lost(self, running: Iterable[Heard], now_s: float) -> bool:
        """Return True at `now_s` since the load began, with these streams running, if the bar cannot be met. Streams
        without audio so far count as late."""
        limit_s = self._bar.first_audio_s
        late_now = sum(
            stream.judged and min(stream.first_s, now_s - stream.scheduled_s) > limit_s for stream in running
        )
        return self._num_late + late_now > self._max_late or self._num_stalled > self._max_stalled


def summary(streams: Sequence[Heard], window: tuple[float, float] | None = None) -> dict[str, Any]:
    """Return figures of the judged streams, ms and shares; `window`: also the concurrent listeners in it, over all
    streams."""
    judged = [stream for stream in streams if stream.judged]
    errors: dict[str, int] = {}
    for stream in judged:
        if stream.error:
            errors[stream.error] = errors.get(stream.error, 0) + 1
    result: dict[str, Any] = {
        "streams": len(judged),
        "errors": errors,
        "packets": sum(stream.num_chunks for stream in judged),
        "first_audio_ms": _ms([stream.first_s for stream in judged]),
        "audible_ms": _ms([stream.audible_s for stream in judged if stream.audible_s is not None]),
        "rtf": dataclasses.asdict(Spread.of([stream.rtf for stream in judged])),
        "stalls": {},
    }
    for pre_buffer_ms in PRE_BUFFERS_MS:
        played = [stream.playback(pre_buffer_ms / 1000) for stream in judged]
        num_stalled = sum(playback.num_stalls > 0 for playback in played)
        result["stalls"][str(pre_buffer_ms)] = {
            "streams": num_stalled,
            "share": num_stalled / len(judged) if judged else math.nan,
            "late": sum(playback.num_stalls for playback in played),
            "longest_ms": 1000 * max((playback.longest_stall_s for playback in played), default=0.0),
        }
    if window is not None:
        result["listening_mean"], result["listening_peak"] = mean_and_peak([stream.span for stream in streams], *window)
    return result


def _ms(values_s: Sequence[float]) -> dict[str, float]:
    return dataclasses.asdict(Spread.of([1000 * value for value in values_s]))
