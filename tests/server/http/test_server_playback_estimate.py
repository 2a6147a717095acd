"""What counts as heard of an answer over plain HTTP."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.server.http.speech import KEPT_MS, ReaderPosition


def test_nothing_is_heard_before_anything_is_taken() -> None:
    assert ReaderPosition().heard_ms(100.0) == 0.0


def test_a_listener_in_real_time_hears_as_time_passes() -> None:
    clock = ReaderPosition()
    clock.take(160.0, 10.0)
    assert clock.heard_ms(10.1) == pytest.approx(100.0)
    assert clock.heard_ms(11.0) == 160.0, "no more than was taken"


def test_a_client_that_reads_fast_has_a_little_unheard() -> None:
    clock = ReaderPosition()
    clock.take(160.0, 10.0)
    clock.take(60_000.0, 10.5)
    assert clock.heard_ms(10.5) == 60_000.0 - KEPT_MS


@given(st.lists(st.tuples(st.floats(0, 2_000), st.floats(0, 3)), max_size=20))
def test_what_was_heard_never_goes_back_nor_beyond_what_was_taken(steps: list[tuple[float, float]]) -> None:
    clock, taken_ms, heard_ms, now = ReaderPosition(), 0.0, 0.0, 5.0
    for more_ms, wait_s in steps:
        taken_ms, now = taken_ms + more_ms, now + wait_s
        clock.take(taken_ms, now)
        assert heard_ms - 1e-6 <= clock.heard_ms(now) <= taken_ms
        heard_ms = clock.heard_ms(now)
        assert taken_ms - heard_ms <= KEPT_MS + 1e-6 or heard_ms <= 1e-6 or now > 5.0
