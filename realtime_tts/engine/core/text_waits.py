"""Waits of requests for text that is still being written. Pure.

The rule: a patch is made only if enough text lies in front of the speech, `begin_chars` for a request's first patch and
`look_ahead_chars` for each later one. A final text is always enough. Until then the request waits.

- A second patch requires only `begin_chars` from the moment at which its listener would have a gap otherwise: the lead
  is then no longer than the steps until the patch is there. Where steps are long, only its own counts, as nearly every
  second patch would have less text in front of it otherwise.
- The last patch that the length guard allows is not made while the text is open: more text raises the guard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sized

from realtime_tts.engine.core.context_queue import ContextQueue
from realtime_tts.engine.core.request import Request
from realtime_tts.engine.core.scheduler_config import SchedulerConfig

_STEPS_TO_PATCH = 3  # steps until a patch is there: one that has begun, one that is planned, and its own


class TextWaits:
    """Begins and ends the waits: alone sets `waits_since_s`, `resumed_s`, `num_text_waits` and `text_wait_s`.

    Args:
        active: the requests with blocks and a slot; only their number is used.
        slow_step_s: returns a duration that a step with this work rarely exceeds.

    Attributes:
        count: waits of requests that had spoken.
    """

    def __init__(self, config: SchedulerConfig, active: Sized, slow_step_s: Callable[[float], float]) -> None:
        self._config, self._active, self._slow_step_s = config, active, slow_step_s
        self.count = 0

    def update(self, context: ContextQueue, now: float) -> bool:
        """Begin or end the wait of a context's first request, by the text that is known. Return whether it waits."""
        request = context.requests[0]
        if self.lacks_text(request, is_urgent=self.second_patch_in_s(context, now) <= 0.0):
            if request.waits_since_s is None:
                request.waits_since_s = now
                request.num_text_waits += request.has_spoken
                self.count += request.has_spoken
            return True
        if request.waits_since_s is not None:
            if request.has_spoken:
                request.text_wait_s += max(0.0, now - max(request.waits_since_s, context.lead.underrun_s))
            request.waits_since_s, request.resumed_s = None, now
        return False

    def lacks_text(self, request: Request, *, is_urgent: bool = False) -> bool:
        """Return whether too little text is known for the next patch. is_urgent: `begin_chars` are enough."""
        is_last = not request.supply.is_final and request.num_patches >= request.max_patches - 1
        return is_last or request.supply.runs_out(request.num_patches, self._config, is_urgent=is_urgent)

    def second_patch_in_s(self, context: ContextQueue, now: float) -> float:
        """Return the seconds until a second patch is made with only `begin_chars` in front of it, because its listener
        would have a gap otherwise. 0 or less: now. Infinite for other patches, and slower than in real time."""
        request, step_s, patch_s = context.requests[0], self._slow_step_s, self._config.patch_s
        if request.num_patches != 1 or not request.paced or step_s(1) > patch_s:
            return math.inf
        num_steps = _STEPS_TO_PATCH if 2 * _STEPS_TO_PATCH * step_s(1) <= patch_s else 1
        num_streams = min(len(self._active), self._config.full_streams)
        return context.lead.ahead_s(now) - num_steps * step_s(num_streams)
