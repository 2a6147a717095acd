"""Where contexts go: by load, by what lies in a worker's cache, and the same at every gateway."""

from __future__ import annotations

import dataclasses
import random
import statistics

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from realtime_tts.contract.frames import Generate, prefix_keys
from realtime_tts.workers.placement import WAIT_STEPS, Candidate, place

IDLE = Candidate("worker-0", num_streams=100, fixed_s=0.007, stream_s=0.0002, position_s=0.00003)
OTHER = dataclasses.replace(IDLE, name="worker-1")


def candidates(*, names: int = 5) -> st.SearchStrategy[list[Candidate]]:
    one = st.builds(
        Candidate,
        name=st.sampled_from([f"worker-{index}" for index in range(names)]),
        num_working=st.integers(0, 40),
        num_streams=st.integers(0, 30),
        num_contexts=st.integers(0, 60),
        num_cached=st.sampled_from([0, 0, 16, 64, 368]),
        fixed_s=st.floats(1e-7, 0.1),
        stream_s=st.floats(1e-7, 0.05),
        position_s=st.floats(1e-7, 0.001),
        is_suspect=st.booleans(),
    )
    return st.lists(one, min_size=1, max_size=names, unique_by=lambda candidate: candidate.name)


def test_a_request_goes_to_the_worker_with_the_least_work() -> None:
    busy = dataclasses.replace(IDLE, num_working=3)
    assert place([busy, OTHER], b"") == place([OTHER, busy], b"") == OTHER


def test_without_work_a_request_goes_to_the_worker_with_the_fewest_contexts() -> None:
    assert place([dataclasses.replace(IDLE, num_contexts=1), OTHER], b"") == OTHER


@pytest.mark.parametrize(("lead", "goes_to"), [(0, "worker-0"), (6, "worker-0"), (7, "worker-1")])
def test_a_prefix_is_worth_so_many_contexts_more(lead: int, goes_to: str) -> None:
    """64 positions of 30 µs against one and a half steps that are 0.2 ms longer for each context: 6.4 of them."""
    assert IDLE.position_s * 64 / (WAIT_STEPS * IDLE.stream_s) == pytest.approx(6.4)
    holder = dataclasses.replace(IDLE, num_cached=64, num_working=10 + lead)
    assert place([dataclasses.replace(OTHER, num_working=10), holder], b"v").name == goes_to


def test_a_prefix_is_worth_nothing_at_a_worker_that_has_all_it_can_carry() -> None:
    holder = dataclasses.replace(IDLE, num_cached=4096, num_working=100)
    assert place([holder, dataclasses.replace(OTHER, num_working=99)], b"v").name == "worker-1"
    both_full = [holder, dataclasses.replace(OTHER, num_working=101)]
    assert place(both_full, b"v") == holder


def test_a_worker_that_has_learned_nothing_of_positions_does_not_get_all_voices() -> None:
    strays = dataclasses.replace(OTHER, position_s=1e-7)
    assert place([dataclasses.replace(IDLE, num_cached=64, num_working=3), strays], b"v").name == "worker-0"


def test_of_two_workers_with_the_prefix_the_less_busy_one_is_chosen() -> None:
    holders = [dataclasses.replace(IDLE, num_cached=64, num_working=1), dataclasses.replace(OTHER, num_cached=64)]
    assert place(holders, b"v").name == "worker-1"


def test_a_worker_that_may_stand_still_is_the_last_choice() -> None:
    stands = dataclasses.replace(IDLE, num_cached=368, is_suspect=True)
    full = dataclasses.replace(OTHER, num_working=500)
    assert place([stands, full], b"v") == full
    assert place([stands], b"v") == stands


@given(candidates(), st.binary(max_size=8), st.randoms(use_true_random=False))
def test_every_gateway_decides_the_same(offered: list[Candidate], prefix: bytes, draw: random.Random) -> None:
    shuffled = draw.sample(offered, len(offered))
    assert place(offered, prefix) == place(shuffled, prefix)


@given(candidates())
@example([Candidate("worker-0", num_streams=0), Candidate("worker-1", num_streams=0, is_suspect=True)])
def test_the_choice_is_never_worse_than_another(offered: list[Candidate]) -> None:
    chosen, num_prefix = place(offered, b"v"), max(candidate.num_cached for candidate in offered)
    position_s = statistics.fmean(candidate.position_s for candidate in offered)
    for other in offered:
        if other.is_suspect == chosen.is_suspect:
            assert chosen.excess <= other.excess
            if chosen.excess == other.excess:
                assert chosen.first_packet_s(num_prefix, position_s) <= other.first_packet_s(num_prefix, position_s)
        else:
            assert other.is_suspect


@given(
    st.integers(2, 6),
    st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.booleans()), max_size=200),
    st.integers(0, 400),
)
def test_no_worker_gets_further_ahead_than_a_prefix_is_worth(
    num_workers: int, arrivals: list[tuple[bytes, bool]], num_positions: int
) -> None:
    """Contexts come and go; a worker has the prefix of each voice that was ever spoken there."""
    working = {f"worker-{index}": 0 for index in range(num_workers)}
    held: dict[str, set[bytes]] = {name: set() for name in working}
    worth = IDLE.position_s * num_positions / (WAIT_STEPS * IDLE.stream_s)
    for prefix, leaves in arrivals:
        if leaves:
            busiest = max(working, key=lambda name: working[name])
            working[busiest] = max(0, working[busiest] - 1)
            continue
        offered = [
            dataclasses.replace(
                IDLE, name=name, num_working=count, num_cached=num_positions if prefix in held[name] else 0
            )
            for name, count in working.items()
        ]
        chosen = place(offered, prefix).name
        assert working[chosen] + 1 - min(working.values()) <= worth + 1 + 1e-9
        working[chosen] += 1
        held[chosen].add(prefix)


def test_voices_that_no_worker_has_yet_are_spread_and_stay_when_a_worker_goes() -> None:
    workers = [dataclasses.replace(IDLE, name=f"worker-{index}") for index in range(3)]
    voices = [b"%d" % number for number in range(600)]
    homes = {voice: place(workers, voice).name for voice in voices}
    assert all(150 < list(homes.values()).count(worker.name) < 250 for worker in workers)
    left = {voice: place(workers[:2], voice).name for voice in voices}
    assert all(left[voice] == home for voice, home in homes.items() if home != "worker-2")


def test_what_requests_have_in_common_has_one_name() -> None:
    def keys(**fields: object) -> tuple[bytes, ...]:
        return prefix_keys(Generate("r", "c", "text", **fields))  # type: ignore[arg-type]

    assert keys() == ()
    assert len(keys(voice="v")) == len(keys(instructions="slowly")) == 1
    assert keys(voice="v", seed=1, segment=3) == keys(voice="v")
    assert keys(voice="v", instructions="slowly")[0] == keys(voice="v")[0]
    others = [
        keys(voice="v"),
        keys(voice="w"),
        keys(voice="v", tenant="t"),
        keys(voice="v", adapter="a"),
        keys(voice="v", instructions="slowly")[1:],
        keys(voice="v", instructions="fast")[1:],
        keys(instructions="slowly"),
        keys(voice="tv"),
        keys(voice="v", adapter="t"),
    ]
    assert len(set(others)) == len(others)
