"""Scheduling by playback: which stream goes first, which waits, and that none waits for ever."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import pytest
from block_pools import check_pool
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from realtime_tts.engine.core.block_pool import chain_hashes, prefix_root
from realtime_tts.engine.core.context_queue import ContextQueue
from realtime_tts.engine.core.request import (
    Finished,
    FinishReason,
    Request,
    Status,
    StepFlags,
    StepItem,
    StepPlan,
)
from realtime_tts.engine.core.scheduler import Scheduler
from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.core.step_cost import StepCost
from realtime_tts.engine.core.text_supply import TextSupply
from realtime_tts.errors import Overloaded, RequestTooLarge

PATCH_S = 0.16


FRONT = 20  # positions that no text changes


def prepare(request: Request) -> None:
    """A position is a character; behind an open text lies its end, which moves, and behind that what was spoken."""
    request.num_kept = request.num_prefill - request.num_laid_out - 1 if request.num_prefill else 0
    request.num_prefill = request.min_prefill + request.num_patches
    content = content_of(request)[: request.min_prefill if request.supply.is_final else FRONT]
    request.hashes = chain_hashes(prefix_root(request.request_id[0]), content)


def content_of(request: Request, num_patches: int | None = None) -> list[bytes]:
    """What is to lie at each position when everything has been computed that is known, or after so many patches."""
    text, num_patches = [b"x"] * (request.min_prefill - 1), request.num_patches if num_patches is None else num_patches
    return [*text, b"end", *(b"%s %d" % (request.request_id.encode(), n) for n in range(num_patches))]


def make(cost: StepCost | None = None, **changes: Any) -> Scheduler:
    limits = {"num_blocks": 64, "max_streams": 8, "max_positions": 512, "patch_s": PATCH_S, "gather_s": 0.0, **changes}
    return Scheduler(SchedulerConfig(**limits), prepare, cost)


def add(scheduler: Scheduler, name: str, now: float = 0.0, context: str | None = None, **fields: Any) -> Request:
    values = {"min_prefill": 20, "max_patches": 40, **fields}
    request = Request(name, context or name, **values)
    scheduler.add(request, now)
    return request


def run(scheduler: Scheduler, now: float, stop: tuple[str, ...] = (), bad: tuple[str, ...] = ()) -> list[Finished]:
    plan = scheduler.schedule(now)
    return finish(scheduler, plan, now, stop, bad)


def finish(
    scheduler: Scheduler, plan: StepPlan, now: float, stop: tuple[str, ...] = (), bad: tuple[str, ...] = ()
) -> list[Finished]:
    names = [item.request_id for item in (*plan.prefill, *plan.decode)]
    return scheduler.finish_step(plan, {name: StepFlags(name in stop, name not in bad) for name in names}, now)


def test_a_prefill_and_its_first_patch_are_one_step_and_then_positions_go_up_by_one() -> None:
    scheduler = make()
    request = add(scheduler, "a")
    plan = scheduler.schedule(0.0)
    (item,) = plan.prefill
    assert (item.start, item.num_positions, item.is_last, plan.decode) == (0, 20, True, ())
    assert plan.speaking == ["a"]
    assert len(item.blocks) == 4  # 20 + 40 − 1 positions
    finish(scheduler, plan, 0.0)
    assert request.status is Status.DECODE
    positions = []
    for _ in range(3):
        plan = scheduler.schedule(0.1)
        positions.append((plan.decode[0].start, plan.decode[0].patch_index))
        finish(scheduler, plan, 0.1)
    assert positions == [(20, 1), (21, 2), (22, 3)]


def test_stop_is_ignored_up_to_step_index_two_and_the_length_guard_always_ends() -> None:
    scheduler = make()
    add(scheduler, "a", paced=False)
    ends = [run(scheduler, 0.0, stop=("a",)) for _ in range(4)]
    assert ends[:3] == [[], [], []]
    assert [(end.reason, end.request.num_patches) for end in ends[3]] == [(FinishReason.STOP, 4)]
    add(scheduler, "b", max_patches=2, paced=False)
    assert run(scheduler, 0.0) == []
    assert run(scheduler, 0.0)[0].reason is FinishReason.LENGTH
    assert (scheduler.pool.num_available, scheduler.num_free_slots, scheduler.num_waiting) == (64, 8, 0)


def test_a_request_that_can_never_fit_is_refused_at_once() -> None:
    scheduler = make()
    with pytest.raises(RequestTooLarge):
        add(scheduler, "long", min_prefill=500, max_patches=14)
    with pytest.raises(RequestTooLarge):
        add(make(num_blocks=2), "big", min_prefill=20, max_patches=14)
    add(scheduler, "fits", min_prefill=500, max_patches=13)
    assert scheduler.num_waiting == 1


def test_a_full_queue_refuses() -> None:
    scheduler = make(max_waiting=1)
    add(scheduler, "a")
    with pytest.raises(Overloaded):
        add(scheduler, "b")


def test_a_queue_that_one_tenant_has_filled_still_takes_requests_of_others() -> None:
    scheduler = make(max_waiting=6, max_streams=2)
    for number in range(6):
        add(scheduler, f"greedy{number}", tenant="greedy")
    with pytest.raises(Overloaded):
        add(scheduler, "greedy6", tenant="greedy")
    for number in range(3):
        add(scheduler, f"honest{number}", tenant="honest")
    with pytest.raises(Overloaded):
        add(scheduler, "honest3", tenant="honest")
    with pytest.raises(Overloaded):
        add(scheduler, "greedy6", tenant="greedy")
    run(scheduler, 0.0)
    assert sorted(request.tenant for request in scheduler._active.values()) == ["greedy", "honest"]
    add(scheduler, "honest3", tenant="honest")


def test_many_tenants_with_few_requests_each_do_not_fill_the_queue_without_end() -> None:
    scheduler = make(max_waiting=6)
    num_taken = 0
    for number in range(100):
        with contextlib.suppress(Overloaded):
            add(scheduler, f"r{number}", tenant=str(number))
            num_taken += 1
    assert num_taken == 6


def test_requests_of_a_context_run_one_after_the_other() -> None:
    scheduler = make()
    add(scheduler, "a1", context="a", max_patches=2, paced=False)
    add(scheduler, "a2", context="a", paced=False)
    assert scheduler.schedule(0.0).speaking == ["a1"]
    run(scheduler, 0.0)
    assert run(scheduler, 0.0)[0].request.request_id == "a1"
    assert scheduler.schedule(0.0).speaking == ["a2"]


def test_a_cancel_between_plan_and_result_is_final() -> None:
    scheduler = make()
    add(scheduler, "a")
    plan = scheduler.schedule(0.0)
    end = scheduler.cancel("a")
    assert end is not None
    assert end.reason is FinishReason.CANCELLED
    assert (scheduler.pool.num_available, scheduler.num_free_slots) == (64, 8)
    assert finish(scheduler, plan, 0.0, stop=("a",)) == []
    assert scheduler.pool.num_cached == 0  # what the step computed may be overwritten already
    assert scheduler.cancel("a") is None


def test_a_context_that_closes_cancels_its_requests() -> None:
    scheduler = make()
    add(scheduler, "a1", context="a")
    add(scheduler, "a2", context="a")
    scheduler.schedule(0.0)
    assert [end.request.request_id for end in scheduler.close_context("a")] == ["a1", "a2"]
    assert scheduler.close_context("a") == []
    assert scheduler.num_contexts == 0


def test_a_stream_that_is_ahead_is_parked_until_playback_catches_up() -> None:
    scheduler = make()
    add(scheduler, "a", max_patches=100)
    steps = 0
    while plan := scheduler.schedule(0.0):
        finish(scheduler, plan, 0.0)
        steps += 1
    assert steps == 19  # 3.04 s
    assert (scheduler.num_parked, scheduler.num_active) == (1, 1)
    assert scheduler.next_wakeup_s(0.0) == pytest.approx(1.04)
    assert not scheduler.schedule(1.0)
    assert scheduler.schedule(1.05)
    scheduler.playback("a", 0.0, True, 1.05)  # nothing was heard, and the listener has paused
    assert not scheduler.schedule(60.0)
    assert scheduler.next_wakeup_s(60.0) is None
    scheduler.playback("a", 3.0, False, 60.0)
    assert scheduler.schedule(60.0)
    scheduler.playback("unknown", 1.0, False, 60.0)


def test_a_lead_is_of_the_listeners_seconds() -> None:
    scheduler = make()
    add(scheduler, "fast", max_patches=100, speed=2.0)
    steps = 0
    while plan := scheduler.schedule(0.0):
        finish(scheduler, plan, 0.0)
        steps += 1
    assert steps == 38  # 6.08 s, heard in 3.04
    assert scheduler.next_wakeup_s(0.0) == pytest.approx(1.04)
    scheduler.playback("fast", 3.0, False, 0.0)
    assert scheduler.schedule(0.0)


def test_a_context_whose_listener_is_gone_is_parked_at_once() -> None:
    scheduler = make()
    add(scheduler, "a", max_patches=100)
    run(scheduler, 0.0)
    scheduler.playback("a", -1e6, True, 0.1)
    assert not scheduler.schedule(0.1)
    scheduler.playback("a", 0.1, False, 5.0)
    assert scheduler.schedule(5.0)


def test_streams_with_a_lead_are_gathered_and_join_one_that_cannot_wait() -> None:
    scheduler = make(gather_s=0.04)
    for name in "ab":
        add(scheduler, name, max_patches=100)
    now, steps = 0.0, 0
    while all(context.lead.ahead_s(now) < 0.5 for context in scheduler._contexts.values()):
        finish(scheduler, scheduler.schedule(now), now)  # each at once
        steps += 1
        now += 0.001
    assert steps == 4
    assert not scheduler.schedule(now)
    wait_s = scheduler.next_wakeup_s(now)
    assert wait_s == pytest.approx(0.039)
    add(scheduler, "new", now)
    assert len(scheduler.schedule(now).items) == 3
    scheduler.close_context("new")
    plan = scheduler.schedule(now + wait_s + 0.04)
    assert [item.request_id for item in plan.decode] == ["a", "b"]
    finish(scheduler, plan, now + wait_s + 0.04)
    add(scheduler, "draft", now, is_draft=True)
    assert scheduler.schedule(now + wait_s + 0.041).request_ids == ["draft"]


def test_an_unpaced_request_is_never_parked() -> None:
    scheduler = make()
    add(scheduler, "a", max_patches=100, paced=False)
    for _ in range(99):
        assert run(scheduler, 0.0) == []
    assert run(scheduler, 0.0)[0].reason is FinishReason.LENGTH


def test_the_stream_closest_to_an_underrun_goes_first_and_one_with_a_lead_yields() -> None:
    scheduler = make(StepCost(0.0, 0.1, 0.0))
    add(scheduler, "ahead")
    for _ in range(10):
        run(scheduler, 0.0)
    add(scheduler, "dry", now=0.0)
    run(scheduler, 0.0)
    assert scheduler.schedule(0.0).speaking == ["dry"]  # 0.16 s left: time for one stream, not for two


def test_a_prefill_is_cut_so_that_a_running_stream_is_not_late() -> None:
    scheduler = make(StepCost(0.0, 0.01, 0.001))
    add(scheduler, "running")
    run(scheduler, 0.0)
    add(scheduler, "new", now=0.0, min_prefill=400, max_patches=10)
    starts = []
    now = 0.0
    for _ in range(30):
        plan = scheduler.schedule(now)
        cost_s = scheduler.cost.step_s(len(plan.prefill) + len(plan.decode), plan.size.num_positions)
        underrun_s = scheduler._contexts["running"].lead.underrun_s
        now += cost_s
        if "running" in plan.speaking:
            assert now <= underrun_s + 1e-9
        else:
            assert now + 0.01 <= underrun_s + 1e-9
        starts += [(item.start, item.num_positions) for item in plan.prefill]
        finish(scheduler, plan, now)
        if plan.prefill and plan.prefill[0].is_last:
            break
    assert sum(num for _, num in starts) == 400
    assert len(starts) > 1
    assert all(start % 16 == 0 for start, _ in starts)


def test_a_prefill_longer_than_the_budget_is_computed_in_whole_blocks() -> None:
    scheduler = make(max_prefill_positions=40)
    add(scheduler, "a", min_prefill=100)
    chunks = []
    for _ in range(3):
        plan = scheduler.schedule(0.0)
        chunks += [(item.start, item.num_positions, item.is_last) for item in plan.prefill]
        finish(scheduler, plan, 0.0)
    assert chunks == [(0, 32, False), (32, 32, False), (64, 36, True)]


def test_two_prefills_share_the_budget() -> None:
    scheduler = make(max_prefill_positions=40)
    add(scheduler, "a", min_prefill=30)
    add(scheduler, "b", min_prefill=30)
    plan = scheduler.schedule(0.0)
    assert [(item.request_id, item.num_positions) for item in plan.prefill] == [("a", 30)]


def test_a_request_without_room_keeps_its_place_in_the_queue() -> None:
    scheduler = make(num_blocks=8)
    add(scheduler, "a", min_prefill=20, max_patches=60)  # 5 blocks
    scheduler.schedule(0.0)
    add(scheduler, "large", now=0.1, min_prefill=20, max_patches=60)
    add(scheduler, "small", now=0.2, min_prefill=10, max_patches=5)
    plan = scheduler.schedule(0.3)
    assert [item.request_id for item in plan.prefill] == ["a"]
    scheduler.cancel("a")
    assert [item.request_id for item in scheduler.schedule(0.4).prefill] == ["large", "small"]


def test_priority_moves_a_deadline_and_can_be_changed_for_a_context() -> None:
    scheduler = make(max_streams=1)
    add(scheduler, "low", priority=1)
    add(scheduler, "high", priority=-1)
    assert scheduler.schedule(0.0).speaking == ["high"]
    scheduler.cancel("high")
    scheduler.cancel("low")
    add(scheduler, "old")
    add(scheduler, "new")
    scheduler.set_priority("old", 99)
    scheduler.set_priority("nobody", 1)
    assert scheduler.schedule(0.0).speaking == ["new"]


def test_a_cached_prefix_is_not_computed_again() -> None:
    scheduler = make()
    add(scheduler, "a1", min_prefill=40)
    run(scheduler, 0.0)
    request = add(scheduler, "a2", min_prefill=40)  # the same first letter, the same content in these tests
    plan = scheduler.schedule(0.0)
    assert [(item.start, item.num_positions) for item in plan.prefill] == [(32, 8)]
    assert request.num_cached == 32


def test_a_stream_with_nan_fails_alone_and_leaves_the_cache() -> None:
    scheduler = make()
    add(scheduler, "a", min_prefill=40)
    add(scheduler, "b", min_prefill=40)
    run(scheduler, 0.0)
    assert scheduler.pool.num_cached == 4
    (end,) = run(scheduler, 0.0, bad=("a",))
    assert (end.request.request_id, end.reason, end.error_code) == ("a", FinishReason.FAILED, "numerical_error")
    assert scheduler.pool.num_cached == 2
    assert scheduler.schedule(0.0).speaking == ["b"]


def test_a_failed_batch_ends_typed() -> None:
    scheduler = make()
    add(scheduler, "a")
    ends = scheduler.fail(["a", "gone"], "engine_out_of_memory", "no memory")
    assert [end.error_code for end in ends] == ["engine_out_of_memory"]


def test_misuse_fails_an_assertion() -> None:
    scheduler = make()
    add(scheduler, "a")
    with pytest.raises(AssertionError, match="in use"):
        add(scheduler, "a")
    lying = Scheduler(scheduler.config, lambda request: setattr(request, "num_prefill", 999))
    add(lying, "a")
    with pytest.raises(AssertionError, match="prepared a prefill of 999"):
        lying.schedule(0.0)


def test_the_cost_of_a_step_is_learned() -> None:
    cost = StepCost()
    for step in range(3000):
        streams, positions = step % 64 + 1, 40 if step % 5 == 0 else 0
        cost.observe(streams, positions, 0.004 + 0.0002 * streams + 0.0001 * positions)
    assert cost.step_s(64, 0) == pytest.approx(0.0168, rel=0.2)
    before = cost.step_s(10, 0)
    cost.observe(10, 0, 60.0)
    assert cost.step_s(10, 0) < 1.2 * before
    assert cost.affordable_positions(1, 0.0) == 0
    assert cost.affordable_positions(1, float("inf")) > 10**6


class Simulation:
    """A fake runner: a step takes what `truth` says; speech has its planned length; listeners play in real time."""

    def __init__(self, scheduler: Scheduler, truth: StepCost) -> None:
        self.scheduler, self.truth, self.now = scheduler, truth, 0.0
        self.lengths: dict[str, int] = {}
        self.arrived: dict[str, float] = {}
        self.ttfa_s: list[float] = []
        self.stalled: set[str] = set()
        self.ended: dict[str, Finished] = {}

    def arrive(self, name: str, num_prefill: int, num_patches: int) -> None:
        self.lengths[name] = num_patches
        self.arrived[name] = self.now
        self.scheduler.add(Request(name, name, num_prefill, num_patches + 5), self.now)

    def step(self) -> bool:
        plan = self.scheduler.schedule(self.now)
        if not plan:
            return False
        elapsed_s = self.truth.step_s(len(plan.prefill) + len(plan.decode), plan.size.num_positions)
        self.now += elapsed_s
        for name in plan.speaking:
            request = self.scheduler._requests[name]
            lead = self.scheduler._contexts[name].lead
            if request.num_patches == 0:
                self.ttfa_s.append(self.now - self.arrived[name])
            elif self.now > lead.underrun_s:
                self.stalled.add(name)
        flags = {}
        for item in (*plan.prefill, *plan.decode):
            request = self.scheduler._requests[item.request_id]
            flags[item.request_id] = StepFlags(request.num_patches + 1 >= self.lengths[item.request_id])
        for end in self.scheduler.finish_step(plan, flags, self.now, elapsed_s):
            assert end.request.request_id not in self.ended
            self.ended[end.request.request_id] = end
            self.scheduler.close_context(end.request.context_id)
        return True


def simulate(num_sessions: int, per_second: float, truth: StepCost) -> Simulation:
    scheduler = make(num_blocks=40_000, max_streams=600, max_waiting=10_000, max_positions=4096)
    simulation = Simulation(scheduler, truth)
    for number in range(num_sessions):
        due_s = number / per_second
        while simulation.now < due_s:
            if not simulation.step():
                simulation.now = min(due_s, simulation.now + (scheduler.next_wakeup_s(simulation.now) or 1.0) + 1e-6)
        simulation.arrive(f"s{number}", 20 + 37 * number % 200, 15 + 13 * number % 40)
    for _ in range(100_000):
        if len(simulation.ended) == num_sessions:
            break
        if not simulation.step():
            simulation.now += (scheduler.next_wakeup_s(simulation.now) or 0.0) + 1e-6
    return simulation


@pytest.mark.parametrize("per_second", [20.0, 60.0])
def test_two_thousand_sessions_within_capacity_start_soon_and_never_stall(per_second: float) -> None:
    # A patch costs 0.18 ms at the margin and 5 ms a step: capacity about 850 streams; 60 a second of 5.5 s are 330.
    simulation = simulate(2000, per_second, StepCost(0.005, 0.00018, 0.00001))
    assert len(simulation.ended) == 2000
    assert {end.reason for end in simulation.ended.values()} == {FinishReason.STOP}
    assert sorted(simulation.ttfa_s)[1900] < 0.1
    assert not simulation.stalled
    pool = simulation.scheduler.pool
    check_pool(pool)
    assert pool.num_available == pool.num_blocks
    assert simulation.scheduler.num_free_slots == 600


def test_under_overload_every_request_is_served_late() -> None:
    simulation = simulate(400, 200.0, StepCost(0.02, 0.002, 0.0001))  # many times what the device can do
    assert len(simulation.ended) == 400
    assert simulation.stalled


def test_two_streams_on_a_slow_device_are_both_in_time() -> None:
    simulation = simulate(2, 0.5, StepCost(0.01, 0.045, 0.0003))
    assert not simulation.stalled
    assert max(simulation.ttfa_s) < 0.2


def test_a_step_is_full_of_streams_that_can_wait_and_ends_at_twice_as_many() -> None:
    scheduler = make(StepCost(0.005, 0.0002, 0.0), max_streams=12, full_streams=3, num_blocks=200)
    names = [f"r{number}" for number in range(9)]
    for name in names:
        add(scheduler, name)
    sizes = []
    while len(sizes) < 4:
        plan = scheduler.schedule(0.01)
        sizes.append((len(plan.prefill), len(plan.decode)))
        finish(scheduler, plan, 0.01)
    assert sizes[0] == (6, 0)  # none of them has spoken: they cannot wait, but a step has an end
    assert sizes[1] == (3, 0)  # none of the streams with audio makes it longer
    assert sizes[2:] == [(0, 3)] * 2  # leads: a few at a time
    for name in names:
        scheduler.playback(name, 10.0, False, 0.02)  # all have run dry
    assert len(scheduler.schedule(0.02).decode) == 6


def test_streams_with_an_ample_lead_fill_half_a_step() -> None:
    scheduler = make(StepCost(0.005, 0.0002, 0.0), max_streams=12, full_streams=4, num_blocks=200)
    for number in range(8):
        add(scheduler, f"r{number}")
    sizes = []
    for _ in range(20):
        plan = scheduler.schedule(0.0)
        sizes.append(len(plan.items))
        finish(scheduler, plan, 0.0)
    num_full = 8 * 6 // 4  # until all have seven patches, more than a second
    assert sizes == [8, *[4] * num_full, *[2] * (19 - num_full)]


def test_while_streams_are_late_no_step_is_short_for_one_that_is_not() -> None:
    """With deadlines as dense as under load, each step would hold a few streams, and all would become late."""
    scheduler = make(StepCost(0.01, 0.001, 0.0), max_streams=12, full_streams=4, num_blocks=200)
    for number in range(8):
        add(scheduler, f"r{number}")
    for _ in range(6):
        finish(scheduler, scheduler.schedule(0.0), 0.0)
    leads_s = {f"r{number}": 0.9 for number in range(8)} | {"r0": 0.0115}  # a step has no room for another stream

    def names() -> list[str]:
        for name, lead_s in leads_s.items():
            scheduler.playback(name, scheduler._contexts[name].lead.produced_s - lead_s, False, 0.0)
        return scheduler.schedule(0.0).request_ids

    assert names() == ["r0"]
    leads_s["r1"] = 0.005
    assert names()[:2] == ["r0", "r1"]


def test_a_new_stream_waits_for_a_full_step_and_not_for_all_streams() -> None:
    """A device that has time left fills leads with it; in steps over all of them it would keep newcomers waiting."""
    truth = (0.005, 0.0002, 0.00001)
    first_s = []
    for full in (32, 1 << 30):
        scheduler = make(StepCost(*truth), num_blocks=40_000, max_streams=600, max_positions=4096, full_streams=full)
        simulation = Simulation(scheduler, StepCost(*truth))
        for number in range(400):
            simulation.arrive(f"s{number}", 30, 60)
        while len(simulation.ttfa_s) < 400:
            simulation.step()
        begun = len(simulation.ttfa_s)
        for number in range(20):
            simulation.arrive(f"late{number}", 30, 60)
            until_s = simulation.now + 0.02
            while simulation.now < until_s:
                assert simulation.step()
        while len(simulation.ttfa_s) < begun + 20:
            simulation.step()
        first_s.append(max(simulation.ttfa_s[begun:]))
    assert first_s[0] < 0.04 < 0.08 < first_s[1]


MAX_LEFT_S = 0.3  # of a step, when the next one is planned


class SchedulerMachine(RuleBasedStateMachine):
    """Any order of arrivals, more text, steps, cancels, playback and failures keeps every promise."""

    full_streams, gather_s = 1, 0.0  # others fill a step

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = make(
            num_blocks=14,
            max_streams=3,
            max_positions=96,
            max_prefill_positions=32,
            max_waiting=6,
            full_streams=self.full_streams,
            gather_s=self.gather_s,
        )
        self.scheduler._groups.spare_times = 0
        self.now = 0.0
        self.count = 0
        self.accepted: set[str] = set()
        self.ended: set[str] = set()
        self.plan: StepPlan | None = None
        self.next: StepPlan | None = None  # behind it, planned before it was accounted for
        self.cells: dict[tuple[int, int], bytes] = {}  # what lies at (block, offset)

    def end(self, ends: list[Finished]) -> None:
        for finished in ends:
            name = finished.request.request_id
            assert name in self.accepted
            assert name not in self.ended, "two terminal events"
            self.ended.add(name)

    @rule(
        context=st.sampled_from("abcde"),
        prefill=st.integers(1, 60),
        patches=st.integers(1, 50),
        paced=st.booleans(),
        priority=st.integers(-9, 9),
        own_flow_steps=st.sampled_from((0, 0, 4, 20, 64)),
    )
    def arrive(self, context: str, prefill: int, patches: int, paced: bool, priority: int, own_flow_steps: int) -> None:
        self.count += 1
        name = f"{context}{self.count}"
        try:
            add(
                self.scheduler, name, self.now, context,
                min_prefill=prefill, max_patches=patches, paced=paced, priority=priority, tenant=context,
                own_flow_steps=own_flow_steps, work=max(1.0, own_flow_steps / 10),
            )  # fmt: skip
        except RequestTooLarge:
            assert prefill + patches - 1 > 96
        except Overloaded:
            assert self.scheduler.num_waiting >= 6  # a tenant below its share may wait beyond that
        else:
            self.accepted.add(name)

    @rule(
        context=st.sampled_from("abcde"), known=st.integers(FRONT, 50), longest=st.integers(20, 90), paced=st.booleans()
    )
    def begin_text(self, context: str, known: int, longest: int, paced: bool) -> None:
        self.count += 1
        name = f"{context}{self.count}"
        supply = TextSupply(known - FRONT, is_final=False)
        try:
            add(
                self.scheduler, name, self.now, context,
                min_prefill=known + 1, max_patches=known // 4, max_positions=longest, paced=paced, supply=supply,
            )  # fmt: skip
        except Overloaded:
            assert self.scheduler.num_waiting >= 6  # a tenant below its share may wait beyond that
        else:
            self.accepted.add(name)

    def open_requests(self) -> list[Request]:
        return [request for request in self.scheduler._requests.values() if not request.supply.is_final]

    @precondition(lambda self: self.open_requests())
    @rule(data=st.data(), more=st.integers(0, 20), final=st.booleans())
    def go_on_with_text(self, data: st.DataObject, more: int, final: bool) -> None:
        request = data.draw(st.sampled_from(self.open_requests()))
        before = request.supply.known
        known = request.min_prefill - 1 + more
        try:
            self.scheduler.extend(request.request_id, known - FRONT, final, known + 1, known // 4)
        except (RequestTooLarge, Overloaded):
            assert known + max(request.max_patches, known // 4) > request.max_positions
            assert request.supply.known == before
            self.end([self.scheduler.end(request.request_id, FinishReason.FAILED)])

    def write(self, item: StepItem, request: Request) -> None:
        """What a step leaves in the blocks; no other request may hold those, nor find them."""
        content, size = content_of(request, item.patch_index), 16
        for position in range(item.start, item.end):
            block = item.blocks[position // size]
            assert self.scheduler.pool._references[block] == 1
            assert block not in self.scheduler.pool._hash_of
            self.cells[block, position % size] = content[position]

    @precondition(lambda self: self.plan is None)
    @rule()
    def schedule(self) -> None:
        plan = self.scheduler.schedule(self.now)
        unparked = [
            head
            for context in self.scheduler._contexts.values()
            for head in list(context.requests)[:1]
            if not context.holds_back(head) and not self.scheduler._text_waits.lacks_text(head)
        ]
        resting = [request for request in unparked if request.slot >= 0 and self.scheduler._rests(request, self.now)]
        slots_or_blocks_held = self.scheduler._active
        assert plan or not unparked or slots_or_blocks_held, "work, room and no step"
        num_held_up = self.scheduler.num_parked + self.scheduler.num_awaiting_text + len(resting)
        # The interval begins with the last step, which may have been planned for a time up to `MAX_LEFT_S` ahead.
        latest_s = self.now + MAX_LEFT_S + self.gather_s
        is_gathering = self.scheduler._gathers and self.now < self.scheduler._gathers_until_s <= latest_s
        assert plan or is_gathering or self.scheduler.num_active == num_held_up, "a running stream and no step"
        hurries = [head for head in unparked if not head.paced or head.num_patches == 0]
        assert plan or not any(head.slot >= 0 for head in hurries if head not in resting), "one cannot wait"
        names = [item.request_id for item in (*plan.prefill, *plan.decode)]
        assert len(set(names)) == len(names)
        assert plan.size.num_positions <= 32
        speaking = [self.scheduler._requests[name] for name in plan.speaking]
        assert {request.own_flow_steps for request in speaking} - {0} == (
            {plan.own_flow_steps} if plan.own_flow_steps else set()
        )
        assert plan.extra_work == pytest.approx(sum(request.work - 1 for request in speaking))
        slots = [item.slot for item in (*plan.prefill, *plan.decode)]
        assert len(set(slots)) == len(slots)
        for item in (*plan.prefill, *plan.decode):
            self.write(item, self.scheduler._requests[item.request_id])
        self.plan = plan
        self.every_context_is_in_the_group_that_a_full_scan_gives()

    def every_context_is_in_the_group_that_a_full_scan_gives(self) -> None:
        scheduler, grouped = self.scheduler, self.scheduler._groups
        for context in scheduler._contexts.values():
            groups = [group for group in (grouped.waiting, grouped.running, grouped.parked) if context in group]
            if not context.requests:
                assert groups == []
                continue
            head, ahead_s = context.requests[0], context.lead.ahead_s(self.now)
            limit_s = context.resume_s
            if head.supply.is_final:
                limit_s = scheduler.config.park_low_s if context.parked else scheduler.config.park_high_s
            assert abs(ahead_s - limit_s) < 1e-9 or context.parked is (ahead_s > limit_s)
            if head.status is Status.WAITING:
                assert groups == [grouped.waiting]
            else:
                assert groups == [grouped.parked if context.parked and head.paced else grouped.running]
        alive = set(scheduler._contexts.values())
        assert {*grouped.waiting, *grouped.running, *grouped.parked} <= alive
        assert len(grouped._resumes) <= 2 * len(alive) + grouped.spare_times + 1

    @precondition(lambda self: self.plan is not None and self.next is None)
    @rule(left=st.floats(0, MAX_LEFT_S))
    def look_ahead(self, left: float) -> None:
        assert self.plan is not None
        others_fill = self.scheduler.others_fill_a_step(self.plan)
        before = {name: dataclasses.asdict(request) for name, request in self.scheduler._active.items()}
        following = self.scheduler.ahead(self.plan, self.now, left)
        in_both = set(following.request_ids) & set(self.plan.request_ids)
        assert not (others_fill and in_both)
        assert all(dataclasses.asdict(self.scheduler._active[name]) == before[name] for name in in_both)
        assert len(following.request_ids) <= 2 * self.full_streams
        ends = {item.request_id: (item.end, item.patch_index + 1) for item in self.plan.items}
        for item in following.items:
            request = self.scheduler._requests[item.request_id]
            if item.request_id in in_both:
                assert (item.start, item.patch_index) == ends[item.request_id]
                assert item.patch_index < request.max_patches
            self.write(item, request)
        self.next = following

    @precondition(lambda self: self.plan is not None)
    @rule(data=st.data(), elapsed=st.floats(0, 0.3))
    def finish(self, data: st.DataObject, elapsed: float) -> None:
        assert self.plan is not None
        self.now += elapsed
        flags = {}
        for item in (*self.plan.prefill, *self.plan.decode):
            stop, finite = data.draw(st.booleans()), data.draw(st.integers(0, 9)) > 0
            flags[item.request_id] = StepFlags(stop, finite)
            active = self.scheduler._active.get(item.request_id)
            if active is not None:
                assert active.num_patches < active.max_patches
        self.end(self.scheduler.finish_step(self.plan, flags, self.now, elapsed))
        self.plan, self.next = self.next, None

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.accepted)))
        end = self.scheduler.cancel(name)
        assert (end is None) == (name in self.ended)
        self.end([end] if end else [])

    @rule(context=st.sampled_from("abcde"))
    def close(self, context: str) -> None:
        self.end(self.scheduler.close_context(context))

    @rule(context=st.sampled_from("abcde"), played=st.floats(0, 10), paused=st.booleans())
    def play(self, context: str, played: float, paused: bool) -> None:
        self.scheduler.playback(context, played, paused, self.now)

    @rule(duration=st.floats(0, 3))
    def wait(self, duration: float) -> None:
        self.now += duration

    @invariant()
    def nothing_leaks(self) -> None:
        scheduler = self.scheduler
        check_pool(scheduler.pool)
        assert set(scheduler._requests) == self.accepted - self.ended
        held = {block for request in scheduler._active.values() for block in request.blocks}
        assert scheduler.pool.num_available == 14 - len(held)
        active = scheduler._active.values()
        assert scheduler._num_own_flow_steps == sum(request.own_flow_steps > 0 for request in active)
        slots = [request.slot for request in active]
        assert sorted([*slots, *scheduler._free_slots]) == [0, 1, 2]

    @invariant()
    def what_is_found_is_what_was_computed(self) -> None:
        """A hash in the cache belongs to a block of final text, or of what lies in front of any."""
        for block in self.scheduler.pool._hash_of:
            assert {self.cells[block, offset] for offset in range(16)} <= {b"x", b"end"}
        for request in self.scheduler._active.values():
            expected = content_of(request)
            if request.supply.is_read:
                for position in range(min(request.num_computed, len(expected))):
                    assert self.cells[request.blocks[position // 16], position % 16] == expected[position]

    def teardown(self) -> None:
        """Whatever happened, every request can be served to the end."""
        for context in "abcde":
            self.scheduler.playback(context, 1e9, False, self.now)
        for request in self.open_requests():
            self.scheduler.extend(
                request.request_id, request.supply.known, True, request.min_prefill, request.max_patches
            )
        for _ in range(3000):
            if not self.scheduler._requests:
                break
            plan = self.scheduler.schedule(self.now)
            self.now += 0.05 if plan else 0.5
            self.end(finish(self.scheduler, plan, self.now))
        assert self.ended == self.accepted
        assert self.scheduler.pool.num_available == 14


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class GoingOnMachine(SchedulerMachine):
    """The same where the streams of one step go on in the next, which is planned before it is over, and where those
    with a lead are gathered."""

    full_streams, gather_s = 3, 0.2


TestGoingOnMachine = GoingOnMachine.TestCase
TestGoingOnMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_parked_contexts_without_a_change_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred listeners with all the audio that they may have cost a step nothing."""
    scheduler = make(StepCost(0.001, 0.00001, 0.0), num_blocks=2000, max_streams=256, max_prefill_positions=100_000)
    for number in range(200):
        add(scheduler, f"r{number}")
    while scheduler.num_parked < 200:
        run(scheduler, 0.0)
    add(scheduler, "late")
    looked_at: list[ContextQueue] = []
    look = ContextQueue.update_parking
    monkeypatch.setattr(
        ContextQueue,
        "update_parking",
        lambda context, now, turn_s: (looked_at.append(context), look(context, now, turn_s))[1],
    )
    for number in range(10):
        plan = scheduler.schedule(0.01 * number)
        assert plan.request_ids == ["late"]
        finish(scheduler, plan, 0.01 * number)
    assert set(looked_at) - {scheduler._contexts["late"]} <= set(looked_at[:201])  # what was new at first
    assert len(looked_at) < 201 + 20
    assert len(scheduler.schedule(1.2).decode) == 201  # their leads have shrunk


def test_the_times_at_which_parked_contexts_go_on_are_not_kept_for_ever() -> None:
    """A listener without further reports, which needs nothing for years, may report that again and again."""
    scheduler = make()
    add(scheduler, "a")
    run(scheduler, 0.0)
    for number in range(1000):
        scheduler.playback("a", -1e9 - number, False, 0.0)
        assert not scheduler.schedule(0.0)
    assert scheduler.num_parked == 1
    assert len(scheduler._groups._resumes) < 100
    scheduler.close_context("a")
    for number in range(200):
        add(scheduler, f"r{number}", context="b")
        scheduler.playback("b", -1e9 - number, False, 0.0)
        scheduler.schedule(0.0)
        scheduler.close_context("b")
    assert len(scheduler._groups._resumes) < 100


def test_the_number_of_streams_in_real_time_is_reported() -> None:
    streams = {
        cost: make(StepCost(*cost)).num_real_time_streams
        for cost in ((0.03, 0.03, 0.0), (0.001, 0.001, 0.0), (1.0, 1.0, 0.0))
    }
    assert list(streams.values()) == [4, 8, 1], "as many as fit a patch of 160 ms, the slots, and never none"
