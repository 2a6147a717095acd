"""A connection breaks and comes back: nothing is lost, nothing is sent twice, nothing grows without bound."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_driver import PARKED, Closed, Driver

from realtime_tts.audio.packets import Packets
from realtime_tts.errors import EngineLost, SessionNotFound
from realtime_tts.session.connection import SessionState
from realtime_tts.session.memory import PACKET_BYTES, RETAINED_BYTES, message_bytes
from realtime_tts.session.messages import (
    AudioPackets,
    CancelAcknowledged,
    CancelRequest,
    ContextCancelled,
    ContextDone,
    ContextFailed,
    ContextStarted,
    End,
    Flush,
    Flushed,
    KeepAlive,
    Leave,
    PlaybackChanged,
    PlaybackReport,
    Resume,
    ResumedContext,
    ServerMessage,
    SessionResumed,
    StopSpeech,
    Text,
    Words,
)
from realtime_tts.session.resume import ResumeBuffer


def resume(driver: Driver, **contexts: int) -> tuple[dict[str, ResumedContext], list[ServerMessage]]:
    driver.session.resume(Resume("s1", contexts), driver.now)
    first, *rest = driver.drain()
    assert isinstance(first, SessionResumed)
    return {c.context_id: c for c in first.contexts}, rest


def speaking(driver: Driver, audio_ms: float = 1000) -> None:
    driver.say("c", "One two three. ")
    driver.receive(Flush("c", "f"))
    driver.speak("c", 0, audio_ms)


@pytest.mark.parametrize("last", range(-1, 54))
def test_the_client_gets_all_that_it_lacks_and_nothing_else(driver: Driver, last: int) -> None:
    speaking(driver)
    before = [m for m in driver.sent if getattr(m, "context_id", None) == "c"]
    assert [m.sequence for m in before] == list(range(53))
    driver.session.connection_lost(driver.now)
    found, again = resume(driver, c=last)
    assert found["c"] == ResumedContext("c", "open", 1, 15, False, 1)
    assert again == before[last + 1 :]
    driver.receive(End("c"))
    driver.finish("c")
    assert driver.of(ContextDone)[-1].sequence == 53


def test_a_client_that_claims_more_than_was_sent_has_everything(driver: Driver) -> None:
    speaking(driver)
    driver.session.connection_lost(driver.now)
    _, again = resume(driver, c=10**12)
    assert again == []
    driver.give("c")
    assert driver.sent[-1].sequence == 53


def test_what_was_made_meanwhile_waits_and_follows_in_order(driver: Driver) -> None:
    speaking(driver)
    driver.session.connection_lost(driver.now)
    driver.give("c", 10)
    driver.wait(2)
    assert driver.sent_ms("c") == 1000
    _, again = resume(driver, c=40)
    assert [m.sequence for m in again] == list(range(41, 63))
    assert [m.packets.pts_samples for m in again if isinstance(m, AudioPackets)] == [960 * i for i in range(39, 60)]
    assert [type(m) for m in again if not isinstance(m, AudioPackets)] == [Flushed]


def test_messages_sent_again_are_paced_like_any_others(driver: Driver) -> None:
    driver.say("c", "One two three. ")
    driver.speak("c", 0, 20_000)
    driver.wait(8)
    driver.session.connection_lost(driver.now)
    _, again = resume(driver, c=51)
    resent_ms = 20 * sum(isinstance(m, AudioPackets) for m in again)
    assert resent_ms == 3000
    driver.wait(1)
    assert 500 <= driver.sent_ms("c") - 11_000 - 3000 <= 1000


def test_a_client_that_came_back_and_leaves_gets_the_end_of_what_had_failed_first(driver: Driver) -> None:
    driver.say("c", "One two three. ")
    driver.speak("c", 0, 20_000)
    driver.wait(8)
    driver.session.contexts.failed("c", EngineLost("gone"), driver.now)
    assert len(driver.drain()) == 1
    driver.session.connection_lost(driver.now)
    found, again = resume(driver, c=51)
    assert found["c"].state == "finished"
    assert not any(isinstance(message, ContextFailed) for message in again)  # it follows the audio, which is paced
    driver.receive(Leave())
    assert driver.done(Closed) == []
    driver.wait(12)
    assert [type(message) for message in driver.sent[-2:]] == [AudioPackets, ContextFailed]
    assert driver.done(Closed) == [Closed(1000, "client_left")]


def test_the_engine_is_parked_while_the_connection_is_lost(driver: Driver) -> None:
    speaking(driver)
    driver.wait(0.5)
    driver.session.connection_lost(driver.now)
    driver.drain()
    assert driver.did[-1] == PARKED
    driver.wait(1)
    resume(driver, c=52)
    assert driver.did[-1] == PlaybackChanged("c", 1000, paused=False)


def test_a_session_waits_ten_seconds(driver: Driver) -> None:
    speaking(driver)
    driver.session.connection_lost(driver.now)
    driver.wait(9.9)
    assert driver.session.state is SessionState.DISCONNECTED
    driver.wait(0.2)
    assert driver.did[-2:] == [StopSpeech("c"), Closed(1001, "resume_window_over")]
    assert driver.session.contexts.num_bytes < 12_000
    with pytest.raises(SessionNotFound):
        driver.session.resume(Resume("s1"), driver.now)


def test_a_resume_that_comes_too_late_is_refused_even_before_the_tick(driver: Driver) -> None:
    speaking(driver)
    driver.session.connection_lost(driver.now)
    with pytest.raises(SessionNotFound):
        driver.session.resume(Resume("s1", {"c": 5}), driver.now + 10)


def test_a_resume_takes_over_a_connection_that_still_seems_to_live(driver: Driver) -> None:
    speaking(driver)
    found, again = resume(driver, c=50)
    assert found["c"].state == "open"
    assert [m.sequence for m in again] == [51, 52]


def test_messages_of_the_old_connection_are_ignored_while_it_is_lost(driver: Driver) -> None:
    speaking(driver)
    driver.session.connection_lost(driver.now)
    driver.session.connection_lost(driver.now + 1)
    driver.receive(Text("c", "late"), CancelRequest())
    found, _ = resume(driver, c=52)
    assert found["c"].received_chars == 15


def test_contexts_that_are_not_listed_are_cancelled(driver: Driver) -> None:
    driver.receive(Text("a", "A."), Text("b", "B."))
    driver.session.connection_lost(driver.now)
    found, again = resume(driver, b=0)
    assert list(found) == ["b"]
    assert [(type(m), m.context_id) for m in again] == [(ContextCancelled, "a")]
    assert driver.done(StopSpeech) == [StopSpeech("a")]


def test_a_context_that_never_arrived_is_unknown_and_can_be_opened(driver: Driver) -> None:
    speaking(driver)
    driver.session.connection_lost(driver.now)
    found, _ = resume(driver, c=52, new=-1)
    assert found["new"] == ResumedContext("new", "unknown")
    driver.say("new", "Hi.")
    assert driver.of(ContextStarted)[-1].context_id == "new"


def test_the_terminal_message_that_got_lost_comes_again(driver: Driver) -> None:
    speaking(driver)
    driver.receive(End("c"))
    driver.finish("c")
    driver.session.connection_lost(driver.now)
    found, again = resume(driver, c=51)
    assert (found["c"].state, found["c"].ended) == ("finished", True)
    assert [type(m) for m in again] == [Flushed, ContextDone]
    assert [m.sequence for m in again] == [52, 53]


def test_a_context_that_failed_meanwhile_says_so_after_its_audio(driver: Driver) -> None:
    speaking(driver)
    driver.session.connection_lost(driver.now)
    driver.session.contexts.failed("c", EngineLost("gone"), driver.now)
    found, again = resume(driver, c=49)
    assert found["c"].state == "finished"
    assert [type(m) for m in again] == [AudioPackets, AudioPackets, Flushed, ContextFailed]
    assert [m.sequence for m in again] == [50, 51, 52, 53]


def test_no_audio_of_a_cancelled_context_comes_again(driver: Driver) -> None:
    speaking(driver)
    driver.receive(CancelRequest("c"))
    driver.session.connection_lost(driver.now)
    found, again = resume(driver, c=20)
    assert found["c"].state == "finished"
    assert [(type(m), m.sequence) for m in again] == [(ContextCancelled, 21)]
    driver.session.connection_lost(driver.now)
    assert resume(driver, c=21)[1] == []


def test_a_cancelled_context_that_the_client_has_never_seen_is_sent_completely(driver: Driver) -> None:
    speaking(driver)
    driver.receive(CancelRequest("c"))
    driver.session.connection_lost(driver.now)
    _, again = resume(driver, c=-1)
    assert [(type(m), m.sequence) for m in again] == [(ContextStarted, 0), (ContextCancelled, 1)]


def test_a_cancel_of_what_is_being_sent_again_stops_it(driver: Driver) -> None:
    driver.say("c", "One two three. ")
    driver.speak("c", 0, 20_000)
    driver.wait(8)
    driver.session.connection_lost(driver.now)
    _, again = resume(driver, c=51)
    last = again[-1].sequence
    driver.receive(CancelRequest("c"))
    assert isinstance(driver.sent[-1], ContextCancelled)
    assert driver.sent[-1].sequence == last + 1
    driver.wait(5)
    assert isinstance(driver.sent[-1], ContextCancelled)


def test_a_cancel_of_a_done_context_that_is_being_sent_again_leaves_its_terminal_message(driver: Driver) -> None:
    driver.say("c", "One two three. ")
    driver.receive(End("c"))
    driver.speak("c", 0, 8000)
    driver.finish("c")
    driver.wait(6)
    assert len(driver.of(ContextDone)) == 1
    driver.session.connection_lost(driver.now)
    _, again = resume(driver, c=1)
    assert len(again) == 150
    answers = driver.receive(CancelRequest("c"))
    assert [type(m) for m in answers] == [CancelAcknowledged, ContextDone]
    assert answers[1].sequence == again[-1].sequence + 1
    assert driver.wait(10) == []


def test_a_connection_may_break_again_while_messages_are_sent_again(driver: Driver) -> None:
    driver.say("c", "One two three. ")
    driver.speak("c", 0, 20_000)
    driver.wait(8)
    everything = [m for m in driver.sent if isinstance(m, AudioPackets | Words | ContextStarted)]
    driver.session.connection_lost(driver.now)
    _, first = resume(driver, c=51)
    driver.session.connection_lost(driver.now)
    _, second = resume(driver, c=first[9].sequence)
    received = everything[:52] + first[:10] + second + driver.wait(20)
    assert [m.sequence for m in received if not isinstance(m, KeepAlive)] == list(range(20_000 // 20 + 2))


def test_an_undelivered_start_survives_the_loss(driver: Driver) -> None:
    driver.session.receive(Text("c", "Hi."), driver.now)
    driver.session.connection_lost(driver.now)
    found, again = resume(driver, c=-1)
    assert found["c"].received_chars == 3
    assert [(type(m), m.sequence) for m in again] == [(ContextStarted, 0)]


def test_a_context_cancelled_before_it_was_announced_survives_the_loss(driver: Driver) -> None:
    driver.session.receive(Text("c", "Hi."), driver.now)
    driver.session.receive(CancelRequest("c"), driver.now)
    driver.session.connection_lost(driver.now)
    _, again = resume(driver, c=-1)
    assert [(type(m), m.sequence) for m in again] == [(ContextStarted, 0), (ContextCancelled, 1)]


def test_a_gap_fails_an_open_context(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(max_session_bytes=11_500)
    speaking(driver)
    driver.session.connection_lost(driver.now)
    found, again = resume(driver, c=10)
    assert found["c"].state == "lost"
    [failed] = again
    assert isinstance(failed, ContextFailed)
    assert (failed.code, failed.retryable, failed.sequence) == ("resume_gap", True, 11)
    assert driver.done(StopSpeech) == [StopSpeech("c")]


def test_a_gap_in_a_finished_context_leaves_its_terminal_message(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(max_session_bytes=11_500)
    speaking(driver)
    driver.receive(End("c"))
    driver.finish("c")
    driver.session.connection_lost(driver.now)
    found, again = resume(driver, c=10)
    assert found["c"].state == "lost"
    assert [(type(m), m.sequence) for m in again] == [(ContextDone, 11)]


def test_a_gap_in_a_cancelled_context_does_not_matter(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(max_session_bytes=11_500)
    speaking(driver)
    driver.receive(CancelRequest("c"))
    driver.session.connection_lost(driver.now)
    found, again = resume(driver, c=10)
    assert found["c"].state == "finished"
    assert [(type(m), m.sequence) for m in again] == [(ContextCancelled, 11)]


def test_a_context_whose_end_is_no_longer_held_is_lost(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(retain_s=5)
    speaking(driver)
    driver.receive(CancelRequest("c"))
    driver.wait(6)
    driver.say("d", "D.")
    driver.session.connection_lost(driver.now)
    found, again = resume(driver, c=10, d=0)
    assert found["c"].state == "lost"
    assert again == []


def test_a_context_that_is_long_over_is_lost(driver: Driver) -> None:
    for index in range(20):
        driver.say(f"c{index}", "")
        driver.receive(End(f"c{index}"))
    driver.session.connection_lost(driver.now)
    found, again = resume(driver, c0=0, c19=1)
    assert [c.state for c in found.values()] == ["lost", "finished"]
    assert again == []


def test_what_was_heard_need_not_be_kept(driver: Driver) -> None:
    driver.say("c", "One two three. ")
    driver.receive(Flush("c", "f"))
    for _ in range(10):
        driver.give("c", 5)
    before = driver.session.contexts.num_bytes
    driver.receive(PlaybackReport("c", 510))
    assert driver.session.contexts.num_bytes < before - 25 * PACKET_BYTES
    driver.session.connection_lost(driver.now)
    _, again = resume(driver, c=28)
    assert [m.sequence for m in again] == list(range(29, 54))
    assert again[0].packets.pts_samples == 25 * 960


def test_retained_messages_are_bounded_in_bytes_and_age() -> None:
    buffer = ResumeBuffer(retain_s=30)
    for index in range(1000):
        buffer.add(AudioPackets(f"c{index % 3}", index, 1, Packets((bytes(100),), index * 960, 960)), index / 100)
        buffer.shrink(10_000)
        assert buffer.num_bytes <= 10_000
    buffer.add(Flushed("d", 0, None, 0), 100)
    assert [buffer.take_missing(f"c{i}", -1, 9).messages for i in range(3)] == [[], [], []]
    assert len(buffer.take_missing("d", -1, 9).messages) == 1
    assert buffer.num_bytes == 0


def test_retention_evicts_the_oldest_whatever_its_context() -> None:
    buffer = ResumeBuffer(retain_s=30)
    buffer.add(AudioPackets("a", 0, 1, Packets((bytes(400),), 0, 960)), 0)
    buffer.add(AudioPackets("b", 0, 2, Packets((bytes(400),), 0, 960)), 1)
    buffer.shrink(1000)
    assert buffer.take_missing("a", -1, 9).messages == []
    assert len(buffer.take_missing("b", -1, 9).messages) == 1


def test_an_acknowledgement_of_an_unknown_context_is_harmless() -> None:
    buffer = ResumeBuffer(30)
    buffer.acknowledge("x", 100)
    buffer.forget("x")
    assert buffer.num_bytes == 0


OPERATIONS = ("add", "add", "add", "acknowledge", "drop_from", "take_missing", "forget", "clear", "shrink")


@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.sampled_from("ab"), st.integers(0, 30)), max_size=60))
def test_the_bytes_are_those_of_the_messages_that_are_left(operations: list[tuple[str, str, int]]) -> None:
    buffer, left = ResumeBuffer(retain_s=20), ResumeBuffer(retain_s=20)
    for now, (operation, name, number) in enumerate(operations):
        packets = Packets(tuple(bytes(100 + number) for _ in range(1 + number % 4)), 960 * now, 960)
        arguments: dict[str, tuple[object, ...]] = {
            "add": (AudioPackets(name, now, 1, packets), now),
            "acknowledge": (name, 960 * number),
            "drop_from": (name, number),
            "take_missing": (name, number, now),
            "forget": (name,),
            "clear": (),
            "shrink": (100 * number,),
        }
        for one in (buffer, left):
            getattr(one, operation)(*arguments[operation])
        copies = [left.take_missing(name, -1, now + 1).messages for name in "ab"]
        assert buffer.num_bytes == sum(RETAINED_BYTES + message_bytes(m) for messages in copies for m in messages)
        assert left.num_bytes == 0
        for one in sorted((m for messages in copies for m in messages), key=lambda m: m.sequence):
            left.add(one, one.sequence)
