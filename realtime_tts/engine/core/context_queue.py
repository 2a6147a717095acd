"""Queue of one context's requests, with the lead over the listener and the deadlines. Pure."""

from __future__ import annotations

import collections
import dataclasses
import math

from realtime_tts.engine.core.request import Request
from realtime_tts.engine.core.scheduler_config import SchedulerConfig

_ROUNDING_S = 1e-6


@dataclasses.dataclass(slots=True)
class ListenerLead:
    """Lead of a context's audio over its listener's playback position, in seconds.

    Playback is assumed to start with the first audio and to run in real time, and to wait whenever it has caught up.
    Playback reports correct this estimate.
    """

    produced_s: float = 0.0
    played_s: float = 0.0
    paused: bool = False
    underrun_s: float = 0.0  # time of the listener's next (or last) underrun; earlier is more urgent
    _stamp_s: float = 0.0

    def advance(self, now: float) -> None:
        """Advance the estimated playback position to `now`."""
        if not self.paused:
            self.played_s = min(self.produced_s, self.played_s + max(0.0, now - self._stamp_s))
        self._stamp_s = max(now, self._stamp_s)

    def produce(self, duration_s: float, now: float) -> None:
        """Count new audio."""
        self.advance(now)
        self.produced_s += duration_s
        self.underrun_s = now + self.produced_s - self.played_s

    def report(self, played_s: float, paused: bool, now: float) -> None:
        """Set the playback position that the client reports, limited to the audio produced so far.

        A negative position means that no client is listening. The lead is then so large that the context is parked.
        """
        self.advance(now)
        self.played_s = min(played_s, self.produced_s)
        self.paused = paused
        lead_s = self.produced_s - self.played_s
        self.underrun_s = now + lead_s if lead_s > 0 else min(now, self.underrun_s)  # an underrun keeps its start time

    def ahead_s(self, now: float) -> float:
        """Return the seconds of audio that are produced and not yet heard."""
        return self.produced_s - self.played_s if self.paused else max(0.0, self.underrun_s - now)


class ContextQueue:
    """A context's requests: `requests[0]` may run, the others wait for it. `priority` overrides the requests' own.

    underrun_s, resumes_at_s: times that `ContextGroups` stores for a parked context.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self.requests: collections.deque[Request] = collections.deque()
        self.lead = ListenerLead()
        self.parked = False
        self.resume_s = config.park_low_s  # the lead at which a parked context resumes
        self.priority: int | None = None
        self.underrun_s = math.inf
        self.resumes_at_s = math.nan
        self._config = config

    def holds_back(self, request: Request) -> bool:
        """Return whether the request is skipped because its context is parked."""
        return request.paced and self.parked

    def update_parking(self, now: float, turn_s: float) -> None:
        """Park the context when its lead exceeds the high mark; resume when the lead has shrunk to the low mark.

        A stream whose text is still being written keeps a small lead: the later a patch is computed, the more text the
        model has read. The lead is never so small that playback underruns before the stream's next step.

        Args:
            turn_s: the longest expected time from now until a patch is computed.
        """
        config = self._config
        limit_s = config.park_low_s if self.parked else config.park_high_s
        self.resume_s = config.park_low_s
        if self.requests and not self.requests[0].supply.is_final:
            num_patches = config.open_lead_patches - self.requests[0].has_spoken  # a first patch takes longer
            limit_s = self.resume_s = max(num_patches * config.patch_s, turn_s) + _ROUNDING_S
        self.parked = self.lead.ahead_s(now) > limit_s

    def deadline_s(self, request: Request, now: float) -> float:
        """Return the time at which the request's next patch is due."""
        config, lead = self._config, self.lead
        if request.num_patches == 0:
            due_s = request.arrived_s + config.first_audio_s
            if request.paced and lead.produced_s > 0:
                due_s = max(due_s, lead.underrun_s)
        elif request.paced:
            due_s = lead.underrun_s
        else:
            due_s = request.last_step_s + config.unpaced_slack_s
        if request.resumed_s is not None:  # a stream whose text came late must not delay others
            due_s = max(due_s, request.resumed_s + config.first_audio_s)
        if lead.paused and request.paced:
            due_s = max(due_s, now + config.paused_slack_s)
        priority = request.priority if self.priority is None else self.priority
        return due_s + max(-8, min(8, priority)) * config.priority_step_s if priority else due_s
