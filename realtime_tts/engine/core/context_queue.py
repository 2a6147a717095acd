"""A context in the scheduler: its requests in order, its lead over the listener, and what is due when. Pure."""

from __future__ import annotations

import collections
import dataclasses
import math

from realtime_tts.engine.core.request import Request
from realtime_tts.engine.core.scheduler_config import SchedulerConfig

_ROUNDING_S = 1e-6


@dataclasses.dataclass(slots=True)
class ListenerLead:
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

    def ahead_s(self, now: float) -> float:
        """Seconds of audio made and not heard yet."""
        return self.produced_s - self.played_s if self.paused else max(0.0, self.runs_dry_s - now)


class ContextQueue:
    """`requests[0]` is the request that may run; the others wait for it. `priority` overrides that of its requests.

    dry_s, resumes_at_s: `Roster`'s notes on a parked one.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self.requests: collections.deque[Request] = collections.deque()
        self.lead = ListenerLead()
        self.parked = False
        self.resume_s = config.park_low_s  # the lead at which a parked context goes on
        self.priority: int | None = None
        self.dry_s = math.inf
        self.resumes_at_s = math.nan
        self._config = config

    def holds_back(self, request: Request) -> bool:
        """Whether a request of it is passed over, as its listener has enough."""
        return request.paced and self.parked

    def update_parking(self, now: float, turn_s: float) -> None:
        """Park when far ahead of the listener; go on when the lead has shrunk to the low mark.

        Who speaks a text that is still being written stays close: the later a patch is made, the more text it knows.
        But not so close that it runs dry before its turn has come and gone.

        Args:
            turn_s: how long it may take from here until a patch is made.
        """
        config = self._config
        limit_s = config.park_low_s if self.parked else config.park_high_s
        self.resume_s = config.park_low_s
        if self.requests and not self.requests[0].supply.is_final:
            num_patches = config.open_lead_patches - self.requests[0].has_spoken  # a first one takes longer
            limit_s = self.resume_s = max(num_patches * config.patch_s, turn_s) + _ROUNDING_S
        self.parked = self.lead.ahead_s(now) > limit_s

    def deadline_s(self, request: Request, now: float) -> float:
        """When the request's next patch is due."""
        config, lead = self._config, self.lead
        if request.num_patches == 0:
            due_s = request.arrived_s + config.first_audio_s
            if request.paced and lead.produced_s > 0:
                due_s = max(due_s, lead.runs_dry_s)
        elif request.paced:
            due_s = lead.runs_dry_s
        else:
            due_s = request.last_step_s + config.unpaced_slack_s
        if request.resumed_s is not None:  # that its text came late is nobody else's fault
            due_s = max(due_s, request.resumed_s + config.first_audio_s)
        if lead.paused and request.paced:
            due_s = max(due_s, now + config.paused_slack_s)
        priority = request.priority if self.priority is None else self.priority
        return due_s + max(-8, min(8, priority)) * config.priority_step_s if priority else due_s
