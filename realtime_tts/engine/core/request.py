"""What the scheduler knows about a request and a step. Pure."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import NamedTuple

from realtime_tts.engine.core.step_cost import StepSize
from realtime_tts.engine.core.text_supply import TextSupply


class Status(enum.Enum):
    """WAITING → PREFILL ⇄ DECODE → FINISHED; any of them → FINISHED by cancel or failure.

    Back to PREFILL goes who takes in more text. To be parked is no status, nor to wait for text: a stream far enough
    ahead of its listener, or close to the end of what is written, is passed over, step by step.
    """

    WAITING = "waiting"  # for its predecessor in the context, for its first words, for blocks or for a slot
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

    num_prefill, num_kept and hashes are set by `Scheduler`'s `prepare` when the request's turn in its context has come,
    and again when it takes in more text. num_prefill: positions of the input, patches made so far among them; num_kept:
    those in front that are as they were.
    speed: how much faster than it is made its listener hears it.
    tenant: whose it is; keys share the slots and the steps fairly.
    work: what a patch of it costs, in patches with the usual number of flow steps; 1 at least, since the LMs and the
    decoder cost the same. own_steps: number of its flow steps where that is not the usual one; else 0.
    min_prefill: num_prefill of the text alone, without what continuity adds if there is room for it; known at the door.
    max_positions: for the longest that an open text may become, without continuity either; 0: as it is.
    """

    request_id: str
    context_id: str
    min_prefill: int
    max_patches: int
    priority: int = 0
    paced: bool = True
    speed: float = 1.0
    tenant: str = ""
    work: float = 1.0
    own_steps: int = 0
    arrived_s: float = 0.0
    max_positions: int = 0
    supply: TextSupply = dataclasses.field(default_factory=TextSupply)

    status: Status = Status.WAITING
    num_prefill: int = 0
    num_kept: int = 0
    num_laid_out: int = 0  # patches of its own that the input holds
    hashes: Sequence[bytes] = ()
    blocks: tuple[int, ...] = ()
    slot: int = -1
    num_cached: int = 0
    num_computed: int = 0  # positions whose KV is valid
    num_patches: int = 0
    num_extensions: int = 0
    num_extended_positions: int = 0
    num_text_waits: int = 0
    text_wait_s: float = 0.0
    waits_since_s: float | None = None  # for text
    resumed_s: float | None = None  # when text last ended a wait
    started_s: float | None = None
    first_audio_s: float | None = None
    last_step_s: float = 0.0

    @property
    def has_spoken(self) -> bool:
        return self.num_patches > 0

    def may_stop(self, min_patches: int) -> bool:
        """Whether a stop in the patch that is being made counts: not up to the step index `min_patches`, nor before the
        model has read the text to its end."""
        return self.supply.may_stop and self.num_patches > min_patches


class PrefillItem(NamedTuple):
    """Compute positions [start, start + num_positions) of a request's input; with `is_last` also a patch, number
    `patch_index`: its first, unless the input holds patches made so far and was made anew for more text."""

    request_id: str
    slot: int
    blocks: tuple[int, ...]
    start: int
    num_positions: int
    is_last: bool
    patch_index: int = 0


class DecodeItem(NamedTuple):
    """Feed the last patch at `position`, then make patch number `patch_index` (≥ 1)."""

    request_id: str
    slot: int
    blocks: tuple[int, ...]
    position: int
    patch_index: int


@dataclasses.dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. extra_work: of its requests beyond 1 each. own_steps: flow steps of the group in it that has another
    number than the usual one; 0: there is none."""

    prefill: tuple[PrefillItem, ...] = ()
    decode: tuple[DecodeItem, ...] = ()
    extra_work: float = 0.0
    own_steps: int = 0

    def __bool__(self) -> bool:
        return bool(self.prefill or self.decode)

    @property
    def num_prefill_positions(self) -> int:
        return sum(item.num_positions for item in self.prefill)

    @property
    def size(self) -> StepSize:
        """What its cost depends on."""
        work = len(self.prefill) + len(self.decode) + self.extra_work
        return StepSize(work, self.num_prefill_positions, self.own_steps)

    @property
    def num_extended_positions(self) -> int:
        """Of those the ones that are computed for streams that speak already."""
        return sum(item.num_positions for item in self.prefill if item.patch_index)

    @property
    def request_ids(self) -> list[str]:
        """Everybody in the step."""
        return [item.request_id for item in self.prefill] + [item.request_id for item in self.decode]

    @property
    def speaking(self) -> list[str]:
        """Requests that get a patch from this step, in the order of the results."""
        return [item.request_id for item in self.prefill if item.is_last] + [item.request_id for item in self.decode]


class StepFlags(NamedTuple):
    """What a step says of one request: the stop head's choice, whether its numbers are finite, and how much of its
    patch is not sent."""

    stop: bool = False
    finite: bool = True
    left_out_s: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Finished:
    """A request that ended; its blocks and its slot are free again."""

    request: Request
    reason: FinishReason
    error_code: str = ""
    error_message: str = ""
