"""Drafts in the scheduler: they change nothing for any other request."""

from __future__ import annotations

import random

import pytest
from block_pools import check_pool
from hypothesis import given, settings
from hypothesis import strategies as st
from test_scheduler import PATCH_S, Simulation, add, finish, make

from realtime_tts.engine.core.request import FinishReason, Request, StepFlags, StepPlan
from realtime_tts.engine.core.scheduler import Scheduler
from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.core.step_cost import StepCost
from realtime_tts.errors import Overloaded, RealtimeTTSError

COST = (0.005, 0.0002, 0.00001)


def add_draft(scheduler: Scheduler, name: str, now: float = 0.0, max_patches: int = 5) -> Request:
    return add(scheduler, name, now, max_patches=max_patches, is_draft=True)


def without_hashes(request: Request) -> None:
    request.num_kept = 0
    request.num_prefill = request.min_prefill + request.num_patches
    request.hashes = ()


def of_streams(plan: StepPlan) -> list[tuple[str, int, int, bool, int]]:
    """What a plan has for others than drafts, without the names of slots and blocks."""
    items = [item for item in plan.items if not item.request_id.startswith("draft")]
    return [(item.request_id, item.start, item.num_positions, item.is_last, item.patch_index) for item in items]


def duration_s(scheduler: Scheduler, plan: StepPlan) -> float:
    return scheduler.cost.step_s(*plan.size)


