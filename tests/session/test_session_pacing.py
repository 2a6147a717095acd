"""When things are sent: pacing, pauses, keep-alives, idle and slow peers, the end of a session."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from session_driver import Closed, Driver

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.packets import Packets
from realtime_tts.errors import InvalidMessage
from realtime_tts.session.connection import SessionState
from realtime_tts.session.messages import (
    AudioPackets,
    CancelRequest,
    ContextCancelled,
    ContextDone,
    ContextFailed,
    ContextStarted,
    End,
    ErrorMessage,
    KeepAlive,
    Ping,
    PlaybackChanged,
    PlaybackReport,
    StopSpeech,
    Text,
    Words,
)


def test_audio_is_sent_three_seconds_ahead_of_playback_and_no_more(driver: Driver) -> None:
    driver.say("c", "A long story.")
    driver.speak("c", 0, 10_000)
    assert driver.sent_ms("c") == 3000
    for _ in range(40):
        driver.wait(0.1)
        lead_ms = driver.sent_ms("c") - (driver.now - 1000) * 1000
        assert 2500 <= lead_ms <= 3000.1


def test_a_listener_is_ahead_with_a_second_of_unheard_audio(driver: Driver) -> None:
    assert not driver.session.contexts.is_ahead("c", driver.now)
    driver.say("c", "A long story.")
    driver.give("c", 49)
    assert not driver.session.contexts.is_ahead("c", driver.now)
    driver.give("c", 1)
    assert driver.session.contexts.is_ahead("c", driver.now)
    assert not driver.session.contexts.is_ahead("c", driver.now + 0.01)
    driver.receive(CancelRequest("c"))
    assert not driver.session.contexts.is_ahead("c", driver.now)


def test_a_full_lead_is_topped_up_in_batches_not_packet_by_packet(driver: Driver) -> None:
    driver.say("c", "A long story.")
    driver.speak("c", 0, 20_000)
    wakes = 0
    while driver.now < 1010:
        driver.now = driver.session.next_deadline() or 0
        driver.session.tick(driver.now)
        wakes += bool(driver.drain())
    assert 20 <= wakes <= 22


def test_the_lead_can_be_shorter_than_a_packet_without_a_standstill(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(max_lead_s=0.005)
    driver.say("c", "A story.")
    driver.receive(End("c"))
    driver.speak("c", 0, 1000)
    driver.finish("c")
    assert driver.sent_ms("c") == 20
    driver.wait(1)
    assert len(driver.of(ContextDone)) == 1


def test_a_listener_that_pauses_stops_the_sending_and_the_engine(driver: Driver) -> None:
    driver.say("c", "A long story.")
    driver.speak("c", 0, 10_000)
    driver.wait(1)
    for _ in range(10):
        driver.receive(PlaybackReport("c", 900))
        driver.wait(0.1)
    sent = driver.sent_ms("c")
    assert driver.done(PlaybackChanged)[-1] == PlaybackChanged("c", 900, paused=True)
    driver.wait(30)
    assert driver.sent_ms("c") == sent <= 900 + 3000 + 500
    driver.receive(PlaybackReport("c", 1000))
    assert driver.done(PlaybackChanged)[-1] == PlaybackChanged("c", 1000, paused=False)
    driver.wait(1)
    assert driver.sent_ms("c") > sent


@pytest.mark.parametrize("played_ms", [-1, -1e300, math.nan, math.inf, -math.inf])
def test_an_impossible_playback_figure_is_refused_and_changes_nothing(driver: Driver, played_ms: float) -> None:
    driver.say("c", "A long story.")
    driver.speak("c", 0, 10_000)
    driver.wait(0.5)
    driver.receive(PlaybackReport("c", 400))
    before = driver.done(PlaybackChanged)
    for context_id in ("c", "long over"):
        driver.receive(PlaybackReport(context_id, played_ms))
        error = driver.of(ErrorMessage)[-1]
        assert (error.code, error.field, error.context_id) == ("invalid_message", "played_ms", context_id)
    assert driver.done(PlaybackChanged) == before
    driver.receive(CancelRequest("c"))
    assert driver.of(ContextCancelled)[0].played_ms == 400


def test_a_listener_that_stops_reporting_playback_counts_as_paused(driver: Driver) -> None:
    driver.say("c", "A long story.")
    driver.speak("c", 0, 20_000)
    driver.wait(0.5)
    driver.receive(PlaybackReport("c", 500))
    driver.wait(20)
    assert 500 + 2000 + 2500 <= driver.sent_ms("c") <= 500 + 2000 + 3000
    assert driver.done(PlaybackChanged)[-1] == PlaybackChanged("c", 2500, paused=True)


def test_the_engine_is_told_when_playback_starts_and_when_it_goes_on_after_an_underrun(driver: Driver) -> None:
    driver.say("c", "A. B.")
    driver.give("c", 5)
    assert driver.done(PlaybackChanged) == [PlaybackChanged("c", 0, paused=False)]
    driver.wait(0.05)
    driver.give("c", 5)
    assert len(driver.done(PlaybackChanged)) == 1
    driver.wait(1)
    driver.give("c", 5)
    assert driver.done(PlaybackChanged)[-1] == PlaybackChanged("c", 200, paused=False)


def test_each_context_has_its_own_clock(driver: Driver) -> None:
    driver.receive(Text("a", "A."), Text("b", "B."))
    driver.speak("a", 0, 10_000)
    driver.wait(5)
    driver.speak("b", 0, 10_000)
    assert 7500 <= driver.sent_ms("a") <= 8000
    assert driver.sent_ms("b") == 3000


def test_words_come_once_before_their_audio(driver: Driver) -> None:
    driver.say("c", "One two three four five six seven.")
    driver.wait(0)  # the second half of it is planned
    for index in range(100):
        driver.give("c", 1)
        driver.session.contexts.segment_progress("c", 0, 20 * (index + 1), False, driver.now)
        driver.wait(0.02)
    position_ms, heard = 0.0, []
    for message in driver.sent:
        if isinstance(message, AudioPackets):
            position_ms += 20
        elif isinstance(message, Words):
            heard += message.words
            assert all(word.start_ms >= position_ms - 20 for word in message.words)
    assert [w.text for w in heard] == ["One", "two", "three", "four", "five", "six", "seven"]


def test_output_rates_other_than_opus_count_time_right(driver: Driver) -> None:
    driver.receive(Text("c", "A.", audio=AudioFormat("pcm_s16le", 22_050)))
    for index in range(300):
        driver.session.contexts.audio("c", Packets((bytes(882),), index * 441, 441), driver.now)
    driver.drain()
    assert driver.sent_ms("c") == 3000


def test_a_byte_limit_stops_soon_and_the_rest_follows(driver: Driver) -> None:
    driver.say("a", "A.")
    driver.speak("a", 0, 1000)
    driver.session.receive(Text("b", "B."), driver.now)
    for _ in range(20):
        driver.session.receive(Ping(), driver.now)
    first = driver.session.messages_to_send(driver.now, max_bytes=1000)
    assert len(first) == 4
    assert driver.session.next_deadline() == driver.now
    rest = driver.drain()
    assert isinstance(first[0], ContextStarted)
    assert len(first + rest) == 21


def test_no_silence_beyond_four_seconds_while_a_context_is_open(driver: Driver) -> None:
    driver.say("c", "One. And then")
    driver.receive(PlaybackReport("c", 0))
    driver.speak("c", 0, 5000)
    last, longest = driver.now, 0.0
    while driver.now < 1060:
        driver.now = driver.session.next_deadline() or 0
        driver.session.tick(driver.now)
        if driver.drain():
            longest, last = max(longest, driver.now - last), driver.now
    assert 2.9 < longest < 4
    assert driver.of(KeepAlive)


def test_a_session_without_contexts_is_closed_after_five_minutes(driver: Driver) -> None:
    driver.receive(Ping())
    assert driver.wait(299.9) == []
    assert driver.did == []
    driver.wait(0.2)
    assert driver.did == [Closed(1000, "idle_timeout")]


def test_messages_and_audio_keep_a_session_from_being_idle(driver: Driver) -> None:
    for _ in range(3):
        driver.wait(250)
        driver.receive(Ping())
    driver.say("c", "A.")
    driver.wait(250)
    driver.give("c")
    driver.wait(250)
    assert driver.session.state is SessionState.CONNECTED
    driver.wait(51)
    assert isinstance(driver.sent[-1], ContextCancelled)
    assert driver.did[-2:] == [StopSpeech("c"), Closed(1000, "idle_timeout")]


def test_a_socket_that_takes_nothing_parks_the_engine_and_is_closed_after_ten_seconds(driver: Driver) -> None:
    driver.say("c", "A.")
    driver.give("c", 10)
    driver.session.writable(False, driver.now)
    driver.session.writable(False, driver.now)
    assert driver.session.messages_to_send(driver.now) == []
    assert driver.session.events() == [PlaybackChanged("c", 0, paused=True)]
    driver.give("c", 10)
    assert driver.sent_ms("c") == 200
    driver.wait(9.9)
    assert driver.session.state is SessionState.CONNECTED
    driver.wait(0.2)
    assert driver.done(Closed) == [Closed(1008, "slow_consumer")]
    assert driver.done(StopSpeech) == [StopSpeech("c")]
    assert driver.session.contexts.num_bytes < 12_000


def test_a_socket_that_recovers_goes_on_where_it_was(driver: Driver) -> None:
    driver.say("c", "A.")
    driver.give("c", 10)
    driver.session.writable(False, driver.now)
    driver.give("c", 10)
    driver.wait(9)
    driver.session.writable(True, driver.now)
    driver.session.writable(True, driver.now)
    driver.drain()
    assert driver.sent_ms("c") == 400
    assert driver.done(PlaybackChanged)[-1] == PlaybackChanged("c", 200, paused=False)
    assert [m.packets.pts_samples for m in driver.of(AudioPackets)] == [960 * i for i in range(20)]
    driver.wait(20)
    assert driver.done(Closed) == []


def test_a_drained_session_finishes_what_is_open_and_takes_nothing_new(driver: Driver) -> None:
    driver.say("c", "A.")
    driver.session.drain(driver.now)
    driver.receive(Text("d", "D."), Text("c", " More."))
    assert [(m.code, m.context_id, m.retryable) for m in driver.of(ErrorMessage)] == [("draining", "d", True)]
    driver.receive(End("c"))
    driver.speak("c", 0, 4000)
    driver.speak("c", 1, 40)
    driver.finish("c")
    assert driver.done(Closed) == []
    driver.wait(2)
    assert isinstance(driver.sent[-1], ContextDone)
    assert driver.done(Closed) == [Closed(1001, "draining")]


def test_a_drained_session_without_contexts_closes_at_once_after_its_last_answers(driver: Driver) -> None:
    driver.session.receive(Ping(), driver.now)
    driver.session.drain(driver.now)
    assert driver.session.state is SessionState.CONNECTED
    assert len(driver.drain()) == 1
    assert driver.did == [Closed(1001, "draining")]


def test_close_ends_every_context_with_one_terminal_message(driver: Driver) -> None:
    driver.receive(Text("a", "A."), Text("b", "not yet"))
    driver.speak("a", 0, 5000)
    driver.session.close(driver.now, 1001, "going")
    driver.session.close(driver.now, 1001, "again")
    assert [type(m) for m in driver.drain()] == [ContextCancelled, ContextCancelled]
    assert driver.done(Closed) == [Closed(1001, "going")]
    assert driver.wait(100) == []
    assert driver.session.messages_to_send(driver.now) == []


def test_a_clean_close_by_the_client_frees_everything_at_once(driver: Driver) -> None:
    driver.receive(Text("a", "A."), Text("b", "B."), End("b"))
    driver.speak("b", 0, 100)
    driver.finish("b")
    driver.session.connection_lost(driver.now, clean=True)
    driver.drain()
    assert driver.done(StopSpeech) == [StopSpeech("b"), StopSpeech("a")]
    assert driver.did[-1] == Closed(1000, "connection_closed")


def test_without_a_resume_window_every_loss_is_final(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(resume_window_s=0)
    driver.say("a", "A.")
    driver.speak("a", 0, 1000)
    assert driver.session.contexts.num_bytes < 12_000
    driver.session.connection_lost(driver.now)
    assert driver.session.closing == (1000, "connection_closed")


def test_after_the_end_nothing_does_anything(driver: Driver) -> None:
    driver.say("c", "A.")
    driver.session.close(driver.now, 1000, "over")
    driver.drain()
    driver.session.writable(False, driver.now)
    driver.session.writable(True, driver.now)
    driver.session.connection_lost(driver.now)
    driver.session.drain(driver.now)
    driver.receive(Text("d", "D."), CancelRequest())
    driver.session.reject(InvalidMessage("x"), driver.now)
    driver.session.tick(driver.now + 1000)
    assert driver.drain() == []
    assert driver.done(Closed) == [Closed(1000, "over")]
    assert driver.of(ContextFailed) == []
