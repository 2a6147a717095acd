"""Filling one step: who fits without making anybody late. Pure."""

from __future__ import annotations

import math

from realtime_tts.engine.core.request import DecodeItem, PrefillItem, Request, Status, StepPlan
from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.core.step_cost import StepCost


class StepDraft:
    """A step being filled; offer the most urgent requests first.

    `reach_s` is when the step must be over so that none of those chosen who can be on time becomes late;
    `prefill_reach_s` the same for running streams that may have to wait for the step after it, parked ones as well.
    """

    def __init__(self, config: SchedulerConfig, cost: StepCost, now: float, prefill_reach_s: float = math.inf) -> None:
        self._config, self._cost, self._now = config, cost, now
        self._prefill_reach_s = prefill_reach_s
        self._prefill: list[PrefillItem] = []
        self._decode: list[DecodeItem] = []
        self._num_positions = 0
        self._reach_s = math.inf
        self._fixed_s, self._per_stream_s, self._per_position_s = cost.weights
        self._caution = cost.caution

    def plan(self) -> StepPlan:
        """What was chosen."""
        return StepPlan(tuple(self._prefill), tuple(self._decode))

    def offer(self, request: Request, deadline_s: float, can_wait: bool = False) -> bool:
        """Choose the request, a prefill perhaps in part, unless that makes somebody late who is on time.

        Those later than `max_late_s` are always chosen, so that nobody starves. Who can wait joins where even a slow
        step is over in time.
        """
        num_streams, now = self._num_streams, self._now
        if num_streams >= self._config.max_step_streams:
            return False
        if request.status is Status.DECODE:
            if can_wait and num_streams >= self._config.full_streams:
                return False
            step_s = self._step_s(num_streams + 1) * (self._caution if can_wait else 1.0)
            if step_s > self._reach_s - now and num_streams and now - deadline_s <= self._config.max_late_s:
                return False
            self._decode.append(
                DecodeItem(request.request_id, request.slot, request.blocks, request.num_computed, request.num_patches)
            )
        else:
            chunk = self._chunk(request, deadline_s)
            if chunk == 0:
                return False
            start = request.num_computed
            is_last = start + chunk == request.num_prefill
            item_of = request.request_id, request.slot, request.blocks
            self._prefill.append(PrefillItem(*item_of, start, chunk, is_last, request.num_patches))
            self._num_positions += chunk
        if deadline_s < self._reach_s and now + self._step_s(num_streams + 1) <= deadline_s:
            self._reach_s = deadline_s
        return True

    def _step_s(self, num_streams: int) -> float:
        """As the cost estimates it, which has no news while a step is filled; asked for each stream."""
        return self._fixed_s + self._per_stream_s * num_streams + self._per_position_s * self._num_positions

    def _chunk(self, request: Request, deadline_s: float) -> int:
        """How many positions of a prefill this step can hold: the rest of it, or whole blocks; one if there is nothing
        else to do."""
        slack_s = min(self._reach_s, self._prefill_reach_s) - self._now
        affordable = self._cost.affordable_positions(self._num_streams + 1, slack_s) - self._num_positions
        if self._num_streams == 0 or self._now - deadline_s > self._config.max_late_s:
            affordable = max(affordable, self._config.block_size)
        wanted = request.num_prefill - request.num_computed
        chunk = min(wanted, affordable, self._config.max_prefill_positions - self._num_positions)
        if chunk < wanted:
            chunk -= chunk % self._config.block_size
        return max(0, chunk)

    @property
    def _num_streams(self) -> int:
        return len(self._prefill) + len(self._decode)