class Twins:
    """Two schedulers with the same streams, the first with drafts as well; a step takes no time."""

    def __init__(self, chance: random.Random) -> None:
        limits = {"num_blocks": 14, "max_streams": 3, "max_positions": 96, "max_prefill_positions": 32}
        config = SchedulerConfig(
            **limits, patch_s=PATCH_S, max_waiting=6, full_streams=chance.choice([1, 2, 1 << 30])
        )  # fmt: skip
        self.drafting, self.plain = (Scheduler(config, without_hashes, StepCost(*COST)) for _ in range(2))
        self.chance, self.now, self.names, self.drafts = chance, 0.0, 0, 0
        self.num_made = self.steps = 0
        self.added_s = 0.0  # by drafts, to steps with streams

    def run(self, num_turns: int) -> None:
        for _ in range(num_turns):
            self.happen()
            if self.chance.random() < 0.7:
                self.step()
            self.now += self.chance.choice([0.0, 0.02, 0.3])

    def happen(self) -> None:
        chance, both = self.chance, (self.drafting, self.plain)
        kind = chance.choice(["stream", "draft", "draft", "cancel", "playback", "close draft", "nothing"])
        context = f"s{chance.randrange(5)}"
        if kind == "stream":
            self.names += 1
            fields = {"min_prefill": chance.randint(1, 60), "max_patches": chance.randint(1, 30)}
            fields |= {"paced": chance.random() < 0.7, "own_flow_steps": chance.choice([0, 0, 4])}
            outcomes = set()
            for scheduler in both:
                try:
                    add(scheduler, f"{context}/{self.names}", self.now, context, tenant=context, **fields)
                except RealtimeTTSError as error:
                    outcomes.add(type(error))
                else:
                    outcomes.add(Request)
            assert len(outcomes) == 1
        elif kind == "draft":
            self.drafts += 1
            try:
                add_draft(self.drafting, f"draft{self.drafts}", self.now, chance.randint(1, 8))
            except Overloaded:
                assert len(self.drafting._drafts) >= 6
        elif kind == "close draft":
            self.drafting.close_context(f"draft{chance.randint(0, self.drafts)}")
        elif kind == "cancel" and self.plain._requests:
            name = chance.choice(sorted(self.plain._requests))
            for scheduler in both:
                scheduler.cancel(name)
        elif kind == "playback":
            played_s, paused = chance.uniform(0, 6), chance.random() < 0.3
            for scheduler in both:
                scheduler.playback(context, played_s, paused, self.now)

    def step(self) -> None:
        plan, plain = self.drafting.schedule(self.now), self.plain.schedule(self.now)
        assert of_streams(plan) == of_streams(plain)
        drafts = [item for item in plan.items if item.request_id.startswith("draft")]
        if drafts and plain:
            self.added_s += duration_s(self.drafting, plan) - duration_s(self.plain, plain)
            assert len(plan.items) <= self.drafting.config.full_streams
        if drafts:
            assert self.drafting.num_waiting == self.plain.num_waiting
        self.num_made += len(drafts)
        self.steps += 1
        assert self.added_s <= 0.03 * COST[0] * (self.steps + 1)
        for end in self.drafting.take_ended():
            assert end.request.is_draft
            assert end.reason is FinishReason.CANCELLED
            self.drafting.close_context(end.request.context_id)
        stops = {name for name in plain.request_ids if self.chance.random() < 0.1}
        flags = {name: StepFlags(name in stops) for name in plan.request_ids}
        ahead = [each.ahead(each_plan, self.now, 0.0) for each, each_plan in zip(self.pair, (plan, plain), strict=True)]
        self.steps += bool(ahead[0])
        assert of_streams(ahead[0]) == of_streams(ahead[1])
        assert len(of_streams(ahead[0])) == len(ahead[0].items), "no draft is in a step behind another one"
        ends = [each.finish_step(each_plan, flags, self.now) for each, each_plan in zip(self.pair, (plan, plain),
                                                                                      strict=True)]  # fmt: skip
        ended = [[end.request.request_id for end in each if not end.request.is_draft] for each in ends]
        assert ended[0] == ended[1]
        for end in ends[0]:
            if end.request.is_draft:
                self.drafting.close_context(end.request.context_id)
        for name in ("num_waiting", "num_active", "num_parked", "num_free_slots", "num_contexts"):
            assert getattr(self.drafting, name) == getattr(self.plain, name), name

    @property
    def pair(self) -> tuple[Scheduler, Scheduler]:
        return self.drafting, self.plain


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_steps_have_the_same_streams_with_drafts_and_without(seed: int) -> None:
    twins = Twins(random.Random(seed))
    twins.run(60)
    for number in range(twins.drafts + 1):
        twins.drafting.close_context(f"draft{number}")
    for context in {request.context_id for request in twins.plain._requests.values()}:
        for scheduler in twins.pair:
            scheduler.close_context(context)
    check_pool(twins.drafting.pool)
    assert twins.drafting.pool.num_available == 14
    assert sorted(twins.drafting._free_slots) == [0, 1, 2]


def test_the_twins_have_drafts_in_many_steps() -> None:
    num_made = 0
    for seed in range(20):
        twins = Twins(random.Random(seed))
        twins.run(60)
        num_made += twins.num_made
    assert num_made > 100


def test_a_draft_runs_alone_where_nothing_else_does_and_makes_no_more_than_its_patches() -> None:
    scheduler = make(StepCost(*COST))
    add_draft(scheduler, "draft")
    for number in range(5):
        plan = scheduler.schedule(0.0)
        assert plan.speaking == ["draft"]
        ends = finish(scheduler, plan, 0.0)
        assert bool(ends) is (number == 4)
    assert not scheduler.schedule(0.0)


def test_the_draft_with_the_fewest_patches_goes_first_and_a_step_of_drafts_is_short() -> None:
    scheduler = make(StepCost(0.005, 0.003, 0.0), max_streams=8)
    for number in range(6):
        add_draft(scheduler, f"draft{number}")
    assert scheduler.schedule(0.0).speaking == ["draft0", "draft1"]
    finish(scheduler, scheduler.schedule(0.0), 0.0)
    assert scheduler.schedule(0.0).speaking == ["draft2", "draft3"]


