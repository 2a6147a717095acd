"""The step behind the one that is being computed: what may be launched before that one is accounted for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from test_scheduler import PATCH_S, add, finish, make

from realtime_tts.engine.core.request import Status, StepPlan
from realtime_tts.engine.core.scheduler import Scheduler
from realtime_tts.engine.core.step_cost import StepCost
from realtime_tts.engine.core.text_supply import TextSupply


def speaking(cost: StepCost | None = None, paced: bool = False, **fields: object) -> tuple[Scheduler, StepPlan]:
    """Two streams in mid-speech, and the step that both are in."""
    scheduler = make(cost)
    for name in "ab":
        add(scheduler, name, paced=paced, **fields)
    for _ in range(3):
        plan = scheduler.schedule(0.0)
        finish(scheduler, plan, 0.0)
    return scheduler, scheduler.schedule(0.0)


def test_every_stream_goes_on_by_one_patch_as_in_the_scheduler_itself() -> None:
    scheduler, plan = speaking()
    for _ in range(6):  # one after the other, each accounted for when the next is on its way
        following = scheduler.ahead(plan, 0.0, 0.0)
        assert [(item.request_id, item.start, item.patch_index) for item in following.decode] == [
            (item.request_id, item.start + 1, item.patch_index + 1) for item in plan.decode
        ]
        assert not finish(scheduler, plan, 0.0)
        assert set(following.decode) == set(scheduler.schedule(0.0).decode)
        plan = following


def test_results_of_a_stream_that_has_ended_are_dropped() -> None:
    scheduler, plan = speaking()
    following = scheduler.ahead(plan, 0.0, 0.0)
    assert len(finish(scheduler, plan, 0.0, stop=("a",))) == 1
    free = scheduler.pool.num_available
    assert not finish(scheduler, following, 0.0, stop=("a",), bad=("a",))
    assert (scheduler.pool.num_available, scheduler.num_active) == (free, 1)
    (item,) = scheduler.schedule(0.0).decode
    assert item.start == following.decode[1].start + 1


def test_a_stream_that_begins_goes_on_in_the_step_behind() -> None:
    scheduler = make()
    request = add(scheduler, "a")
    plan = scheduler.schedule(0.0)
    (item,) = scheduler.ahead(plan, 0.0, 0.0).decode
    assert (item.start, item.patch_index) == (plan.prefill[0].end, 1)
    assert (request.num_computed, request.num_patches, request.status) == (0, 0, Status.PREFILL)
    finish(scheduler, plan, 0.0)
    assert scheduler.schedule(0.0).decode == (item,)


def test_an_input_that_is_computed_in_parts_has_no_part_in_the_step_behind() -> None:
    scheduler = make(num_blocks=100, max_positions=1024, max_prefill_positions=32)
    add(scheduler, "a", min_prefill=90)
    assert not scheduler.ahead(scheduler.schedule(0.0), 0.0, 0.0)


def test_no_step_follows_the_last_patch_of_every_stream() -> None:
    scheduler, plan = speaking(max_patches=5)
    assert scheduler.ahead(plan, 0.0, 0.0)  # its patches are the fourth ones
    finish(scheduler, plan, 0.0)
    plan = scheduler.schedule(0.0)
    assert not scheduler.ahead(plan, 0.0, 0.0)
    assert len(finish(scheduler, plan, 0.0)) == 2


def newcomer(scheduler: Scheduler) -> None:
    add(scheduler, "c")


def behind_another(scheduler: Scheduler) -> None:
    add(scheduler, "a2", context="a")


def cancelled(scheduler: Scheduler) -> None:
    scheduler.cancel("a")


def open_text(known: float, read: float) -> Callable[[Scheduler], None]:
    def change(scheduler: Scheduler) -> None:
        scheduler._requests["a"].supply = TextSupply(known, False, read, position=100.0)

    return change


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (newcomer, "abc"),
        (behind_another, "ab"),
        (cancelled, "b"),
        (open_text(200, 118), "b"),  # 14 characters in front of the speech, and two patches: less than 19
        (open_text(200, 119), "ab"),
    ],
)
def test_all_whose_next_patch_needs_no_result_have_a_part(change: Callable[[Scheduler], None], names: str) -> None:
    scheduler, plan = speaking()
    change(scheduler)
    before = {name: dataclasses.asdict(request) for name, request in scheduler._requests.items() if name in "ab"}
    assert sorted(scheduler.ahead(plan, 0.0, 0.0).request_ids) == list(names)
    assert {name: dataclasses.asdict(scheduler._requests[name]) for name in before} == before


def test_streams_outside_the_step_have_a_part_in_the_one_behind() -> None:
    scheduler, plan = speaking()
    assert len(scheduler.ahead(StepPlan((), plan.decode[:1]), 0.0, 0.0).decode) == 2


def leads_by(scheduler: Scheduler, name: str, lead_s: float) -> None:
    """Its listener says how far it is; behind its beginning, if there must be more in front of it than was made."""
    produced_s = scheduler._contexts[name].lead.produced_s
    scheduler.playback(name, produced_s - lead_s, False, 0.0)


def test_a_deadline_is_that_after_the_current_step() -> None:
    """The stream that has less ahead then goes first."""
    scheduler, plan = speaking(StepCost(0.005, 0.1, 0.0), paced=True)
    one = StepPlan((), plan.decode[:1])
    leads_by(scheduler, "a", 0.3)
    leads_by(scheduler, "b", 0.3 + 0.5 * PATCH_S)
    lead = dataclasses.asdict(scheduler._contexts["a"].lead)
    assert scheduler.ahead(one, 0.0, 0.105).decode[0].request_id == "b"
    assert dataclasses.asdict(scheduler._contexts["a"].lead) == lead
    assert scheduler.schedule(0.105).decode[0].request_id == "a"


def many(**fields: object) -> tuple[Scheduler, StepPlan]:
    """Nine streams with leads, three of which fill a step, and a step over three of them."""
    scheduler = make(StepCost(0.005, 0.0002, 0.0), max_streams=12, full_streams=3, num_blocks=200)
    for number in range(9):
        add(scheduler, f"r{number}", **fields)
    for _ in range(4):
        plan = scheduler.schedule(0.0)
        finish(scheduler, plan, 0.0)
    plan = scheduler.schedule(0.0)
    assert len(plan.decode) == 3
    return scheduler, plan


def test_where_others_fill_a_step_it_does_not_wait_for_what_became_of_the_one_before() -> None:
    scheduler, plan = many(max_patches=40)
    seen = set(plan.request_ids)
    for _ in range(2):  # the streams that end in the first
        assert scheduler.others_fill_a_step(plan)
        following = scheduler.ahead(plan, 0.0, 0.0)
        assert len(following.decode) == 3
        assert not seen & set(following.request_ids)
        seen |= set(following.request_ids)
        finish(scheduler, plan, 0.0, stop=tuple(plan.request_ids[:1]))
        plan = following


def test_a_stream_that_arrives_while_a_step_is_computed_is_in_the_next_one() -> None:
    scheduler, plan = many(max_patches=40)
    add(scheduler, "new")
    following = scheduler.ahead(plan, 0.0, 0.01)
    assert following.prefill[0].request_id == "new"
    assert len(following.request_ids) == 3


def test_a_step_behind_one_that_is_still_computed_begins_later() -> None:
    """So that a stream that cannot wait for the step after it is in it, too."""
    scheduler, plan = many(max_patches=40)
    step_s = scheduler.cost.step_s(3, 0)
    idle = [name for name in (f"r{number}" for number in range(9)) if name not in plan.request_ids]
    for name in idle:
        leads_by(scheduler, name, 2.5 * step_s)
    for left_s, size in ((0.0, 3), (step_s, 6)):
        assert len(scheduler.ahead(plan, 0.0, left_s).decode) == size


def test_too_few_others_share_the_step_with_streams_that_go_on() -> None:
    scheduler, plan = many(max_patches=40)
    others = [name for name in (f"r{number}" for number in range(9)) if name not in plan.request_ids]
    for name in others[:4]:
        scheduler.cancel(name)
    assert not scheduler.others_fill_a_step(plan)
    assert set(others[4:]) < set(scheduler.ahead(plan, 0.0, 0.0).request_ids)


def test_a_step_does_not_count_for_a_new_request_of_the_same_name() -> None:
    scheduler, plan = many(max_patches=40)
    name = plan.request_ids[0]
    scheduler.close_context(name)
    again = add(scheduler, name)
    assert name not in scheduler.ahead(plan, 0.0, 0.0).request_ids
    finish(scheduler, plan, 0.0)
    assert (again.num_patches, again.num_computed) == (0, 0)
    assert name in scheduler.schedule(0.0).request_ids


def test_a_patch_of_a_request_that_was_rewound_meanwhile_does_not_count() -> None:
    scheduler, plan = speaking()
    following = scheduler.ahead(plan, 0.0, 0.0)
    finish(scheduler, plan, 0.0)
    request = scheduler._requests["a"]
    lead = scheduler._contexts["a"].lead
    produced_s = lead.produced_s
    scheduler.rewind(request, 2, 0.0)
    assert lead.produced_s == pytest.approx(produced_s - 2 * PATCH_S)
    before = request.num_computed, request.num_patches
    finish(scheduler, following, 0.0)
    assert (request.num_computed, request.num_patches) == before
    (item,) = scheduler.schedule(0.0).prefill
    assert (item.request_id, item.patch_index, item.begins) == ("a", 2, True)
