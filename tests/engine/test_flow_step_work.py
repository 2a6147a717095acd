"""Flow steps are work: a tenant that requests many of them has fewer streams, and makes no other tenant late."""

from __future__ import annotations

import random
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.engine.core.fairness import beyond_one_group, beyond_share, in_turn
from realtime_tts.engine.core.request import Request, StepFlags, StepPlan
from realtime_tts.engine.core.scheduler import Scheduler
from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.core.step_cost import StepCost

PATCH_S, USUAL_STEPS = 0.16, 10
# A device that replays graphs: 5 ms a step, 0.3 ms a stream, and 2 ms for each flow step of a group without a graph.
TRUTH = StepCost(0.005, 0.0003, 0.00002, 0.002)


def make(cost: StepCost | None = None, **changes: Any) -> Scheduler:
    def prepare(request: Request) -> None:
        request.num_prefill, request.hashes = request.min_prefill, [b"x"] * request.min_prefill

    limits = {"num_blocks": 40_000, "max_streams": 256, "max_positions": 1024, "patch_s": PATCH_S, **changes}
    return Scheduler(SchedulerConfig(**limits), prepare, cost)


def request(name: str, tenant: str, steps: int = USUAL_STEPS, **fields: Any) -> Request:
    values: dict[str, Any] = {"min_prefill": 16, "max_patches": 60, **fields}
    own_flow_steps = 0 if steps == USUAL_STEPS else steps
    return Request(
        name, name, tenant=tenant, work=max(1.0, steps / USUAL_STEPS), own_flow_steps=own_flow_steps, **values
    )


def steps_of(plan: StepPlan, requests: dict[str, Request]) -> set[int]:
    return {requests[name].own_flow_steps for name in plan.speaking} - {0}


class Simulation:
    """Steps take what `TRUTH` says; the scheduler learns that. Listeners play in real time, without a pre-buffer."""

    def __init__(self) -> None:
        self.scheduler, self.now = make(), 0.0
        self.steps: dict[str, int] = {}
        self.requests: dict[str, Request] = {}
        self.first_s: list[float] = []  # of the honest
        self.stalls_s: list[float] = []  # likewise
        self.num_heavy = 0

    def arrive(self, request: Request) -> None:
        self.requests[request.request_id] = request
        self.scheduler.add(request, self.now)

    def run_until(self, end_s: float) -> None:
        while self.now < end_s:
            plan = self.scheduler.schedule(self.now)
            if not plan:
                self.now += 0.005
                continue
            size = plan.size
            elapsed_s = TRUTH.step_s(*size)
            self.now += elapsed_s
            for name in plan.speaking:
                self._hear(self.requests[name])
            names = [item.request_id for item in (*plan.prefill, *plan.decode)]
            for end in self.scheduler.finish_step(plan, dict.fromkeys(names, StepFlags()), self.now, elapsed_s):
                self.scheduler.close_context(end.request.context_id)

    def _hear(self, request: Request) -> None:
        if request.tenant == "greedy":
            self.num_heavy += 1
            return
        lead = self.scheduler._contexts[request.context_id].lead
        if request.num_patches == 0:
            self.first_s.append(self.now - request.arrived_s)
        elif self.now > lead.underrun_s:
            self.stalls_s.append(self.now - lead.underrun_s)


@pytest.mark.parametrize("steps", [[64] * 4, [64, 63, 62, 61]], ids=["one group", "four groups"])
def test_contexts_with_many_flow_steps_make_no_other_context_late(steps: list[int]) -> None:
    simulation = Simulation()
    for turn in range(20):
        for number in range(6):
            simulation.arrive(request(f"honest {turn}.{number}", "honest", max_patches=20))
            simulation.run_until(simulation.now + 0.2)
        if turn == 2:
            for number, heavy in enumerate(steps):
                simulation.arrive(request(f"greedy {number}", "greedy", heavy, max_patches=200))
    group_s = TRUTH.step_s(64 / USUAL_STEPS * len(steps), 0, 64)
    assert max(simulation.first_s) < group_s + 0.05, "one step that has begun, and one's own"
    assert statistics.median(simulation.first_s) <= 3 * min(simulation.first_s), "such a step is met seldom"
    assert not simulation.stalls_s
    assert simulation.num_heavy >= 20, "they are served all the same"


