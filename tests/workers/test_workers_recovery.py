"""A device that fails is left alone for a while, the longer the more often it has failed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.workers.recovery import FIRST_S, FORGIVEN, LONGEST_S, WINDOW_S, Recovery


def test_the_first_losses_are_forgiven_and_each_further_one_doubles_the_wait() -> None:
    recovery, waits = Recovery(), []
    for number in range(FORGIVEN + 4):
        recovery.lost(float(number))
        waits.append(recovery.announce_after_s(float(number)))
    assert waits == [0.0] * FORGIVEN + [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S]


def test_what_lies_far_back_is_forgotten() -> None:
    recovery = Recovery()
    for _ in range(FORGIVEN + 1):
        recovery.lost(0.0)
    assert recovery.announce_after_s(WINDOW_S - 1e-3) == FIRST_S
    assert recovery.announce_after_s(WINDOW_S) == 0.0
    assert recovery.num_losses(WINDOW_S) == 0


@given(st.lists(st.floats(0, 100), max_size=60), st.floats(0, 5000))
def test_the_wait_is_bounded_and_grows_with_the_losses_of_late(pauses_s: list[float], later_s: float) -> None:
    recovery, moments, now = Recovery(), [], 0.0
    for pause_s in pauses_s:
        now += pause_s
        moments.append(now)
        recovery.lost(now)
    now += later_s
    recent = sum(now - moment < WINDOW_S for moment in moments)
    assert recovery.num_losses(now) == recent
    wait_s = recovery.announce_after_s(now)
    assert (wait_s == 0.0) == (recent <= FORGIVEN)
    assert wait_s <= LONGEST_S
    if recent > FORGIVEN:
        assert wait_s == pytest.approx(min(LONGEST_S, FIRST_S * 2 ** (recent - FORGIVEN - 1)))
