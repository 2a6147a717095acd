"""Choice of the requests that advance in the next step. Pure: ints, block tables and the time that is passed in.

Urgency is measured by playback: a stream's deadline is the moment its listener runs out of audio. A request without
audio so far is due `first_audio_s` after its arrival. A step first holds the streams that cannot wait for another one,
then all others by deadline, as long as no on-time stream becomes late. Tenants share equally both slots and what the
device can carry in real time. Contexts far enough ahead are parked. A request is admitted only with blocks for its
maximum length, so nothing is ever preempted.

A text may be spoken while it is still being written. Its stream makes patches only while enough text lies in front of
them. When the model has not read that text yet, the input is laid out again, with the patches so far behind the text,
and prefilled like that of a new request.

A waiting request may speak its first patches from memory. It then begins on the device like a request that has read
more text: with these patches in its input.

A draft is a request that no listener waits for yet. It joins a step only beside all streams that are ready, and
lengthens it little. It holds a slot and blocks only as long as no other request needs them.
"""

from __future__ import annotations

import contextlib
import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from realtime_tts.engine.core.block_pool import BLOCK_SIZE, BlockPool
from realtime_tts.engine.core.context_groups import ContextGroups
from realtime_tts.engine.core.context_queue import ContextQueue, ListenerLead
from realtime_tts.engine.core.fairness import beyond_one_group, beyond_share, in_turn, is_below_share
from realtime_tts.engine.core.request import Finished, FinishReason, Request, Status, StepFlags, StepItem, StepPlan
from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.core.step_builder import Offer, StepBuilder
from realtime_tts.engine.core.step_cost import StepCost
from realtime_tts.engine.core.text_waits import TextWaits
from realtime_tts.errors import Overloaded, RequestTooLarge

# After a step with another number of flow steps, its tenant's streams with such a number wait for this many lengths of
# that step if other tenants are present, so that these seldom meet a long step.
_REST = 3
_RECENT_S = 10.0  # a tenant that sent a request within this time counts as present
# Time that drafts may add to steps with streams, as a share of the fixed part of each step. Streams at work need the
# same time for their patches however many steps there are, so all steps together grow by this share. It can be saved
# for so many steps.
_DRAFT_SHARE, _DRAFT_SAVED_STEPS = 0.03, 8
_DRAFTS_ALONE_S = 0.0125  # a step of drafts alone, for which a new request may have to wait


