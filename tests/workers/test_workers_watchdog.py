"""A worker is hung when it is silent while we listen."""

from __future__ import annotations

from realtime_tts.workers.watchdog import Watchdog


def ticks_until_condemned(watchdog: Watchdog, now: float) -> float:
    """Punctual ticks without a sign of life; returns the time of the one that condemns."""
    while not watchdog.tick(now):
        now += watchdog.tick_s
    return now


def test_silence_condemns_within_two_ticks_of_the_limit() -> None:
    watchdog = Watchdog(5.0, now=100.0)
    condemned_s = ticks_until_condemned(watchdog, 100.0)
    assert 105.0 < condemned_s <= 105.0 + 2 * watchdog.tick_s


def test_a_sign_of_life_starts_the_count_anew() -> None:
    watchdog = Watchdog(5.0, now=0.0)
    for number in range(100):
        assert not watchdog.tick(number * watchdog.tick_s)
        if number % 10 == 0:
            watchdog.sign_of_life(5.0)


def test_time_in_which_the_process_was_stopped_condemns_no_worker() -> None:
    watchdog = Watchdog(5.0, now=0.0)
    now = 0.0
    while now < 4.9:  # silent already, and as long as it may be
        assert not watchdog.tick(now)
        now += watchdog.tick_s
    assert not watchdog.tick(now + 3600), "what was unread after the stop has not been taken yet"
    watchdog.sign_of_life(5.0)  # it is taken now
    assert not watchdog.tick(now + 3600 + watchdog.tick_s)
    assert ticks_until_condemned(watchdog, now + 3600) > now + 3604, "a real silence is found after it"


def test_a_silent_worker_is_found_on_a_loop_that_is_often_late() -> None:
    watchdog = Watchdog(5.0, now=0.0)
    now, number = 0.0, 0
    while not watchdog.tick(now):
        number += 1
        now += 1.0 if number % 2 else watchdog.tick_s
    assert now < 15
