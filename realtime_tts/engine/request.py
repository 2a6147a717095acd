"""What the scheduler knows about a request, a context and a step. Pure."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence


class Status(enum.Enum):
    """WAITING → PREFILL → DECODE → FINISHED; any of them → FINISHED by cancel or failure.

    Parking is no status: a stream far enough ahead of its listener is passed over, step by step.
    """

    WAITING = "waiting"  # for its predecessor in the context, for blocks or for a slot
    PREFILL = "prefill"  # has blocks and a slot; part of its input is not computed yet
    DECODE = "decode"
    FINISHED = "finished"


class FinishReason(str, enum.Enum):
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclasses.dataclass(slots=True)
class Request:
    """One segment to be spoken.

    num_prefill and hashes are set by `Scheduler`'s `prepare` when the request's turn in its context has come.
    min_prefill: num_prefill without what continuity adds if there is room for it; known at the door.
    """

    request_id: str
    context_id: str
    min_prefill: int
    max_patches: int
    priority: int = 0
    paced: bool = True
    arrived_s: float = 0.0

    status: Status = Status.WAITING
    num_prefill: int = 0
    hashes: Sequence[bytes] = ()
    blocks: tuple[int, ...] = ()
    slot: int = -1
    num_cached: int = 0
    num_computed: int = 0  # positions whose KV is valid
    num_patches: int = 0
    started_s: float | None = None
    first_audio_s: float | None = None
    last_step_s: float = 0.0


def length_guard(num_text_tokens: int, num_chars: int, max_patches_per_char: float | None, limit: int) -> int:
    """The most patches a text may become; what runs on beyond is babble.

    Upstream's own guard (6 × tokens + 10), the checkpoint's tighter one by characters, and the caller's limit.
    """
    guards = [6 * num_text_tokens + 10, limit]
    if max_patches_per_char is not None:
        guards.append(int(max_patches_per_char * num_chars) + 10)
    return max(1, min(guards))


@dataclasses.dataclass(frozen=True, slots=True)
class PrefillItem:
    """Compute positions [start, start + num_positions) of a request's input; with `is_last` also its first patch."""

    request_id: str
    slot: int
    blocks: tuple[int, ...]
    start: int
    num_positions: int
    is_last: bool


@dataclasses.dataclass(frozen=True, slots=True)
class DecodeItem:
    """Feed the last patch at `position`, then make patch number `patch_index` (≥ 1)."""

    request_id: str
    slot: int
    blocks: tuple[int, ...]
    position: int
    patch_index: int


@dataclasses.dataclass(frozen=True, slots=True)
class StepPlan:
    prefill: tuple[PrefillItem, ...] = ()
    decode: tuple[DecodeItem, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.prefill or self.decode)

    @property
    def num_prefill_positions(self) -> int:
        return sum(item.num_positions for item in self.prefill)

    @property
    def request_ids(self) -> list[str]:
        """Everybody in the step."""
        return [item.request_id for item in self.prefill] + [item.request_id for item in self.decode]

    @property
    def speaking(self) -> list[str]:
        """Requests that get a patch from this step, in the order of the results."""
        return [item.request_id for item in self.prefill if item.is_last] + [item.request_id for item in self.decode]


@dataclasses.dataclass(frozen=True, slots=True)
class StepFlags:
    """What a step says of one request: the stop head's choice, and whether its numbers are finite."""

    stop: bool = False
    finite: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Finished:
    """A request that ended; its blocks and its slot are free again."""

    request: Request
    reason: FinishReason
    error_code: str = ""
    error_message: str = ""


@dataclasses.dataclass(slots=True)
class PlaybackClock:
    """How far a context's audio is ahead of its listener.

    Playback is taken to start with the first audio and to run in real time, waiting whenever it has caught up;
    reports correct it.
    """

    produced_s: float = 0.0
    played_s: float = 0.0
    paused: bool = False
    runs_dry_s: float = 0.0  # when the listener runs, or ran, out of audio; older means more urgent
    _stamp_s: float = 0.0

    def advance(self, now: float) -> None:
        """Let time pass up to `now`."""
        if not self.paused:
            self.played_s = min(self.produced_s, self.played_s + max(0.0, now - self._stamp_s))
        self._stamp_s = max(now, self._stamp_s)

    def produce(self, duration_s: float, now: float) -> None:
        """Count new audio."""
        self.advance(now)
        self.produced_s += duration_s
        self.runs_dry_s = now + self.produced_s - self.played_s

    def report(self, played_s: float, paused: bool, now: float) -> None:
        """Take over what the listener's side says; more than was made counts as all of it.

        A negative position means that nobody listens for now: with it the lead is such that nothing more is made.
        """
        self.advance(now)
        self.played_s = min(played_s, self.produced_s)
        self.paused = paused
        lead_s = self.produced_s - self.played_s
        self.runs_dry_s = now + lead_s if lead_s > 0 else min(now, self.runs_dry_s)  # dry stays dry since then

    def lead_s(self, now: float) -> float:
        """Seconds of audio made and not heard yet."""
        self.advance(now)
        return self.produced_s - self.played_s
