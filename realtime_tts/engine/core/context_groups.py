"""Contexts grouped by their part in the next step, updated by events. Pure.

With hundreds of contexts, most do not change between two steps; these are not looked at.

A context can become parked or resume after an event on it, which callers report (`place`, `touch`), or at the time when
its listener has come close enough, which is known in advance. A context with an open text is checked in every step,
since its allowed lead depends on the duration of steps.
"""

from __future__ import annotations

import heapq
import itertools
import math

from realtime_tts.engine.core.context_queue import ContextQueue
from realtime_tts.engine.core.request import Status


class ContextGroups:
    """Groups of contexts, each in the order of joining. Contexts in no group have no requests.

    waiting: the first request has no blocks and no slot. running: it has both and takes part in steps. parked: it has
    both, and its listener has enough audio ahead.
    """

    def __init__(self) -> None:
        self.spare_times = 64  # stale entries kept in `_resumes`, in addition to one per context
        self.waiting: dict[ContextQueue, None] = {}
        self.running: dict[ContextQueue, None] = {}
        self.parked: dict[ContextQueue, None] = {}
        self._touched: dict[ContextQueue, None] = {}
        self._resumes: list[tuple[float, int, ContextQueue]] = []  # by the time of the next check
        self._numbers = itertools.count()

    def touch(self, context: ContextQueue) -> None:
        """Note a change of the context's lead, priority or text: the next `look` checks it."""
        self._touched[context] = None

    def place(self, context: ContextQueue) -> None:
        """Regroup a context after its first request was replaced, began to run, or ended."""
        self.waiting.pop(context, None)
        self.running.pop(context, None)
        self.parked.pop(context, None)
        if context.requests:
            self._group(context)[context] = None
        self._touched[context] = None

    def forget(self, context: ContextQueue) -> None:
        """Remove a closed context."""
        self.place(context)
        self._touched.pop(context)
        context.resumes_at_s = math.nan

    def look(self, now: float, turn_s: float) -> None:
        """Park contexts whose lead is large enough, and resume those whose lead is not.

        Args:
            turn_s: as in `ContextQueue.update_parking`.
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
            if context.holds_back(head):
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
        has_underrun = head.status is Status.DECODE and not lead.paused
        context.underrun_s = context.deadline_s(head, now) if has_underrun else math.inf
        if lead.paused:
            context.resumes_at_s = math.nan
            return
        resumes_at_s = lead.underrun_s - context.resume_s
        if context.resumes_at_s != resumes_at_s:
            context.resumes_at_s = resumes_at_s
            heapq.heappush(self._resumes, (resumes_at_s, next(self._numbers), context))
            if len(self._resumes) > 2 * (len(self.parked) + len(self.waiting)) + self.spare_times:
                self._resumes = [entry for entry in self._resumes if _counts(entry)]
                heapq.heapify(self._resumes)

    @property
    def first_underrun_s(self) -> float:
        """Time of the first underrun among parked contexts that are in DECODE and not paused; inf without such."""
        return min((context.underrun_s for context in self.parked), default=math.inf)


def _counts(entry: tuple[float, int, ContextQueue]) -> bool:
    at_s, _, context = entry
    return context.resumes_at_s == at_s and context.parked