def test_a_step_has_one_group_without_a_graph_and_each_group_has_its_turn() -> None:
    scheduler = make(StepCost(0.001, 0.0001, 0.0, 0.0001))
    requests = {str(steps): request(str(steps), "a", steps, paced=False) for steps in (10, 12, 20, 64)}
    requests |= {f"{steps}b": request(f"{steps}b", "b", steps, paced=False) for steps in (10, 20)}
    for one in requests.values():
        scheduler.add(one, 0.0)
    groups, now, num_finished = [], 0.0, 0
    while num_finished < len(requests):
        plan = scheduler.schedule(now)
        if not plan:
            wait_s = scheduler.next_wakeup_s(now)
            assert wait_s, "groups rest, and it is known until when"
            now += wait_s
            continue
        found = steps_of(plan, requests)
        assert len(found) <= 1
        assert plan.own_flow_steps == max(found, default=0)
        groups += found
        now += 0.01
        num_finished += len(scheduler.finish_step(plan, dict.fromkeys(plan.request_ids, StepFlags()), now))
    assert set(groups) == {12, 20, 64}


def test_an_input_that_is_only_read_takes_no_groups_turn() -> None:
    scheduler = make(StepCost(0.001, 0.0001, 0.0, 0.0001), max_prefill_positions=64)
    requests = {name: request(name, "a", steps, min_prefill=40) for name, steps in (("first", 12), ("second", 20))}
    for one in requests.values():
        scheduler.add(one, 0.0)
    plan = scheduler.schedule(0.0)
    assert [(item.request_id, item.num_positions, item.is_last) for item in plan.prefill] == [
        ("first", 40, True),
        ("second", 16, False),
    ]
    assert (plan.own_flow_steps, plan.size.work) == (12, 1.2 + 1)


def test_streams_that_make_steps_long_yield_to_another_tenants() -> None:
    cost = StepCost(0.005, 0.0003, 0.0, 0.002)
    scheduler = make(cost)
    heavy = [request(f"h{number}", "greedy", 64) for number in range(3)]
    for one in heavy:
        scheduler.add(one, 0.0)
    plan = scheduler.schedule(0.0)
    assert len(plan.speaking) == 3, "a tenant that is alone waits for itself only"
    scheduler.finish_step(plan, dict.fromkeys(plan.request_ids, StepFlags()), 0.15)
    scheduler.add(request("honest", "honest"), 0.2)
    plan = scheduler.schedule(0.5)
    assert plan.speaking == ["honest"], "all of the others are late, and due later"
    scheduler.finish_step(plan, dict.fromkeys(plan.request_ids, StepFlags()), 0.51)
    scheduler.playback("honest", -1e6, True, 0.51)
    plan = scheduler.schedule(0.52)
    assert plan.own_flow_steps == 64, "there is time for them"
    scheduler.finish_step(plan, dict.fromkeys(plan.request_ids, StepFlags()), 0.68)
    assert not scheduler.schedule(0.69), "their step was long, and they rest"
    wait_s = scheduler.next_wakeup_s(0.69)
    assert wait_s == pytest.approx(0.52 + 4 * cost.step_s(*plan.size) - 0.69)
    assert scheduler.schedule(0.69 + wait_s).own_flow_steps == 64


# ---- shares ----------------------------------------------------------------------------------------------------------


def test_the_tenant_with_the_least_work_gets_the_next_slot() -> None:
    active = [request("a1", "a", 64), request("b1", "b"), request("b2", "b")]
    waiting = [request("a2", "a"), request("b3", "b")]
    turns = list(in_turn(waiting, active, {"a2": 0.0, "b3": 1.0}))
    assert [one.request_id for one in turns] == ["b3", "a2"]


