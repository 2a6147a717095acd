"""A minute of `benchmarks.soak` with every fault in it, and the judgement that it rests on."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from pathlib import Path

import pytest
from gateway_harness import GatewayHarness

from benchmarks.soak.account import History, Outage, Outcome, Record, latency_ms, problem_of
from benchmarks.soak.campaign import Campaign, Options, left_over
from benchmarks.soak.figures import MAX_SLOPE_MB_PER_H, Estimate, Verdict, judge, memory_slope
from benchmarks.soak.plan import MIX, Fault, FaultKind, Kind
from benchmarks.soak.process import Sample
from benchmarks.soak.server import Census

OUTAGE = History([Outage(FaultKind.KILL_GATEWAY, 10.0, 20.0)])
FAULTS = tuple(
    Fault(at_s, kind)
    for at_s, kind in (
        (3, FaultKind.PAUSE_WORKER),
        (8, FaultKind.DRAIN_GATEWAY),
        (18, FaultKind.KILL_WORKER),
        (23, FaultKind.KILL_GATEWAY),
        (29, FaultKind.STOP_WORKER),
        (38, FaultKind.KILL_BOTH),
    )
)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_minute_of_chaos_loses_no_context_and_leaves_nothing() -> None:
    options = Options(minutes=0.8, quiet_s=5.0, fake=True, rate_hz=2.0, faults=FAULTS, seed=7)
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        result = await Campaign(options, Path(directory)).run()
    assert not result.problems
    assert not result.leftovers
    assert [outage.kind for outage in result.history.outages] == [fault.kind for fault in FAULTS]
    assert {record.kind for record in result.records} == set(MIX)
    assert {record.turn for record in result.records if record.outcome is Outcome.DONE}
    assert not result.num_not_sent


def test_the_census_of_a_gateway_at_rest_is_zero_but_for_its_tasks_and_workers() -> None:
    with GatewayHarness() as harness:
        while not harness.call(lambda: harness.gateway.engine.stats):  # the worker is ready before its first heartbeat
            time.sleep(0.01)
        metrics = harness.call(lambda: list(Census(harness.gateway).collect()))
    assert {metric.name for metric in metrics if metric.samples[0].value} == {"soak_tasks", "soak_workers"}


def record(outcome: Outcome = Outcome.DONE, kind: Kind = Kind.HONEST, **fields: object) -> Record:
    asked = Record(0, 0, kind, asked_s=1.0, text_s=1.0, accepted_s=1.1, ended_s=5.0, outcome=outcome)
    return dataclasses.replace(asked, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "allowed",
    [
        record(),
        record(Outcome.CANCELLED, Kind.CANCEL),
        record(Outcome.LEFT, Kind.LEAVE),
        record(Outcome.REFUSED, code="overloaded"),
        record(Outcome.FAILED, code="engine_lost", ended_s=11.0),
        record(Outcome.UNREACHED, asked_s=12.0, ended_s=12.1),
        record(Outcome.SERVER_KILLED, ended_s=11.0),
        record(Outcome.CLOSED_SLOW, Kind.SLOW, away_s=12.0),
    ],
    ids=lambda one: one.outcome.value,
)
def test_an_end_with_a_known_reason_is_no_problem(allowed: Record) -> None:
    assert problem_of(allowed, OUTAGE) is None


@pytest.mark.parametrize(
    "wrong",
    [
        record(Outcome.LOST),
        record(terminals=["context.done", "context.done"]),
        record(broken=["sequence 4 instead of 3"]),
        record(Outcome.CANCELLED),
        record(Outcome.FAILED, code="internal_error", ended_s=11.0),
        record(Outcome.FAILED, code="engine_lost"),
        record(Outcome.REFUSED, code="draining"),
        record(Outcome.UNREACHED, asked_s=30.0, ended_s=30.1),
        record(Outcome.CLOSED_SLOW, Kind.SLOW, away_s=3.0),
    ],
    ids=lambda one: f"{one.outcome.value} {one.code}",
)
def test_an_end_without_a_known_reason_is_a_problem(wrong: Record) -> None:
    assert problem_of(wrong, OUTAGE)


def test_a_message_after_the_terminal_one_and_a_gap_are_seen() -> None:
    seen = record()
    for sequence, kind in ((0, "context.started"), (2, "words"), (3, "context.done"), (4, "flushed")):
        seen.take({"type": kind, "sequence": sequence, "number": 1}, 2.0)
    assert seen.broken == ["sequence 2 instead of 1", "flushed after context.done"]


def test_first_packets_count_while_no_outage_is_on() -> None:
    assert latency_ms(record(first_packet_s=9.0), OUTAGE) is not None
    assert latency_ms(record(first_packet_s=10.5), OUTAGE) is None
    assert latency_ms(record(text_s=15.0, first_packet_s=25.0), OUTAGE) is None
    assert latency_ms(record(first_packet_s=9.0, attempt=1), OUTAGE) is None


def test_what_is_held_beyond_the_baseline_is_left_over() -> None:
    baseline = {"tasks": 7, "busy_slots": 2, "gateway descriptors": 12, "gateway threads": 5}
    at_rest = {"tasks": 7, "busy_slots": 0, "gateway descriptors": 11, "gateway threads": 9}
    assert left_over(baseline, at_rest) == []
    assert left_over(baseline, {**at_rest, "gateway threads": 90})
    assert left_over(baseline, {"tasks": 8, "busy_slots": 1, "gateway descriptors": 12}) == [
        "tasks: 8 instead of 7",
        "slots: 1 instead of 0",
    ]


def life(pid: int, seconds: int, level_mib: float, mib_per_s: float) -> list[Sample]:
    """A process whose memory saws about its trend."""
    return [Sample(t, pid, level_mib + mib_per_s * t + 0.01 * (t % 7), 0, 0) for t in map(float, range(seconds))]


def judge_slope(slope: Estimate | None) -> Verdict:
    return judge(slope, MAX_SLOPE_MB_PER_H)


LEAK = 10 / (3600 * 1.048576)  # MiB a second that make 10 MB/h


def test_memory_that_grows_is_told_from_memory_that_does_not() -> None:
    slope = memory_slope(life(1, 600, 300.0, 0.0) + life(2, 900, 95.0, LEAK))
    assert slope is not None
    assert slope.value == pytest.approx(10, abs=1)
    assert judge_slope(slope) is Verdict.FAIL
    assert judge_slope(memory_slope(life(1, 1200, 80.0, 0.0))) is Verdict.PASS


def test_what_a_process_takes_while_it_warms_up_is_no_leak() -> None:
    """As the worker did before it gave free memory back: steps, up to what its largest step takes."""
    steps = [Sample(t, 1, 455.0 + min(57, 19 * (t // 55)), 0, 0) for t in map(float, range(900))]
    assert judge_slope(memory_slope(steps)) is Verdict.PASS
    assert judge_slope(memory_slope([one for one in steps if one.at_s < 240])) is Verdict.UNKNOWN  # too little is left


@pytest.mark.parametrize("at_s", [250, 750])
def test_one_step_at_either_end_does_not_tilt_it(at_s: int) -> None:
    def stepping(leak: float) -> list[Sample]:
        return [
            dataclasses.replace(one, anonymous_mib=one.anonymous_mib + 5.0 * (one.at_s > at_s))
            for one in life(1, 900, 385.0, leak)
        ]

    assert judge_slope(memory_slope(stepping(0.0))) is Verdict.PASS
    assert judge_slope(memory_slope(stepping(LEAK))) is Verdict.FAIL


@pytest.mark.parametrize("page_mib", [0.004, 0.25, 1.0])
def test_a_leak_in_pieces_of_any_allocator_fails(page_mib: float) -> None:
    leaking = [
        dataclasses.replace(one, anonymous_mib=385.0 + one.anonymous_mib // page_mib * page_mib)
        for one in life(1, 900, 0.0, LEAK)
    ]
    assert judge_slope(memory_slope(leaking)) is Verdict.FAIL


def test_what_a_process_says_it_keeps_is_judged_whatever_lies_free() -> None:
    def told_mostly(leak: float) -> list[Sample]:
        scratch = [Sample(t, 1, 390.0 + 7.0 * (t // 30 % 13), 0, 0) for t in map(float, range(900))]
        answered = [dataclasses.replace(one, kept_mib=380.0 + leak * one.at_s) for one in scratch]
        return [one if 400 <= one.at_s < 500 else told for one, told in zip(scratch, answered, strict=True)]

    assert judge_slope(memory_slope(told_mostly(0.0))) is Verdict.PASS
    assert judge_slope(memory_slope(told_mostly(LEAK))) is Verdict.FAIL


def test_a_short_life_says_nothing_about_memory() -> None:
    assert memory_slope(life(1, 90, 80.0, 0.0)) is None
    assert memory_slope([]) is None
    assert judge_slope(None) is Verdict.UNKNOWN
