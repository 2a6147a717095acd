"""The playback clock: an estimate that acknowledgements override and that knows a pause."""

from __future__ import annotations

import pytest

from realtime_tts.session.playback import PlaybackClock


def playing(sent_ms: float = 5000, now: float = 100.0) -> PlaybackClock:
    clock = PlaybackClock()
    clock.send(sent_ms, now)
    return clock


def test_nothing_is_heard_before_the_first_packet() -> None:
    clock = PlaybackClock()
    assert clock.position_ms(100) == 0
    assert clock.reaches_at(10) is None
    assert clock.pause_due_at() is None
    assert not clock.poll(100)


def test_playback_runs_in_real_time_from_the_first_packet() -> None:
    clock = playing()
    assert clock.position_ms(101.5) == pytest.approx(1500)
    assert clock.sent_ms == 5000
    assert clock.reaches_at(2000) == pytest.approx(102)


def test_playback_waits_at_an_underrun_and_goes_on_with_the_next_packet() -> None:
    clock = playing(sent_ms=20)
    assert clock.position_ms(103) == 20
    assert clock.reaches_at(40) is None
    assert clock.send(1000, 103)
    assert clock.position_ms(103.01) == pytest.approx(30)
    assert not clock.send(1020, 103.01)


def test_an_acknowledgement_overrides_the_estimate_in_both_directions() -> None:
    clock = playing()
    clock.acknowledge(500, 101)
    assert clock.position_ms(101) == 500
    clock.acknowledge(1800, 101.2)
    assert clock.position_ms(101.3) == pytest.approx(1900)


def test_an_acknowledgement_of_more_than_was_sent_means_all_of_it() -> None:
    clock = playing()
    clock.acknowledge(1e9, 101)
    assert clock.position_ms(101) == 5000


def test_acknowledgements_never_fall() -> None:
    clock = playing()
    clock.acknowledge(900, 101)
    clock.acknowledge(100, 101.1)
    assert clock.position_ms(101.1) == 900


def test_the_same_figure_for_half_a_second_is_a_pause() -> None:
    clock = playing()
    for step in range(4):
        clock.acknowledge(700, 101 + step / 10)
        assert not clock.paused
    clock.acknowledge(700, 101.5)
    assert clock.paused
    assert clock.position_ms(150) == 700
    assert clock.reaches_at(800) is None
    clock.acknowledge(720, 150)
    assert not clock.paused
    assert clock.position_ms(150.1) == pytest.approx(820)


def test_a_figure_that_stands_still_because_all_was_heard_is_no_pause() -> None:
    clock = playing(sent_ms=400)
    clock.acknowledge(400, 101)
    clock.acknowledge(400, 103)
    assert not clock.paused
    clock.send(2400, 103.1)
    clock.acknowledge(400, 103.3)  # its jitter buffer fills up again
    assert not clock.paused
    assert clock.position_ms(103.4) == pytest.approx(500)


def test_without_news_an_acknowledgement_is_trusted_for_two_seconds() -> None:
    clock = playing()
    clock.acknowledge(100, 100.1)
    assert clock.pause_due_at() == pytest.approx(102.1)
    assert clock.position_ms(110) == pytest.approx(2100)
    assert clock.reaches_at(2200) is None
    assert not clock.poll(102)
    assert clock.poll(clock.pause_due_at() or 0)
    assert clock.paused
    assert not clock.poll(103)


def test_a_client_that_reports_rarely_is_trusted_for_longer() -> None:
    clock = playing(sent_ms=60_000)
    clock.acknowledge(5000, 105)
    assert clock.pause_due_at() == pytest.approx(115)
    clock.acknowledge(55_000, 155)
    clock.send(120_000, 155)
    assert clock.pause_due_at() == pytest.approx(185)


def test_without_any_acknowledgement_the_estimate_is_never_taken_for_a_pause() -> None:
    clock = playing(sent_ms=600_000)
    assert clock.pause_due_at() is None
    assert clock.position_ms(400) == pytest.approx(300_000)


def test_a_rewind_takes_back_what_did_not_arrive() -> None:
    clock = playing()
    clock.acknowledge(1000, 101)
    clock.acknowledge(1000, 102)
    assert clock.paused
    clock.rewind(1500, 103)
    assert (clock.sent_ms, clock.position_ms(103), clock.paused) == (1500, 1000, False)
    clock.rewind(800, 103)
    assert (clock.sent_ms, clock.position_ms(103)) == (800, 800)
    clock.acknowledge(0, 103)
    assert clock.position_ms(103) == 800


def test_a_rewind_without_acknowledgements_keeps_the_clock_running() -> None:
    clock = playing()
    clock.rewind(1500, 101)
    assert clock.position_ms(101.2) == pytest.approx(1200)


def test_time_that_stands_or_jumps_back_does_no_harm() -> None:
    clock = playing()
    assert clock.position_ms(99) == 0
    clock.send(6000, 99)
    assert clock.position_ms(100.5) == pytest.approx(500)
