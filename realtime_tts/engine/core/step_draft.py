"""Filling one step: who fits without making anybody late. Pure."""

from __future__ import annotations

import math

from realtime_tts.engine.core.request import DecodeItem, PrefillItem, Request, StepPlan
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
        self._num_streams = self._num_positions = 0
        self._reach_s = math.inf
        # As the cost estimates a step, which has no news while one is filled; asked for each stream.
        fixed_s, self._per_stream_s, self._per_position_s = cost.weights
        self._step_s = fixed_s  # so far
        self._caution = cost.caution

    @property
    def is_full(self) -> bool:
        """Whether nobody joins who can wait."""
        return self._num_streams >= self._config.full_streams

    def plan(self) -> StepPlan:
        """What was chosen."""
        return StepPlan(tuple(self._prefill), tuple(self._decode))

    def offer(self, request: Request, deadline_s: float, can_wait: bool = False) -> bool:
        """Choose a request that speaks, unless that makes somebody late who is on time.

        Those later than `max_late_s` are always chosen, so that nobody starves. Who can wait joins where even a slow
        step is over in time.
        """
        config, num_streams, now = self._config, self._num_streams, self._now
        if num_streams >= (config.full_streams if can_wait else config.max_step_streams):
            return False
        step_s = (self._step_s + self._per_stream_s) * (self._caution if can_wait else 1.0)
        if step_s > self._reach_s - now and num_streams and now - deadline_s <= config.max_late_s:
            return False
        self._decode.append(
            DecodeItem(request.request_id, request.slot, request.blocks, request.num_computed, request.num_patches)
        )
        self._take(deadline_s, 0)
        return True

    def offer_prefill(self, request: Request, deadline_s: float) -> bool:
        """Choose a request whose input is not all computed, perhaps for a part of it; else as `offer`."""
        if self._num_streams >= self._config.max_step_streams:
            return False
        chunk = self._chunk(request, deadline_s)
        if chunk == 0:
            return False
        start = request.num_computed
        is_last = start + chunk == request.num_prefill
        item_of = request.request_id, request.slot, request.blocks
        self._prefill.append(PrefillItem(*item_of, start, chunk, is_last, request.num_patches))
        self._take(deadline_s, chunk)
        return True

    def _take(self, deadline_s: float, num_positions: int) -> None:
        self._num_streams += 1
        self._num_positions += num_positions
        self._step_s += self._per_stream_s + self._per_position_s * num_positions
        if deadline_s < self._reach_s and self._now + self._step_s <= deadline_s:
            self._reach_s = deadline_s

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
