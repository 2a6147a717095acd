"""What counts as heard of an answer over plain HTTP."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.server.http.speech import KEPT_MS, heard_ms
from realtime_tts.server.metrics import PlaybackEstimate


def test_nothing_is_heard_before_anything_is_taken() -> None:
    assert heard_ms(PlaybackEstimate(), 100.0) == 0.0


def test_a_listener_in_real_time_hears_as_time_passes() -> None:
    player = PlaybackEstimate()
    player.sent(0.16, 10.0)
    assert heard_ms(player, 10.1) == pytest.approx(100.0)
    assert heard_ms(player, 11.0) == 160.0, "no more than was taken"


def test_a_listener_hears_nothing_while_there_was_nothing_to_take() -> None:
    player = PlaybackEstimate()
    for now in (10.0, 12.0):
        player.sent(0.16, now)
    assert heard_ms(player, 12.1) == pytest.approx(260.0)


def test_a_client_that_reads_fast_has_a_little_unheard() -> None:
    player = PlaybackEstimate()
    player.sent(0.16, 10.0)
    player.sent(59.84, 10.5)
    assert heard_ms(player, 10.5) == pytest.approx(60_000.0 - KEPT_MS)


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 3)), max_size=20))
def test_what_was_heard_never_goes_back_nor_beyond_what_was_taken(steps: list[tuple[float, float]]) -> None:
    player, before_ms, now = PlaybackEstimate(), 0.0, 5.0
    for more_s, wait_s in steps:
        now += wait_s
        player.sent(more_s, now)
        taken_ms = 1000 * player.sent_s
        assert max(before_ms, taken_ms - KEPT_MS) - 1e-6 <= heard_ms(player, now) <= taken_ms
        before_ms = heard_ms(player, now)
