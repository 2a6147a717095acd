"""Tenants share the engine: one that asks for everything does not make another one wait."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.engine.core.fairness import beyond_share, in_turn
from realtime_tts.engine.core.request import Request, StepFlags
from realtime_tts.engine.core.scheduler import Scheduler
from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.core.step_cost import StepCost

PATCH_S = 0.16


def make(cost: StepCost, **changes: Any) -> Scheduler:
    def prepare(request: Request) -> None:
        request.num_prefill, request.hashes = request.min_prefill, [b"x"] * request.min_prefill

    limits = {"num_blocks": 4096, "max_streams": 8, "max_positions": 512, "patch_s": PATCH_S, **changes}
    return Scheduler(SchedulerConfig(**limits), prepare, cost)


def request(name: str, tenant: str, **fields: Any) -> Request:
    values = {"min_prefill": 4, "max_patches": 40, **fields}
    return Request(name, name, tenant=tenant, **values)


class Simulation:
    """Steps take what the cost model says; a request that ends is followed by the next one of its list."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.now = scheduler, 0.0
        self.requests: list[Request] = []
        self.lateness_s: dict[str, float] = {}  # the longest time that a listener of a tenant heard nothing

    def add(self, request: Request) -> None:
        self.requests.append(request)
        self.scheduler.add(request, self.now)

    def run_until(self, end_s: float) -> None:
        while self.now < end_s:
            plan = self.scheduler.schedule(self.now)
            if not plan.speaking and not plan.prefill:
                self.now += 0.01
                continue
            step_s = self.scheduler.cost.step_s(len(plan.prefill) + len(plan.decode), plan.size.num_positions)
            self.now += step_s
            for request in self.requests:
                if request.has_spoken and request.request_id in plan.speaking:
                    underrun_s = self.scheduler._contexts[request.context_id].lead.underrun_s
                    self.lateness_s[request.tenant] = max(
                        self.lateness_s.get(request.tenant, 0.0), self.now - underrun_s
                    )
            self.scheduler.finish_step(
                plan,
                {name: StepFlags() for name in plan.speaking + [item.request_id for item in plan.prefill]},
                self.now,
            )


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 99)), max_size=40), st.lists(st.sampled_from("abc")))
def test_turns_are_a_fair_order_of_all_that_wait(waiting: list[tuple[str, int]], active: list[str]) -> None:
    requests = [request(str(index), tenant) for index, (tenant, _) in enumerate(waiting)]
    deadlines = {str(index): float(deadline) for index, (_, deadline) in enumerate(waiting)}
    held = Counter(active)
    left = list(requests)
    for taken in in_turn(requests, [request("x", tenant) for tenant in active], deadlines):
        assert held[taken.tenant] == min(held[other.tenant] for other in left)
        own = [deadlines[other.request_id] for other in left if other.tenant == taken.tenant]
        assert deadlines[taken.request_id] == min(own)
        held[taken.tenant] += 1
        left.remove(taken)
    assert not left


@given(st.lists(st.sampled_from("abcd")), st.integers(0, 30))
def test_what_can_be_carried_is_shared_equally_and_the_latest_go_short(tenants: list[str], capacity: int) -> None:
    requests = [request(f"{index:03}", tenant, started_s=float(index)) for index, tenant in enumerate(tenants)]
    excess = beyond_share(requests, capacity)
    carried = Counter(tenant for index, tenant in enumerate(tenants) if f"{index:03}" not in excess)
    wanted = Counter(tenants)
    if len(wanted) <= 1 or len(tenants) <= capacity:
        assert not excess
        return
    assert carried.total() <= max(capacity, len(wanted)), "one each, whatever the capacity"
    level = max(carried.values())
    assert all(carried[tenant] == min(wanted[tenant], level) for tenant in wanted), (
        "no tenant has more than it is given"
    )
    for tenant in wanted:
        own = [request.request_id in excess for request in requests if request.tenant == tenant]
        assert own == sorted(own), "the oldest are carried"


@pytest.mark.parametrize("num_greedy", [20, 200])
def test_the_next_slot_is_the_newcomers_however_long_the_queue(num_greedy: int) -> None:
    simulation = Simulation(make(StepCost(0.01, 0.0, 0.0)))
    for index in range(num_greedy):
        simulation.add(request(f"greedy{index}", "greedy", paced=False))
    simulation.run_until(1.0)
    honest = request("honest", "honest", paced=False)
    simulation.add(honest)
    ended_before = sum(r.num_patches == r.max_patches for r in simulation.requests)
    while honest.started_s is None:
        simulation.run_until(simulation.now + 0.005)
    ended = sum(r.num_patches == r.max_patches for r in simulation.requests)
    assert ended - ended_before <= 8, "one round of the slots"


@pytest.mark.parametrize("num_honest", [1, 2])
def test_on_a_device_that_is_too_slow_for_all_a_tenant_with_few_streams_is_in_time(num_honest: int) -> None:
    """Four streams fit into real time, and ten run."""
    simulation = Simulation(make(StepCost(0.0, PATCH_S / 4, 0.0), max_streams=16))
    for index in range(10 - num_honest):
        simulation.add(request(f"greedy{index}", "greedy", max_patches=100))
    simulation.run_until(1.0)
    for index in range(num_honest):
        simulation.add(request(f"honest{index}", "honest", max_patches=100))
    simulation.run_until(40.0)
    longest_step_s = 10 * PATCH_S / 4  # what was under way when it came
    assert simulation.lateness_s["honest"] < 1.5 * longest_step_s < simulation.lateness_s["greedy"]
