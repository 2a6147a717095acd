"""Filling one step with requests that fit without making another one late. Pure."""

from __future__ import annotations

import math
from typing import NamedTuple

from realtime_tts.engine.core.block_pool import BLOCK_SIZE
from realtime_tts.engine.core.request import Request, Status, StepItem, StepPlan
from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.core.step_cost import StepCost


class Offer(NamedTuple):
    """A stream that may join a step. Offers sort by urgency: first the tight ones, then by deadline.

    is_not_tight: False for a tight stream, which is on time only if it joins this step; False sorts first.
    deadline_s: time at which its patch is due.
    number: decides between equal deadlines; no other offer has it.
    can_wait: the stream is on time even if it joins the next step.
    yields: its step must be short, as long as the deadline is not missed by much.
    """

    is_not_tight: bool
    deadline_s: float
    number: int
    request: Request
    can_wait: bool
    yields: bool = False

    @property
    def is_late(self) -> bool:
        """True if the stream has spoken and its patch is late even in this step."""
        return self.is_not_tight and not self.can_wait and self.request.has_spoken


class StepBuilder:
    """A step being filled. Offer the most urgent requests first.

    `reach_s` is the time by which the step must be over, so that no chosen request that can be on time becomes late.
    `prefill_reach_s` is the same for running streams, parked ones included, that may have to wait for the next step.
    `least_reach_s`: no stream requires that the step is over earlier.

    Attributes:
        num_streams: number of requests so far. duration_s: estimated duration of the step so far.
    """

    def __init__(
        self, config: SchedulerConfig, cost: StepCost, now: float, prefill_reach_s: float, least_reach_s: float
    ) -> None:
        self._config, self._cost, self._now = config, cost, now
        self._max_streams = config.max_step_streams
        self._prefill_reach_s = prefill_reach_s
        self._prefill: list[StepItem] = []
        self._decode: list[StepItem] = []
        self.num_streams = self._num_positions = 0
        self._extra_work = 0.0  # beyond 1 for each stream
        self._own_flow_steps = 0
        self._reach_s = math.inf
        self._least_reach_s = least_reach_s
        # A copy of the cost's weights, which do not change while a step is filled; read for each stream.
        fixed_s, self._per_stream_s, self._per_position_s, self._per_own_flow_step_s = cost.weights
        self.duration_s = fixed_s
        self._upper_factor = cost.upper_factor

    @property
    def is_full(self) -> bool:
        """True if only requests that cannot wait may still join."""
        return self.num_streams + self._extra_work >= self._config.full_streams

    def plan(self) -> StepPlan:
        """Return the step with the chosen requests."""
        return StepPlan(tuple(self._prefill), tuple(self._decode), self._extra_work, self._own_flow_steps)

    def offer(self, offer: Offer) -> None:
        """Add a stream, unless that makes an on-time one late. If its input is not all computed, perhaps a part of it.

        Requests later than `max_late_s` are always added, so that none starves. One that can wait joins if even
        a slow step ends in time; with `ample_lead_s`, only up to half of a full step. One that yields joins
        only if the step stays within `first_audio_s`. A step has at most one group whose number of flow steps
        is not the usual one.
        """
        config, num_streams, now = self._config, self.num_streams, self._now
        _, deadline_s, _, request, can_wait, yields = offer
        if request.status is not Status.DECODE:
            self._offer_prefill(request, deadline_s, yields)
            return
        full_streams = config.full_streams / (2 if deadline_s - now > config.ample_lead_s else 1)
        if num_streams >= self._max_streams or (can_wait and num_streams + self._extra_work >= full_streams):
            return
        if request.own_flow_steps and not self._fits_group(request):
            return
        added_s = self._added_s(request)
        step_s = (self.duration_s + added_s) * (self._upper_factor if can_wait else 1.0)
        limit_s = min(self._reach_s - now, config.first_audio_s if yields else math.inf)
        if step_s > limit_s and num_streams and now - deadline_s <= config.max_late_s:
            return
        self._take(request, deadline_s, added_s)

    def _offer_prefill(self, request: Request, deadline_s: float, yields: bool) -> None:
        if self.num_streams >= self._max_streams:
            return
        chunk = self._chunk(request, self._affordable(request, deadline_s))
        is_last = request.num_computed + chunk == request.num_prefill
        if chunk == 0 or (is_last and not self._fits_group(request)):
            return
        added_s = self._added_s(request)
        step_s = self.duration_s + added_s
        is_too_long = is_last and yields and step_s > self._config.first_audio_s and self.num_streams > 0
        if is_too_long and self._now - deadline_s <= self._config.max_late_s:
            return
        self._take(request, deadline_s, added_s, chunk, is_last=is_last)

    def takes_draft(self, request: Request, limit_s: float) -> bool:
        """Return whether a patch of a draft, or one block of its input, keeps the step within `limit_s` and makes no
        stream late. The first request of a step always fits, unless it makes a parked stream late."""
        added_s = self._added_s(request) + self._per_position_s * self._draft_positions(request)
        ends_s = self._now + self.duration_s + added_s
        is_soon = not self.num_streams or self.duration_s + added_s <= limit_s
        return self._fits_group(request) and is_soon and ends_s <= min(self._reach_s, self._prefill_reach_s)

    def offer_draft(self, request: Request, limit_s: float) -> None:
        """Add a draft that `takes_draft` has accepted: one patch, or as many blocks of its input as fit `limit_s`."""
        added_s = self._added_s(request)
        if request.status is Status.DECODE:
            self._take(request, math.inf, added_s)
            return
        spare_s = limit_s - self.duration_s - added_s
        affordable = max(BLOCK_SIZE, int(spare_s / max(self._per_position_s, 1e-9)))
        if chunk := self._chunk(request, affordable):
            is_last = request.num_computed + chunk == request.num_prefill
            self._take(request, math.inf, added_s, chunk, is_last=is_last)

    def _draft_positions(self, request: Request) -> int:
        """Return the fewest positions of its input that a step can compute, if it is not all computed."""
        if request.status is Status.DECODE:
            return 0
        if request.status is Status.WAITING:
            return BLOCK_SIZE
        return min(BLOCK_SIZE, request.num_prefill - request.num_computed)

    def _fits_group(self, request: Request) -> bool:
        return not (self._own_flow_steps and request.own_flow_steps) or request.own_flow_steps == self._own_flow_steps

    def _added_s(self, request: Request) -> float:
        """Return the time that the request adds to the step, without prefill positions."""
        added_s = self._per_stream_s * request.work
        return added_s if self._own_flow_steps else added_s + self._per_own_flow_step_s * request.own_flow_steps

    def _take(
        self, request: Request, deadline_s: float, added_s: float, chunk: int = 0, *, is_last: bool = True
    ) -> None:
        """Add a request's part: `chunk` positions of its input, or, for 0, the position of its last patch."""
        item_of = request.request_id, request.slot, request.blocks
        patches = request.num_patches, request.num_remembered
        items = self._prefill if chunk else self._decode
        items.append(StepItem(*item_of, request.num_computed, chunk or 1, is_last, *patches))
        self.duration_s += (added_s if is_last else self._per_stream_s) + self._per_position_s * chunk
        self.num_streams += 1
        self._num_positions += chunk
        if is_last:
            self._extra_work += request.work - 1
            self._own_flow_steps = self._own_flow_steps or request.own_flow_steps
        if deadline_s < self._reach_s and self._now + self.duration_s <= deadline_s:
            self._reach_s = max(deadline_s, self._least_reach_s)

    def _affordable(self, request: Request, deadline_s: float) -> int:
        """Return how many positions of a prefill leave all chosen streams on time. At least one block if the step is
        empty or the request is later than `max_late_s`."""
        slack_s = min(self._reach_s, self._prefill_reach_s) - self._now
        work = self.num_streams + self._extra_work + request.work
        own_flow_steps = self._own_flow_steps or request.own_flow_steps
        affordable = self._cost.affordable_positions(work, slack_s, own_flow_steps) - self._num_positions
        if self.num_streams == 0 or self._now - deadline_s > self._config.max_late_s:
            affordable = max(affordable, BLOCK_SIZE)
        return affordable

    def _chunk(self, request: Request, affordable: int) -> int:
        """Return how many of the affordable positions of a prefill this step takes: all that are left, or whole
        blocks."""
        wanted = request.num_prefill - request.num_computed
        chunk = min(wanted, affordable, self._config.max_prefill_positions - self._num_positions)
        if chunk < wanted:
            chunk -= chunk % BLOCK_SIZE
        return max(0, chunk)
