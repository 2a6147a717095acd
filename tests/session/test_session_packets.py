"""Packets that leave together: one message of the session, and each a message of its own to the client."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from session_driver import Driver, numbered_packets

from realtime_tts.audio.packets import Packets
from realtime_tts.session.memory import OBJECT_BYTES, PACKET_BYTES, RETAINED_BYTES
from realtime_tts.session.messages import (
    AudioPackets,
    CancelRequest,
    ClientMessage,
    ContextCancelled,
    ContextDone,
    End,
    Flush,
    Flushed,
    PlaybackChanged,
    PlaybackReport,
    Resume,
    ServerMessage,
    Text,
    Words,
)
from realtime_tts.session.resume import ResumeBuffer


def runs(messages: list[ServerMessage]) -> list[tuple[int, int]]:
    """Return, for each message of audio, its number and how many packets it has."""
    return [(m.sequence, len(m.packets)) for m in messages if isinstance(m, AudioPackets)]


def speak(driver: Driver, first: int, num_packets: int) -> list[ServerMessage]:
    driver.session.contexts.audio("c", numbered_packets(first, num_packets), driver.now)
    return driver.session.messages_to_send(driver.now)


def test_a_patch_leaves_as_one_message_and_the_next_number_counts_its_packets(driver: Driver) -> None:
    driver.say("c", "A. B.")
    assert runs(speak(driver, 0, 2)) == [(2, 2)]  # the start and the first word came before
    assert runs(speak(driver, 2, 8)) == [(4, 8)]
    assert runs(speak(driver, 10, 1)) == [(12, 1)]


def test_no_more_of_a_patch_leaves_than_the_lead_allows(driver: Driver) -> None:
    driver.say("c", "A long story.")
    assert runs(speak(driver, 0, 153)) == [(2, 150)]
    driver.now += 0.02
    assert runs(driver.session.messages_to_send(driver.now)) == []
    assert runs(speak(driver, 153, 30)) == []
    driver.now += 0.46
    assert runs(driver.session.messages_to_send(driver.now)) == [(152, 24)]
    driver.session.receive(CancelRequest("c"), driver.now)
    (cancelled,) = driver.session.messages_to_send(driver.now)
    assert isinstance(cancelled, ContextCancelled)
    assert (cancelled.sequence, cancelled.played_ms) == (176, pytest.approx(480))


def test_a_listener_with_less_than_enough_in_hand_gets_packets_as_they_come(driver: Driver) -> None:
    driver.say("c", "A long story.")
    speak(driver, 0, 60)
    for patch in range(20):  # the engine is 1.2 s ahead, and stays so
        assert runs(speak(driver, 60 + 8 * patch, 8)) == [(62 + 8 * patch, 8)]
        driver.now += 0.16


def test_a_listener_with_enough_in_hand_gets_packets_in_batches(driver: Driver) -> None:
    driver.say("c", "A long story.")
    driver.wait(0)  # all of it is planned
    speak(driver, 0, 100)
    for patch in range(0, 21, 3):  # the engine is 2 s ahead, and stays so
        for held in range(2):
            assert runs(speak(driver, 100 + 8 * (patch + held), 8)) == []
            assert driver.session.next_deadline() == pytest.approx(driver.now + 0.5 - 0.16 * held)
            driver.now += 0.16
        assert runs(speak(driver, 100 + 8 * (patch + 2), 8)) == [(102 + 8 * patch, 24)]
        driver.now += 0.16


def test_a_batch_that_does_not_fill_leaves_when_a_second_and_a_half_is_in_hand(driver: Driver) -> None:
    driver.say("c", "A long story.")
    driver.wait(0)
    speak(driver, 0, 100)
    assert runs(speak(driver, 100, 8)) == []
    driver.now += 0.49
    assert runs(driver.session.messages_to_send(driver.now)) == []
    driver.now += 0.01
    assert runs(driver.session.messages_to_send(driver.now)) == [(102, 8)]


@pytest.mark.parametrize("end", [Flush("c", "f"), End("c")])
def test_what_a_flush_or_the_end_follows_does_not_wait_for_a_batch(driver: Driver, end: ClientMessage) -> None:
    driver.say("c", "A long story.")
    driver.receive(end)
    speak(driver, 0, 100)
    assert runs(speak(driver, 100, 8)) == []
    driver.session.contexts.segment_progress("c", 0, 20.0 * 108, True, driver.now)
    if isinstance(end, End):
        driver.session.contexts.audio_finished("c", driver.now)
    *_, packets, last = driver.session.messages_to_send(driver.now)
    assert runs([packets]) == [(102, 8)]
    assert isinstance(last, Flushed | ContextDone)


def test_a_message_ends_with_the_patch_that_exceeds_the_byte_limit(driver: Driver) -> None:
    driver.say("c", "A.")
    driver.drain()
    for patch in range(3):
        driver.session.contexts.audio("c", Packets((bytes(1000),) * 8, patch * 8 * 960, 960), driver.now)
    words, *none = driver.session.messages_to_send(driver.now, 250)
    assert isinstance(words, Words)
    assert not none
    assert runs(driver.session.messages_to_send(driver.now, 10_000)) == [(2, 16)]
    assert runs(driver.session.messages_to_send(driver.now)) == [(18, 8)]


def test_words_of_a_patch_come_before_it_and_those_of_the_next_do_not(driver: Driver) -> None:
    driver.say("c", "One two three. ")
    driver.drain()
    for first in (0, 8, 16):
        driver.session.contexts.segment_progress("c", 0, 20.0 * (first + 8), False, driver.now)
        *words, packets = speak(driver, first, 8)
        assert isinstance(packets, AudioPackets)
        starts = [word.start_ms for message in words if isinstance(message, Words) for word in message.words]
        assert all(start < 20 * (first + 8) for start in starts)


def test_a_flush_parts_the_packets_around_it(driver: Driver) -> None:
    driver.receive(Text("c", "A."), Flush("c", "f"), Text("c", "B."))
    driver.session.contexts.audio("c", numbered_packets(0, 4), driver.now)
    driver.session.contexts.segment_progress("c", 0, 80.0, True, driver.now)
    driver.session.contexts.audio("c", numbered_packets(4, 4), driver.now)
    sent = driver.session.messages_to_send(driver.now)
    assert [type(m) for m in sent if not isinstance(m, Words)] == [AudioPackets, Flushed, AudioPackets]


def test_packets_with_a_gap_before_them_are_refused(driver: Driver) -> None:
    driver.say("c", "A.")
    assert runs(speak(driver, 0, 2)) == [(2, 2)]
    with pytest.raises(ValueError, match="expected 1920"):
        driver.session.contexts.audio("c", Packets((b"", b""), 2880, 960), driver.now)
    assert runs(speak(driver, 2, 2)) == [(4, 2)]


def test_a_batch_causes_no_underrun_at_a_short_lead(make_driver: Callable[..., Driver]) -> None:
    """What is left to play when the next packets leave: with a lead of 200 ms, three quarters of it at least."""
    driver = make_driver(max_lead_s=0.2)
    driver.say("c", "A long story.")
    driver.speak("c", 0, 10_000)
    clock = driver.session.contexts.open["c"].sender.clock
    while driver.now < 1005:
        driver.now = driver.session.next_deadline() or 0
        driver.session.tick(driver.now)
        assert clock.sent_ms - clock.position_ms(driver.now) >= 149
        driver.drain()


# ---- what is kept of them ----------------------------------------------------------------------------------------


def test_a_client_gets_the_rest_of_a_patch_of_which_it_has_some(driver: Driver) -> None:
    driver.say("c", "A. B.")
    driver.drain()
    first = speak(driver, 0, 8)
    driver.session.connection_lost(driver.now)
    driver.session.resume(Resume("s1", {"c": 4}), driver.now)
    _, again = driver.session.messages_to_send(driver.now)
    assert isinstance(again, AudioPackets)
    assert isinstance(first[-1], AudioPackets)
    assert again == first[-1].between(3)
    assert again.sequence == 5


def test_what_is_sent_again_is_cut_by_the_lead_too(driver: Driver) -> None:
    driver.say("c", "A long story.")
    speak(driver, 0, 150)
    driver.now += 1
    assert runs(speak(driver, 150, 50)) == [(152, 50)]
    driver.session.connection_lost(driver.now)
    driver.session.resume(Resume("s1", {"c": 21}), driver.now)
    assert runs(driver.session.messages_to_send(driver.now)) == [(22, 150)]
    assert driver.session.contexts.open["c"].sender.next_sequence == 172
    driver.now += 1
    assert runs(driver.session.messages_to_send(driver.now)) == [(172, 30)]


def test_an_acknowledgement_and_a_shortage_drop_whole_messages() -> None:
    buffer = ResumeBuffer(30.0)
    for patch in range(4):
        packets = Packets((bytes(100),) * 8, 960 * 8 * patch, 960)
        buffer.add(AudioPackets("c", 1 + 8 * patch, 1, packets), 0.0)
    message_bytes = OBJECT_BYTES + RETAINED_BYTES + 8 * (PACKET_BYTES + 100)
    assert buffer.num_bytes == 4 * message_bytes
    buffer.acknowledge("c", 960 * 15.5)
    assert buffer.num_bytes == 3 * message_bytes
    buffer.shrink(3 * message_bytes - 1)
    assert buffer.num_bytes == 2 * message_bytes
    missing = buffer.take_missing("c", 20, 33)
    assert not missing.has_gap
    assert runs(missing.messages) == [(21, 4), (25, 8)]
    assert buffer.num_bytes == 0


# ---- what the engine is told of them -----------------------------------------------------------------------------


def test_an_acknowledgement_that_says_what_the_engine_expects_is_not_passed_on(driver: Driver) -> None:
    driver.say("c", "A long story.")
    driver.speak("c", 0, 10_000)
    told = len(driver.done(PlaybackChanged))
    for played_ms in (250, 495, 760, 1000):
        driver.wait(0.25)
        driver.receive(PlaybackReport("c", played_ms))
    assert len(driver.done(PlaybackChanged)) == told
    driver.wait(0.25)
    driver.receive(PlaybackReport("c", 1200))  # 50 ms behind
    assert driver.done(PlaybackChanged)[told:] == [PlaybackChanged("c", 1200, paused=False)]
    for step in range(1, 9):
        driver.wait(0.25)
        driver.receive(PlaybackReport("c", 1200 + 250 * step))
    assert driver.done(PlaybackChanged)[told + 1 :] == [PlaybackChanged("c", 3200, paused=False)]  # so often at least