class Scheduler:
    """Owner of each request's status and deadline.

    Args:
        prepare: lays out a request's input from the patches so far and from the text that is known, or, if not
            `reads_next`, that was read before; sets `num_prefill`, `num_kept` and `hashes`. Called when its turn in its
            context has come, and when it takes in more text.
        remembered: sends a request's next patch from memory and returns its flags; None: the device must make it.
        cost: estimates the duration of a step.

    Attributes:
        restart_s: lead in seconds with which a request can begin anew: its next patch is then in time, with one patch
            to spare. Updated in each step.
        num_extensions: how often a running request took in more text.
        num_extended_positions: positions that were computed again for that.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        prepare: Callable[[Request], None],
        cost: StepCost | None = None,
        remembered: Callable[[Request], StepFlags | None] = lambda request: None,
    ) -> None:
        self.config = config
        self.pool = BlockPool(config.num_blocks)
        self.cost = cost or StepCost(typical_work=config.typical_work)
        self._prepare, self._remembered = prepare, remembered
        self._contexts: dict[str, ContextQueue] = {}
        self._requests: dict[str, Request] = {}
        self._active: dict[str, Request] = {}  # requests with blocks and a slot, without drafts
        self._drafts: dict[str, Request] = {}
        self._num_own_flow_steps = 0  # active requests with their own number of flow steps
        self._rests_until_s: dict[str, float] = {}  # by tenant: time until which its groups are skipped
        self._asked_s: dict[str, float] = {}  # by tenant: arrival of its latest request
        self._groups = ContextGroups()
        self._draft_s = 0.0  # saved time for drafts
        self._gathers = False  # streams that can wait were left to the next step
        self._gathers_until_s = -math.inf
        self._ended: list[Finished] = []  # from memory, and drafts that made room
        self._free_slots = list(range(config.max_streams - 1, -1, -1))
        self.restart_s = 3 * config.patch_s
        self.num_extensions = 0
        self.num_extended_positions = 0
        self._text_waits = TextWaits(config, self._active, lambda work: self.cost.upper_bound_s(work))

    # ---- requests ------------------------------------------------------------------------------------------------

    def add(self, request: Request, now: float) -> None:
        """Queue a request behind those of its context. A draft has a context of its own.

        Raises:
            RequestTooLarge: the request would not fit even alone.
            Overloaded: the queue is full and the tenant has its share of it.
        """
        room = self.config.max_request_positions
        positions = _check_size(request.min_prefill, request.max_patches, room)
        num_waiting = len(self._drafts) if request.is_draft else self.num_waiting
        if num_waiting >= self.config.max_waiting and (request.is_draft or not self._may_wait(request.tenant)):
            raise Overloaded(f"{num_waiting} requests are waiting already")
        if request.request_id in self._requests:
            raise AssertionError(f"request id {request.request_id!r} is in use")
        request.arrived_s = now
        if not request.is_draft:
            self._asked_s[request.tenant] = now
        request.max_positions = min(max(positions, request.max_positions), room)
        self._requests[request.request_id] = request
        context = self._contexts.setdefault(request.context_id, ContextQueue(self.config))
        context.requests.append(request)
        if request.is_draft:
            self._drafts[request.request_id] = request
        elif len(context.requests) == 1:
            self._groups.place(context)

    def has_context(self, context_id: str) -> bool:
        """Return whether the context had a request and has not been closed."""
        return context_id in self._contexts

    def _may_wait(self, tenant: str) -> bool:
        """Return whether a full queue accepts a request of this tenant."""
        running = self._active.keys() | self._drafts.keys()
        waiting = (request for name, request in self._requests.items() if name not in running)
        return is_below_share(tenant, (request.tenant for request in waiting), self.config.max_waiting)

    def extend(self, request_id: str, known: float, is_final: bool, min_prefill: int, max_patches: int) -> None:
        """Add text to an open request. `known`, `min_prefill`, `max_patches` count all text known now.

        Raises:
            RequestTooLarge, Overloaded: the text has outgrown its reservation, and there is no room for more. The
                request continues with its earlier text.
        """
        request = self._requests[request_id]
        max_patches = max(max_patches, request.max_patches)
        positions = _check_size(min_prefill, max_patches, self.config.max_request_positions - request.num_carried)
        if positions > request.max_positions:
            self._reserve(request, positions)
        request.min_prefill, request.max_patches = min_prefill, max_patches
        request.supply.known, request.supply.is_final = known, is_final
        self._groups.touch(self._contexts[request.context_id])
        if is_final:
            request.max_positions = positions
            if request.supply.may_stop and request.blocks:
                self._give_back(request)

    def _reserve(self, request: Request, max_positions: int) -> None:
        """Reserve more for a text with more tokens than were expected. Raises Overloaded: too few blocks are free."""
        num_blocks = self.pool.blocks_for(request.num_carried + max_positions) - len(request.blocks)
        if request.blocks and num_blocks > 0:
            while (allocation := self.pool.allocate(num_blocks * BLOCK_SIZE, (), 0)) is None:
                if not self._end_last_draft():
                    raise Overloaded("there is no memory for the rest of the text")
            request.blocks += allocation.blocks
        request.max_positions = max_positions

    def rewind(self, request: Request, num_patches: int, now: float) -> None:
        """Go back to a running request's first `num_patches`: what follows is made again."""
        context = self._contexts[request.context_id]
        context.lead.produce((num_patches - request.num_patches) * self.config.patch_s / request.speed, now)
        request.num_patches = request.num_remembered = num_patches
        self._lay_out(request)
        request.num_computed = min(request.num_computed, request.num_kept, request.num_prefill - 1)
        request.status = Status.PREFILL
        self._groups.touch(context)

    def lead_s(self, request: Request, now: float) -> float:
        """Return the lead of a request's context over its listener, in seconds."""
        return self._contexts[request.context_id].lead.ahead_s(now)

    def cancel(self, request_id: str) -> Finished | None:
        """End a request now; return None if it does not exist. Its blocks and slot are free on return."""
        request = self._requests.get(request_id)
        return None if request is None else self._finish(request, FinishReason.CANCELLED)

    def end(self, request_id: str, reason: FinishReason, code: str = "", message: str = "") -> Finished:
        """End a request because of its text. Its computed results are valid."""
        return self._finish(self._requests[request_id], reason, code, message)

    def fail(self, request_ids: Iterable[str], code: str, message: str) -> list[Finished]:
        """End requests whose step could not run. Their blocks leave the prefix cache."""
        found = [self._requests[request_id] for request_id in request_ids if request_id in self._requests]
        return [self._fail(request, code, message) for request in found]

    def close_context(self, context_id: str) -> list[Finished]:
        """Cancel all requests of a context and remove it."""
        context = self._contexts.get(context_id)
        if context is None:
            return []
        finished = [self._finish(request, FinishReason.CANCELLED) for request in list(context.requests)]
        self._groups.forget(self._contexts.pop(context_id))
        return finished

    def playback(self, context_id: str, played_s: float, paused: bool, now: float) -> None:
        """Set the playback position of a context."""
        if context := self._contexts.get(context_id):
            context.lead.report(played_s, paused, now)
            self._groups.touch(context)

    def set_priority(self, context_id: str, priority: int) -> None:
        """Shift a context's deadlines; the priority is clamped to −8 … 8, so that no stream waits for ever."""
        if context := self._contexts.get(context_id):
            context.priority = priority
            self._groups.touch(context)

    # ---- steps ---------------------------------------------------------------------------------------------------

    def others_fill_a_step(self, plan: StepPlan) -> bool:
        """Return whether the running requests outside `plan`, a step being computed, are enough for a full step."""
        return len(self._groups.running) - len(plan.request_ids) >= self.config.full_streams

    @property
    def owes_drafts(self) -> bool:
        """True if drafts have waited for as many steps as their time can be saved for."""
        return bool(self._drafts) and self._draft_s >= _DRAFT_SAVED_STEPS * _DRAFT_SHARE * self.cost.step_s(0, 0)

    def ahead(self, plan: StepPlan, now: float, left_s: float) -> StepPlan:
        """Return the step after `plan`, the one that is being computed, before its outcome is known.

        Its requests take part as if each had made its patch and went on; for one that has ended, the work is wasted.
        A request that depends on the outcome has no part: it needs text that the model has not read, or comes to its
        length guard. If other requests fill a step, none of `plan` has a part.

        left_s: seconds until the current step is over.
        """
        with self._as_if_made(plan, now + left_s) as going_on:
            return self.schedule(now, left_s, frozenset(plan.request_ids) - going_on, is_ahead=True)

    @contextlib.contextmanager
    def _as_if_made(self, plan: StepPlan, ends_s: float) -> Iterator[set[str]]:
        """Let requests of `plan` be, within the `with` statement, as if each had made its patch at `ends_s`. Yield the
        ids of these requests. Their states and their contexts' leads are as before afterwards."""
        before: list[tuple[StepItem, Request, Status, ListenerLead, float, float]] = []
        for item in () if self.others_fill_a_step(plan) else plan.items:
            request = self._active.get(item.request_id)
            if request is None or not self._goes_on(request, item):
                continue
            lead, heard_s = self._contexts[request.context_id].lead, self.config.patch_s / request.speed
            before.append((item, request, request.status, lead, lead.produced_s, lead.underrun_s))
            request.status = Status.DECODE
            request.num_computed += item.num_positions
            request.num_patches += 1
            lead.produced_s += heard_s
            lead.underrun_s = max(lead.underrun_s, ends_s) + heard_s
        try:
            yield {item.request_id for item, *_ in before}
        finally:
            for item, request, status, lead, produced_s, underrun_s in before:
                request.status = status
                request.num_computed -= item.num_positions
                request.num_patches -= 1
                lead.produced_s, lead.underrun_s = produced_s, underrun_s

    def _goes_on(self, request: Request, item: StepItem) -> bool:
        """Return whether the request's patch after this item needs no result of the item but the patch itself."""
        is_next = item.is_last and item.patch_index == request.num_patches < request.max_patches - 1
        return is_next and request.supply.reaches_further(request.num_patches, self.config)

    def schedule(
        self, now: float, begins_in_s: float = 0.0, busy: frozenset[str] = frozenset(), *, is_ahead: bool = False
    ) -> StepPlan:
        """Return the next step; empty if no request has anything to do yet. busy: requests that can have no part in it.
        is_ahead: another step comes before it; drafts then have no part in it."""
        turn_s = self._turn_s()
        self.restart_s = turn_s + self.config.patch_s
        self._groups.look(now, turn_s)
        has_room = self._admit(now, busy)
        now += begins_in_s
        ready, ample = self._ready(now, busy)
        step, num_ready = self._step_of_streams(ready, ample, now)
        share_s = _DRAFT_SHARE * self.cost.step_s(0, 0)
        self._draft_s = min(_DRAFT_SAVED_STEPS * share_s, self._draft_s + (num_ready > 0 or not is_ahead) * share_s)
        if self._drafts and has_room and not is_ahead and step.num_streams == num_ready:
            self._fill_with_drafts(step, now)
        plan = step.plan()
        if num_ready:
            if not plan:
                raise AssertionError("a step without progress")
            self._gathers_until_s = now + self.config.gather_s
        if plan.own_flow_steps:
            self._note_group(plan, now)
        return plan

    def _step_of_streams(self, ready: list[Request], ample: list[Request], now: float) -> tuple[StepBuilder, int]:
        """Return a step with those ready streams that fit, and how many were ready: 0 if all are left to the next step.
        ample: further ready streams, which have much time."""
        config, num_ready = self.config, len(ready) + len(ample)
        work = len(ample) + (sum(request.work for request in ready) if self._num_own_flow_steps else len(ready))
        all_s = self.cost.step_s(min(work, config.full_streams), 0)
        tight_s = now + 2 * all_s  # when the step after this one is over
        offers = self._offers(ready, work, now, tight_s)
        underruns_s = [each.deadline_s for each in offers if each.can_wait and each.request.status is Status.DECODE]
        ample_s = now + config.ample_lead_s if ample else math.inf
        prefill_reach_s = min(self._groups.first_underrun_s, ample_s, *underruns_s) - all_s
        is_behind = num_ready > config.full_streams and any(each.is_late for each in offers)
        step = StepBuilder(config, self.cost, now, prefill_reach_s, tight_s if is_behind else -math.inf)
        self._gathers = self._may_gather(offers, num_ready, all_s, now)
        if self._gathers:
            return step, 0
        offers += self._most_urgent(ample, -(-config.full_streams // 2) - len(ready), now)
        for offer in sorted(offers):
            step.offer(offer)
        return step, num_ready

    def _offers(self, ready: list[Request], work: float, now: float, tight_s: float) -> list[Offer]:
        """Return offers of ready streams. work: that of all ready streams, those with much time included. tight_s: a
        patch that is due before this time cannot wait for the next step."""
        contexts, one_s = self._contexts, self.cost.step_s(1, 0)
        in_time_s, capacity = now + one_s, self.cost.affordable_streams(self.config.patch_s)
        excess = beyond_share(ready, capacity) if work > capacity else ()
        yielding = self._yielding(ready)
        offers: list[Offer] = []
        for number, request in enumerate(ready):
            deadline_s = contexts[request.context_id].deadline_s(request, now)
            if request.request_id in excess:
                deadline_s += self.config.excess_slack_s
            if yields := request.request_id in yielding:
                deadline_s += yielding[request.request_id]
            own_s = self.cost.step_s(request.work, 0, request.own_flow_steps) - one_s if request.own_flow_steps else 0.0
            is_on_time = request.num_patches > 0 and in_time_s + own_s <= deadline_s
            is_tight = is_on_time and deadline_s < tight_s
            can_wait = is_on_time and not is_tight
            offers.append(Offer(not is_tight, deadline_s, number, request, can_wait, yields))
        return offers

    def _may_gather(self, offers: list[Offer], num_ready: int, all_s: float, now: float) -> bool:
        """Return whether to leave all ready streams to the next step: all have a lead, and steps are short.
        offers: of all streams but those with much time."""
        config = self.config
        is_short = not self._num_own_flow_steps and 2 * all_s <= config.gather_s
        if not is_short or not 0 < num_ready < config.full_streams or now >= self._gathers_until_s:
            return False
        soon_s, are_paced = now + config.gather_lead_s, all(each.request.paced for each in offers)
        return are_paced and all(each.request.status is Status.DECODE and each.deadline_s >= soon_s for each in offers)

    def _most_urgent(self, ample: list[Request], num: int, now: float) -> list[Offer]:
        """Return offers of the `num` most urgent streams among those with much time; none if `num` is negative."""
        contexts = self._contexts
        deadlines = ((contexts[each.context_id].deadline_s(each, now), index) for index, each in enumerate(ample))
        most_urgent = heapq.nsmallest(max(0, num), deadlines)
        return [Offer(True, at_s, index - len(ample), ample[index], can_wait=True) for at_s, index in most_urgent]

    def _fill_with_drafts(self, step: StepBuilder, now: float) -> None:
        """Add drafts to a step that has all streams which are ready: first those with the fewest patches."""
        is_alone, before_s = not step.num_streams, step.duration_s
        limit_s = _DRAFTS_ALONE_S if is_alone else before_s + self._draft_s
        for request in sorted(self._drafts.values(), key=lambda draft: (draft.num_patches, draft.arrived_s)):
            if step.is_full or not step.takes_draft(request, limit_s):
                continue
            if request.status is Status.WAITING and not self._begin(request, now):
                break
            step.offer_draft(request, limit_s)
        if not is_alone:
            self._draft_s -= step.duration_s - before_s

    def _note_group(self, plan: StepPlan, now: float) -> None:
        """Record a step with a group: if other tenants are present, its tenants pause their groups for a while."""
        self._asked_s = {tenant: at_s for tenant, at_s in self._asked_s.items() if now - at_s < _RECENT_S}
        present = self._asked_s.keys() | {request.tenant for request in self._active.values()}
        if len(present) > 1:
            until_s = now + (1 + _REST) * self.cost.step_s(*plan.size)
            speaking = (self._active[name] for name in plan.speaking if name in self._active)
            self._rests_until_s |= {request.tenant: until_s for request in speaking if request.own_flow_steps}

    def _rests(self, request: Request, now: float) -> bool:
        return request.own_flow_steps > 0 and now < self._rests_until_s.get(request.tenant, -math.inf)

    def _yielding(self, ready: list[Request]) -> dict[str, float]:
        """Return the seconds of delay for requests with their own number of flow steps, beside other tenants' streams.
        Their groups make steps long."""
        if not self._num_own_flow_steps or len({request.tenant for request in ready}) <= 1:
            return {}
        slack_s, further = self.config.excess_slack_s, beyond_one_group(ready)
        names = [request.request_id for request in ready if request.own_flow_steps]
        return {name: slack_s * (2 if name in further else 1) for name in names}

    def _ready(self, now: float, busy: frozenset[str]) -> tuple[list[Request], list[Request]]:
        """Return the running requests that are not busy and have text for another patch; lay out text to be read. Those
        that need nothing but time, and have much of it, are apart."""
        ready: list[Request] = []
        ample: list[Request] = []
        ample_s = now + self.config.ample_lead_s
        for context in self._groups.running:
            request = context.requests[0]
            if request.request_id in busy:
                continue
            supply = request.supply
            if context.lead.underrun_s > ample_s and request.is_plain:
                ample.append(request)
                continue
            may_wait = not supply.is_final or request.waits_since_s is not None
            if may_wait and self._text_waits.update(context, now):
                continue
            if supply.read != supply.known and supply.must_be_read(request.num_patches, self.config):
                self._read_anew(request)
            if not self._rests_until_s or not self._rests(request, now):
                ready.append(request)
        return ready, ample

    def _turn_s(self) -> float:
        """Return how long a stream may wait for its patch: a step that has just begun without it, and its own.

        Limited to two patches: longer steps carry too many streams, and a lead would only be taken from the others.
        """
        works = (request.work for request in self._active.values())
        work = sum(works) if self._num_own_flow_steps else len(self._active)
        return 2 * min(self.cost.upper_bound_s(work), self.config.patch_s)

    def _admit(self, now: float, busy: frozenset[str]) -> bool:
        """Give blocks and slots to the first requests of contexts, in turn; stop at the first that does not fit, even
        after all drafts have made room. Return whether all fit.

        A request that reuses the id of a cancelled busy one waits until that step is accounted for: its results belong
        to the cancelled request.
        """
        self.recall(now)
        contexts, update_wait = self._contexts, self._text_waits.update
        heads = [(each, each.requests[0]) for each in self._groups.waiting if not each.holds_back(each.requests[0])]
        waiting = [head for context, head in heads if head.request_id not in busy and not update_wait(context, now)]
        if not waiting:
            return True
        deadlines = {head.request_id: contexts[head.context_id].deadline_s(head, now) for head in waiting}
        for request in in_turn(waiting, list(self._active.values()), deadlines):
            while not self._begin(request, now):
                if not self._end_last_draft():
                    return False
            self._active[request.request_id] = request
            self._num_own_flow_steps += request.own_flow_steps > 0
            self._groups.place(self._contexts[request.context_id])
        return True

    def _begin(self, request: Request, now: float) -> bool:
        """Give a request blocks and a slot; return False if it does not fit."""
        if not self._free_slots or not self._allocate(request):
            return False
        request.slot = self._free_slots.pop()
        request.status = Status.PREFILL
        request.started_s = now
        return True

    def _end_last_draft(self) -> bool:
        """End the newest draft that has blocks and a slot, to make room. Return False if there is none."""
        draft = next((draft for draft in reversed(self._drafts.values()) if draft.slot >= 0), None)
        if draft is not None:
            self._ended.append(self._finish(draft, FinishReason.CANCELLED))
        return draft is not None

    def recall(self, now: float) -> None:
        """Advance waiting requests by patches from memory, as far as their text and their lead allow; see
        `take_ended`."""
        for context in [context for context in self._groups.waiting if context.requests[0].may_recall]:
            self._recall(context, context.requests[0], now)

    def take_ended(self) -> list[Finished]:
        """Return the requests that ended from memory, and the drafts that made room, since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def _recall(self, context: ContextQueue, request: Request, now: float) -> None:
        reason = None
        while reason is None:
            context.update_parking(now, self._turn_s())
            if context.holds_back(request) or self._text_waits.update(context, now):
                return
            if self.reads_next(request):
                self._lay_out(request)
            flags = self._remembered(request)
            if flags is None:
                request.may_recall = False
                return
            if request.status is Status.FINISHED:  # the text that follows this patch is refused
                return
            request.num_remembered += 1
            request.num_prefill = 0  # the input lacks this patch
            request.last_step_s = now
            reason = self._speak(request, flags, now)
        self._ended.append(self._finish(request, reason))

    def reads_next(self, request: Request) -> bool:
        """Return whether the model reads all text that is known before it makes the next patch."""
        return request.num_patches == 0 or request.supply.must_be_read(request.num_patches, self.config)

    def _allocate(self, request: Request) -> bool:
        if request.num_prefill == 0 or (not request.supply.is_read and self.reads_next(request)):
            self._lay_out(request)
        num_positions = _longest(request)
        if request.num_prefill <= 0 or num_positions > self.config.max_request_positions:
            raise AssertionError(f"prepared a prefill of {request.num_prefill} positions")
        allocation = self.pool.allocate(num_positions, request.hashes, request.num_prefill)
        if allocation is None:
            return False
        request.blocks = allocation.blocks
        request.num_cached = request.num_computed = allocation.num_cached_positions
        return True

    def _read_anew(self, request: Request) -> None:
        """Take in all text that is known: the input changes from its text on, and is computed again from there."""
        self._lay_out(request)
        request.num_computed = min(request.num_computed, request.num_kept)
        request.status = Status.PREFILL
        request.num_extensions += 1
        self.num_extensions += 1
        self._give_back(request)

    def _lay_out(self, request: Request) -> None:
        reads = self.reads_next(request)
        self._prepare(request)
        if reads:
            request.supply.read = request.supply.known
            request.num_carried = max(0, request.num_prefill - request.num_patches - request.min_prefill)
        request.num_laid_out = request.num_patches

    def _give_back(self, request: Request) -> None:
        """Free the blocks that were reserved for an open text and that the final one cannot need.

        Tokenization may differ by one or two tokens where more text was appended; then the length guard is reduced.
        """
        num_blocks = self.pool.blocks_for(_longest(request))
        self.pool.release(request.blocks[num_blocks:])
        request.blocks = request.blocks[:num_blocks]
        room = len(request.blocks) * BLOCK_SIZE - (request.num_prefill - request.num_laid_out)
        request.max_patches = min(request.max_patches, room + 1)

    def finish_step(
        self, plan: StepPlan, flags: Mapping[str, StepFlags], now: float, elapsed_s: float | None = None
    ) -> list[Finished]:
        """Apply a step's results. Requests that were cancelled during the step are skipped.

        Args:
            flags: results for each request of the plan.
            elapsed_s: duration of the step, if it is suitable for the cost estimate.
        """
        if elapsed_s is not None:
            work, num_positions, own_flow_steps = plan.size
            self.cost.observe(work, num_positions, elapsed_s, own_flow_steps)
        finished = [self._advance(item, flags, now) for item in plan.items]
        return [end for end in finished if end is not None]

    def _advance(self, item: StepItem, flags: Mapping[str, StepFlags], now: float) -> Finished | None:
        request = self._active.get(item.request_id) or self._drafts.get(item.request_id)
        # A new draft under the same id has not begun, and a request that was rewound makes the patch again.
        if request is None or request.slot < 0 or item.patch_index != request.num_patches:
            return None
        request.num_computed += item.num_positions
        request.last_step_s = now
        if request.status is Status.PREFILL and request.num_patches > request.num_remembered:
            request.num_extended_positions += item.num_positions
            self.num_extended_positions += item.num_positions
        if not flags[item.request_id].finite:
            return self._fail(request, "numerical_error", "the model gave a value that is not finite")
        if request.status is Status.PREFILL:
            self.pool.remember(request.blocks, request.hashes[: request.num_computed // BLOCK_SIZE])
        if not item.is_last:
            return None
        request.status = Status.DECODE
        reason = self._speak(request, flags[item.request_id], now)
        return self._finish(request, reason) if reason else None

    def _speak(self, request: Request, flags: StepFlags, now: float) -> FinishReason | None:
        """Count one patch. Return the reason to finish if it was the last, else None."""
        stops = flags.stop and request.may_stop(self.config.min_patches)
        request.num_patches += 1
        if not request.is_draft:
            heard_s = (self.config.patch_s - flags.left_out_s) / request.speed
            context = self._contexts[request.context_id]
            context.lead.produce(heard_s, now)
            self._groups.touch(context)
        if stops:
            return FinishReason.STOP
        return FinishReason.LENGTH if request.num_patches >= request.max_patches else None

    def _fail(self, request: Request, code: str, message: str) -> Finished:
        self.pool.forget(request.blocks)
        return self._finish(request, FinishReason.FAILED, code, message)

    def _finish(self, request: Request, reason: FinishReason, code: str = "", message: str = "") -> Finished:
        del self._requests[request.request_id]
        context = self._contexts[request.context_id]
        is_first = context.requests[0] is request
        context.requests.remove(request)
        self._drafts.pop(request.request_id, None)
        if self._active.pop(request.request_id, None):
            self._num_own_flow_steps -= request.own_flow_steps > 0
            if not self._num_own_flow_steps:
                self._rests_until_s.clear()
        if request.slot >= 0:
            self.pool.release(request.blocks)
            self._free_slots.append(request.slot)
        request.status = Status.FINISHED
        if is_first:
            self._groups.place(context)
        return Finished(request, reason, code, message)

    # ---- urgency -------------------------------------------------------------------------------------------------

    def next_wakeup_s(self, now: float) -> float | None:
        """Return the seconds until a parked context resumes, a pausing group may run, or a second patch waits no longer
        for text. None: only a message can make work available."""
        parked = [each for each in (*self._groups.parked, *self._groups.waiting) if each.holds_back(each.requests[0])]
        leads = [each.lead.ahead_s(now) - each.resume_s for each in parked if not each.lead.paused]
        if self._gathers:
            leads.append(self._gathers_until_s - now)
        contexts, second_patch_in_s = (*self._groups.running, *self._groups.waiting), self._text_waits.second_patch_in_s
        second_s = [second_patch_in_s(each, now) for each in contexts if each.requests[0].waits_since_s is not None]
        leads += [in_s for in_s in second_s if 0.0 < in_s < math.inf]
        heads = [context.requests[0] for context in contexts]
        leads += [self._rests_until_s[head.tenant] - now for head in heads if self._rests(head, now)]
        return max(0.0, min(leads)) if leads else None

    # ---- figures -------------------------------------------------------------------------------------------------

    @property
    def num_waiting(self) -> int:
        """Number of requests without blocks and a slot; drafts do not count."""
        return len(self._requests) - len(self._active) - len(self._drafts)

    @property
    def num_parked(self) -> int:
        """Number of parked requests with blocks and a slot."""
        return len(self._groups.parked)

    @property
    def num_text_waits(self) -> int:
        """Number of waits for text of requests that had spoken."""
        return self._text_waits.count

    @property
    def num_awaiting_text(self) -> int:
        """Number of requests with blocks and a slot that wait for text and are not parked.

        Another thread may read it for a heartbeat, while this one closes contexts.
        """
        open_texts = [request for request in list(self._active.values()) if not request.supply.is_final]
        lacking = [request for request in open_texts if self._text_waits.lacks_text(request)]
        contexts = [(self._contexts.get(request.context_id), request) for request in lacking]
        return sum(context is not None and not context.holds_back(request) for context, request in contexts)

    @property
    def num_active(self) -> int:
        """Number of requests with blocks and a slot; drafts do not count."""
        return len(self._active)

    @property
    def num_free_slots(self) -> int:
        """Number of slots that a request can take, those of drafts included."""
        return len(self._free_slots) + sum(draft.slot >= 0 for draft in list(self._drafts.values()))

    @property
    def num_real_time_streams(self) -> int:
        """Number of streams that the device can carry in real time, at least one."""
        return max(1, min(self.config.max_streams, self.cost.affordable_streams(self.config.patch_s)))

    @property
    def num_contexts(self) -> int:
        """Number of contexts; those of drafts do not count."""
        return len(self._contexts) - len(self._drafts)


def _check_size(min_prefill: int, max_patches: int, room: int) -> int:
    """Return the positions that a text may need. Raises RequestTooLarge if they exceed `room`."""
    positions = min_prefill + max_patches - 1
    if positions > room:
        raise RequestTooLarge(f"the text may need {positions} positions; there is room for {room}", field="text")
    return positions


def _longest(request: Request) -> int:
    """Return the maximum number of positions of a request that was laid out."""
    return request.num_carried + request.max_positions
