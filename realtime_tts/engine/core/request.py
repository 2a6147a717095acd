"""What the scheduler knows about a request and a step. Pure."""

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
    tenant: whose it is; keys share the slots and the steps fairly.
    min_prefill: num_prefill without what continuity adds if there is room for it; known at the door.
    """

    request_id: str
    context_id: str
    min_prefill: int
    max_patches: int
    priority: int = 0
    paced: bool = True
    tenant: str = ""
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
