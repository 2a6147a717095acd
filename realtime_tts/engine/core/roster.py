"""Contexts by the part they have in the next step, kept as things happen. Pure.

With hundreds of contexts most stand as they stood a step ago: nobody looks at these.

Whether a context is parked changes when something happens to it, which is told (`place`, `touch`), or when its listener
has come close enough, for which there is a time; and that of an open text with every step, since how near it stays
depends on how long steps take.
"""

from __future__ import annotations

import heapq
import itertools
import math

from realtime_tts.engine.core.context_queue import ContextQueue
from realtime_tts.engine.core.request import Status


class Roster:
    """waiting: contexts whose first request has no blocks and no slot. running: it has, and takes part in steps.
    parked: it has, and its listener has enough. Each in the order in which they came to be so. Other contexts have no
    requests.
    """

    def __init__(self) -> None:
        self.spare_times = 64  # that are kept although they count no more, beside as many as there are contexts
        self.waiting: dict[ContextQueue, None] = {}
        self.running: dict[ContextQueue, None] = {}
        self.parked: dict[ContextQueue, None] = {}
        self._touched: dict[ContextQueue, None] = {}
        self._resumes: list[tuple[float, int, ContextQueue]] = []  # when time will have touched them
        self._numbers = itertools.count()

    def touch(self, context: ContextQueue) -> None:
        """Its lead, its priority or its text has changed: `look` is to look at it."""
        self._touched[context] = None

    def place(self, context: ContextQueue) -> None:
        """Its first request is another one, has come to run, or there is none any more."""
        self.waiting.pop(context, None)
        self.running.pop(context, None)
        self.parked.pop(context, None)
        if context.requests:
            self._group(context)[context] = None
        self._touched[context] = None

    def forget(self, context: ContextQueue) -> None:
        """It is closed."""
        self.place(context)
        self._touched.pop(context)
        context.resumes_at_s = math.nan

    def look(self, now: float, turn_s: float) -> None:
        """Park those whose listeners have enough, and let go on those whose listeners do not.

        Args:
            turn_s: as `ContextQueue.update_parking` takes it.
        """
        while self._resumes and self._resumes[0][0] <= now:
            entry = heapq.heappop(self._resumes)
            if _counts(entry):
                self._touched[entry[2]] = None
                entry[2].resumes_at_s = math.nan
        touched, self._touched = self._touched, {}
        for context in touched:
            was_parked = context.parked
            context.update_parking(now, turn_s)
            if not context.requests:
                continue
            head = context.requests[0]
            if not head.supply.is_final:
                self._touched[context] = None
            if context.parked:
                self._note_parked(context, now)
            if head.status is not Status.WAITING and was_parked is not context.parked:
                self.running.pop(context, None)
                self.parked.pop(context, None)
                self._group(context)[context] = None

    def _group(self, context: ContextQueue) -> dict[ContextQueue, None]:
        head = context.requests[0]
        if head.status is Status.WAITING:
            return self.waiting
        return self.parked if context.holds_back(head) else self.running

    def _note_parked(self, context: ContextQueue, now: float) -> None:
        head, lead = context.requests[0], context.lead
        is_dry_some_time = head.status is Status.DECODE and not lead.paused
        context.dry_s = context.deadline_s(head, now) if is_dry_some_time else math.inf
        if lead.paused:
            context.resumes_at_s = math.nan
            return
        resumes_at_s = lead.runs_dry_s - context.resume_s
        if context.resumes_at_s != resumes_at_s:
            context.resumes_at_s = resumes_at_s
            heapq.heappush(self._resumes, (resumes_at_s, next(self._numbers), context))
            if len(self._resumes) > 2 * (len(self.parked) + len(self.waiting)) + self.spare_times:
                self._resumes = [entry for entry in self._resumes if _counts(entry)]
                heapq.heapify(self._resumes)

    @property
    def first_dry_s(self) -> float:
        """When the first listener of a parked context will have heard all; never, if none will."""
        return min((context.dry_s for context in self.parked), default=math.inf)

    def has_resumed(self, now: float, margin_s: float) -> bool:
        """Whether `look` would let a parked context go on whose lead is below its mark by more than that; now and then
        it says so of none."""
        if self._resumes and now - self._resumes[0][0] > margin_s:
            return True
        touched = (context for context in self._touched if context in self.parked)
        return any(context.lead.ahead_s(now) < context.resume_s - margin_s for context in touched)


def _counts(entry: tuple[float, int, ContextQueue]) -> bool:
    at_s, _, context = entry
    return context.resumes_at_s == at_s and context.parked