def test_what_the_device_can_carry_is_shared_by_work() -> None:
    heavy = [request(f"h{number}", "a", 40, started_s=float(number)) for number in range(3)]
    light = [request(f"l{number}", "b", started_s=float(number)) for number in range(10)]
    assert beyond_share([*heavy, *light], 22) == set()
    assert beyond_share([*heavy, *light], 18) == {"h2", "l9"}, "nine each"
    assert beyond_share([*heavy, *light], 4) == {"h0", "h1", "h2", *(f"l{number}" for number in range(2, 10))}
    assert beyond_share(heavy, 4) == set(), "it has no other to share with"


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(2, 64)), max_size=30),
    st.integers(0, 60),
)
def test_no_tenant_has_more_work_than_a_share_while_another_lacks_some(
    wanted: list[tuple[str, int]], capacity: int
) -> None:
    requests = [request(f"{n:03}", tenant, steps, started_s=float(n)) for n, (tenant, steps) in enumerate(wanted)]
    excess = beyond_share(requests, capacity)
    carried: dict[str, float] = {}
    for one in requests:
        carried[one.tenant] = carried.get(one.tenant, 0.0) + (0.0 if one.request_id in excess else one.work)
    if excess:
        assert sum(carried.values()) <= max(capacity, len(carried)) + 1e-3
    for tenant in {one.tenant for one in requests if one.request_id in excess}:
        first = next(one for one in requests if one.tenant == tenant and one.request_id in excess)
        most = max((work for other, work in carried.items() if other != tenant), default=0.0)
        assert carried[tenant] + first.work > most - 1e-3, "with its next one it would have more than any other"


def test_of_each_tenant_one_group_has_a_turn_before_the_others() -> None:
    many = [request(f"m{steps}", "many", steps, started_s=steps / 100) for steps in (20, 30, 40)]
    one = request("one", "one", 6, started_s=1.0)
    assert beyond_one_group(many) == set(), "it has no other to share with"
    assert beyond_one_group([*many, request("u", "usual")]) == {"m30", "m40"}
    assert beyond_one_group([*many, one]) == {"m30", "m40"}


# ---- the estimate ----------------------------------------------------------------------------------------------------


def test_steps_of_few_streams_do_not_change_how_many_the_device_can_carry() -> None:
    """A GPU's first streams cost more than further ones; extrapolated from them, a server refused most of a load."""
    rng = random.Random(0)

    def duration_s(streams: int) -> float:
        return (5.3 + 2.7 * min(streams, 8) / 8 + 0.165 * max(0, streams - 8)) / 1000

    cost = StepCost(typical_work=64.0)
    for streams in [rng.randint(32, 128) for _ in range(500)]:
        cost.observe(streams, 0, duration_s(streams))
    at_load = cost.affordable_streams(0.16)
    for streams in [rng.randint(1, 8) for _ in range(500)]:
        cost.observe(streams, 0, duration_s(streams) * rng.uniform(0.9, 1.6))
    assert 0.8 < cost.affordable_streams(0.16) / at_load < 1.2  # 0.36 if all quantities are corrected alike
    assert cost.step_s(4, 0) == pytest.approx(1.25 * duration_s(4), rel=0.25)


def test_what_a_group_without_a_graph_costs_is_learned_apart_from_what_streams_cost() -> None:
    cost = StepCost()
    for number in range(6000):
        streams, own_flow_steps = number % 32 + 1, 64 if number % 7 == 0 else 0
        work = streams + (5.4 if own_flow_steps else 0.0)
        cost.observe(work, 0, TRUTH.step_s(work, 0, own_flow_steps), own_flow_steps)
    assert cost.step_s(6.4, 0, 64) == pytest.approx(TRUTH.step_s(6.4, 0, 64), rel=0.1)
    assert cost.step_s(32, 0) == pytest.approx(TRUTH.step_s(32, 0), rel=0.25)