def test_no_draft_runs_where_its_step_would_make_a_parked_stream_late() -> None:
    scheduler = make(StepCost(0.05, 0.01, 0.0), park_low_s=0.01, park_high_s=0.3)
    add(scheduler, "stream")
    while scheduler.num_parked == 0:
        finish(scheduler, scheduler.schedule(0.0), 0.0)
    add_draft(scheduler, "draft")
    lead_s = scheduler._contexts["stream"].lead.ahead_s(0.0)
    assert scheduler.schedule(0.0).request_ids == ["draft"]
    assert not scheduler.schedule(lead_s - 0.05)


@pytest.mark.parametrize(("load", "slower"), [(0.8, 1.03), (0.3, 1.03)])
def test_first_packets_of_others_come_as_soon_where_every_turn_has_a_draft_that_is_never_used(
    load: float, slower: float
) -> None:
    """At 80 % of what the device carries in real time, and at 30 %, where a step is short."""
    plain_s, _ = p95_s(load, drafts=False)
    drafting_s, share = p95_s(load, drafts=True)
    assert drafting_s <= slower * plain_s
    assert share > (0.1 if load > 0.5 else 0.6), "drafts are of use"


def p95_s(load: float, *, drafts: bool, num_sessions: int = 600) -> tuple[float, float]:
    """Return the p95 of the time to the first packet, and the share of drafts that had one 0.4 s after their begin."""
    truth = (0.005, 0.00018, 0.00001)
    per_second = load * (PATCH_S - truth[0]) / truth[1] / (34.5 * PATCH_S)
    scheduler = make(
        StepCost(*truth), num_blocks=40_000, max_streams=1000, max_waiting=10_000, max_positions=4096, full_streams=128
    )
    simulation, chance = DraftSimulation(scheduler, StepCost(*truth)), random.Random(1)
    due_s, events = 0.0, []
    for number in range(num_sessions):
        due_s += chance.expovariate(per_second)
        events += [(due_s, 1, number), *([(max(0.0, due_s - 0.4), 0, number)] if drafts else [])]
    num_ready = 0
    for at_s, is_stream, number in sorted(events):
        simulation.run_until(at_s)
        name = f"draft{number}"
        if not is_stream:
            simulation.lengths[name] = 5
            add_draft(scheduler, name, simulation.now)
            continue
        pending = scheduler._requests.get(name)
        num_ready += name in simulation.made or (pending is not None and pending.num_patches > 0)
        scheduler.close_context(name)
        simulation.arrive(f"s{number}", 20 + 37 * number % 200, 15 + 13 * number % 40)
    times = sorted(simulation.ttfa_s[num_sessions // 4 :])
    return times[int(0.95 * len(times))], num_ready / num_sessions


class DraftSimulation(Simulation):
    """made: drafts that ended after their last patch."""

    def __init__(self, scheduler: Scheduler, truth: StepCost) -> None:
        super().__init__(scheduler, truth)
        self.made: set[str] = set()

    def run_until(self, at_s: float) -> None:
        scheduler = self.scheduler
        while self.now < at_s:
            plan = scheduler.schedule(self.now)
            scheduler.take_ended()
            if not plan:
                self.now = min(at_s, self.now + (scheduler.next_wakeup_s(self.now) or 1.0) + 1e-6)
                continue
            elapsed_s = self.truth.step_s(len(plan.items), plan.size.num_positions)
            self.now += elapsed_s
            requests = [scheduler._requests[item.request_id] for item in plan.items]
            flags = {each.request_id: StepFlags(each.num_patches + 1 >= self.lengths[each.request_id])
                     for each in requests}  # fmt: skip
            for name in plan.speaking:
                request = scheduler._requests[name]
                if not request.is_draft and request.num_patches == 0:
                    self.ttfa_s.append(self.now - self.arrived[name])
            for end in scheduler.finish_step(plan, flags, self.now, elapsed_s):
                if end.request.is_draft:
                    self.made.add(end.request.request_id)
                scheduler.close_context(end.request.context_id)
