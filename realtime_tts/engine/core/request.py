"""The scheduler's data about requests and steps. Pure."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import NamedTuple

from realtime_tts.engine.core.step_cost import StepSize
from realtime_tts.engine.core.text_supply import TextSupply


class Status(enum.Enum):
    """WAITING → PREFILL ⇄ DECODE → FINISHED; any of them → FINISHED by cancel or failure.

    A request returns to PREFILL when it takes in more text. Parking and waiting for text are not statuses: a stream
    that is far enough ahead of its listener, or close to the end of the text so far, is skipped in each step.
    """

    WAITING = "waiting"  # for its predecessor in the context, for its first text, for blocks or for a slot
    PREFILL = "prefill"  # has blocks and a slot; part of its input is not computed yet
    DECODE = "decode"
    FINISHED = "finished"


class FinishReason(enum.StrEnum):
    """Reason of a request's end; the values are those of `frames.Done`, and `failed`."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclasses.dataclass(slots=True)
class Request:
    """One segment to be spoken.

    num_prefill, num_kept and hashes are set by `Scheduler`'s `prepare` when the request's turn in its context has come,
    and again when it takes in more text. num_prefill: positions of the input, including patches made so far. num_kept:
    leading positions that did not change.
    speed: playback speed relative to the generated audio.
    tenant: owner of the request; tenants share slots and steps fairly.
    work: cost of one patch, in patches with the usual number of flow steps. At least 1, since the LMs and the decoder
    cost the same. own_flow_steps: its number of flow steps if that is not the usual one; else 0.
    min_prefill: num_prefill of the text alone, without what continuity adds if there is room; known on admission.
    max_positions: positions for the longest that an open text is expected to become, without continuity; 0: the present
    length. num_carried: positions that continuity adds; 0 until the request is laid out.
    is_draft: no listener waits for it yet; it has a context of its own, and its text is final.
    may_recall: its next patch may be in memory. num_remembered: patches that were sent from memory, its first ones; the
    device makes the others.
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
    own_flow_steps: int = 0
    arrived_s: float = 0.0
    max_positions: int = 0
    is_draft: bool = False
    supply: TextSupply = dataclasses.field(default_factory=TextSupply)

    status: Status = Status.WAITING
    num_prefill: int = 0
    num_kept: int = 0
    num_carried: int = 0
    num_laid_out: int = 0  # this request's own patches in the input
    hashes: Sequence[bytes] = ()
    blocks: tuple[int, ...] = ()
    slot: int = -1
    num_cached: int = 0
    num_computed: int = 0  # positions whose KV is valid
    num_patches: int = 0
    may_recall: bool = False
    num_remembered: int = 0
    num_extensions: int = 0
    num_extended_positions: int = 0
    num_text_waits: int = 0  # this and the next three: set by `TextWaits`
    text_wait_s: float = 0.0  # time for which its listener heard nothing because of them
    waits_since_s: float | None = None  # for text
    resumed_s: float | None = None  # when text last ended a wait
    started_s: float | None = None
    last_step_s: float = 0.0

    @property
    def is_plain(self) -> bool:
        """True if its next patch needs no text, no prefill and no flow steps of its own, and its listener is paced."""
        is_steady = self.status is Status.DECODE and self.waits_since_s is None and self.supply.may_stop
        return is_steady and self.paced and not self.own_flow_steps

    @property
    def has_spoken(self) -> bool:
        return self.num_patches > 0

    def may_stop(self, min_patches: int) -> bool:
        """Return whether a stop in the current patch counts: only after patch index `min_patches`, and after the model
        has read the whole text."""
        return self.supply.may_stop and self.num_patches > min_patches


class StepItem(NamedTuple):
    """A request's part in a step: compute positions [start, start + num_positions). With `is_last`, also make patch
    number `patch_index`. first_patch: number of the first patch that the device makes; not 0 after remembered ones."""

    request_id: str
    slot: int
    blocks: tuple[int, ...]
    start: int
    num_positions: int
    is_last: bool
    patch_index: int
    first_patch: int = 0

    @property
    def begins(self) -> bool:
        """True if the stream's state on the device begins with this patch."""
        return self.is_last and self.patch_index == self.first_patch

    @property
    def end(self) -> int:
        """The position after the last one that is computed."""
        return self.start + self.num_positions


@dataclasses.dataclass(frozen=True, slots=True)
class StepPlan:
    """One step.

    prefill: requests whose input is not all computed. decode: those whose last patch is fed back, at one position.
    extra_work: its requests' work beyond 1 each. own_flow_steps: flow steps of the group whose number is not the
    default; 0: no such group.
    """

    prefill: tuple[StepItem, ...] = ()
    decode: tuple[StepItem, ...] = ()
    extra_work: float = 0.0
    own_flow_steps: int = 0

    def __bool__(self) -> bool:
        return bool(self.prefill or self.decode)

    @property
    def size(self) -> StepSize:
        """Quantities that determine the step's duration."""
        work = len(self.prefill) + len(self.decode) + self.extra_work
        return StepSize(work, sum(item.num_positions for item in self.prefill), self.own_flow_steps)

    @property
    def items(self) -> list[StepItem]:
        """All parts of the step."""
        return [*self.prefill, *self.decode]

    @property
    def request_ids(self) -> list[str]:
        """Ids of all requests in the step."""
        return [item.request_id for item in self.items]

    @property
    def speaking(self) -> list[str]:
        """Requests that get a patch from this step, in the order of the results."""
        return [item.request_id for item in self.items if item.is_last]


class StepFlags(NamedTuple):
    """A step's result for one request: the stop head's decision, whether its values are finite, and how many seconds of
    its patch are not sent."""

    stop: bool = False
    finite: bool = True
    left_out_s: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Finished:
    """A request that ended. Its blocks and its slot are free again."""

    request: Request
    reason: FinishReason
    error_code: str = ""
    error_message: str = ""
