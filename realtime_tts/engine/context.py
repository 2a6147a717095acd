"""A context in the scheduler: its requests in order, its listener's clock, and what is due when. Pure."""

from __future__ import annotations

import collections

from realtime_tts.engine.request import PlaybackClock, Request
from realtime_tts.engine.step_draft import SchedulerConfig


class Context:
    """`queue[0]` is the request that may run; the others wait for it. `priority` overrides that of its requests."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.queue: collections.deque[Request] = collections.deque()
        self.clock = PlaybackClock()
        self.parked = False
        self.priority: int | None = None
        self._config = config

    def update_parking(self, now: float) -> None:
        """Park when far ahead of the listener; go on when the lead has shrunk to the low mark."""
        limit_s = self._config.park_low_s if self.parked else self._config.park_high_s
        self.parked = self.clock.lead_s(now) > limit_s

    def deadline_s(self, request: Request, now: float) -> float:
        """When the request's next patch is due."""
        config, clock = self._config, self.clock
        if request.num_patches == 0:
            due_s = request.arrived_s + config.first_audio_s
            if request.paced and clock.produced_s > 0:
                due_s = max(due_s, clock.runs_dry_s)
        elif request.paced:
            due_s = clock.runs_dry_s
        else:
            due_s = request.last_step_s + config.unpaced_slack_s
        if clock.paused and request.paced:
            due_s = max(due_s, now + config.paused_slack_s)
        priority = request.priority if self.priority is None else self.priority
        return due_s + max(-8, min(8, priority)) * config.priority_step_s
