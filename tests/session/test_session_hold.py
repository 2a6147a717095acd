"""Hold and release: speech stops at a word, costs nothing while it is held, and goes on at a word or its clause."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from session_driver import PARKED, Driver

from realtime_tts.errors import EngineLost
from realtime_tts.session.alignment import MAX_REPEATED_MS
from realtime_tts.session.messages import (
    AudioPackets,
    CancelRequest,
    ContextCancelled,
    ContextDone,
    ContextFailed,
    ContextHeld,
    ContextReleased,
    End,
    ErrorMessage,
    Hold,
    PlaybackChanged,
    PlaybackReport,
    Release,
    Resume,
    StartSpeech,
    Text,
    TimedWord,
    Words,
)

# Spoken at 50 ms a character: 0 to 1000 ms, "two" from 1150, "three" 1350 to 1600, "four" to 1850.
SENTENCE = "Let me see for you, one two three four."


def words_of(driver: Driver) -> dict[str, TimedWord]:
    return {word.text: word for message in driver.of(Words) for word in message.words}


def speaking(driver: Driver, text: str = SENTENCE) -> dict[str, TimedWord]:
    """A context whose audio is there and is played in real time; the words that were sent."""
    driver.say("c", text)
    driver.wait(0.01)  # a long text is planned in turns
    for place, part in enumerate(re.findall(r"[^.]+\.", text)):
        driver.speak("c", place, 50 * len(part))
    driver.wait(0.01)
    return words_of(driver)


def held(driver: Driver) -> ContextHeld:
    return driver.of(ContextHeld)[-1]


def test_speech_stops_where_the_word_ends_that_is_heard(driver: Driver) -> None:
    words = speaking(driver)
    middle_ms = (words["three"].start_ms + words["three"].end_ms) / 2
    driver.receive(PlaybackReport("c", middle_ms), Hold("c"))
    assert held(driver) == ContextHeld("c", words["three"].end_ms, "Let me see for you, one two three", 33, 0.0, 30.0)


def test_between_words_and_on_request_it_stops_at_once(driver: Driver) -> None:
    words = speaking(driver)
    driver.receive(Hold("c", played_ms=words["two"].end_ms))
    assert held(driver).played_ms == words["two"].end_ms
    driver.receive(Release("c"), Hold("c", at="now", played_ms=words["three"].start_ms + 30))
    assert held(driver).played_ms == words["three"].start_ms + 30
    assert held(driver).spoken_text == "Let me see for you, one two"


def test_nothing_is_sent_or_made_while_it_is_held(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(keepalive_s=1e6)
    speaking(driver, (SENTENCE + " ") * 3)
    driver.did.clear()
    driver.receive(Hold("c"))
    driver.receive(PlaybackReport("c", 600), PlaybackReport("c", 700))
    assert driver.wait(20) == []
    assert driver.done(PlaybackChanged) == [PARKED]
    driver.receive(Release("c"))
    assert [event.paused for event in driver.done(PlaybackChanged)] == [True, False]
    driver.wait(60)
    assert driver.sent_ms("c") == 20 * (98 + 100 + 100)


def test_text_that_comes_meanwhile_does_not_wake_the_engine(driver: Driver) -> None:
    driver.receive(Text("c", "Well."), Hold("c"))
    driver.did.clear()
    driver.receive(Text("c", " And this."))
    assert [type(event) for event in driver.did] == [StartSpeech, PlaybackChanged]
    assert driver.did[-1] == PARKED


def test_a_context_is_held_and_released_before_it_has_anything_to_say(driver: Driver) -> None:
    driver.receive(Text("c", "Well"), Hold("c"), Release("c"), Text("c", "."))
    assert [type(event) for event in driver.did] == [StartSpeech]


@pytest.mark.parametrize(("waited_s", "goes_on_at"), [(0.5, "three"), (2.5, "one")])
def test_it_goes_on_at_the_next_word_or_after_a_while_at_its_clause(
    driver: Driver, waited_s: float, goes_on_at: str
) -> None:
    words = speaking(driver)
    driver.receive(Hold("c", played_ms=words["two"].start_ms + 20))
    driver.wait(waited_s)
    driver.receive(Release("c"))
    (released,) = driver.of(ContextReleased)
    expected_ms = words["two"].end_ms if goes_on_at == "three" else words["one"].start_ms
    assert released == ContextReleased("c", expected_ms)


def test_a_clause_that_was_heard_to_its_end_is_not_repeated(driver: Driver) -> None:
    words = speaking(driver)
    driver.receive(Hold("c", played_ms=words["you"].start_ms + 20), Release("c", clause_after_ms=0))
    assert driver.of(ContextReleased)[-1].from_ms == words["you"].end_ms


def test_a_clause_that_is_too_long_is_not_repeated(driver: Driver) -> None:
    text = "and so on " * 40 + "."
    speaking(driver, text)
    driver.wait(12)
    driver.receive(Hold("c"), Release("c", clause_after_ms=0))
    assert held(driver).played_ms > MAX_REPEATED_MS
    assert driver.of(ContextReleased)[-1].from_ms == held(driver).played_ms


def test_what_was_heard_stays_heard_when_a_clause_begins_again(driver: Driver) -> None:
    words = speaking(driver)
    driver.receive(PlaybackReport("c", words["two"].start_ms + 20), Hold("c"), Release("c", clause_after_ms=0))
    driver.receive(PlaybackReport("c", words["one"].start_ms + 40), CancelRequest("c"))
    (cancelled,) = driver.of(ContextCancelled)
    assert cancelled.spoken_text == "Let me see for you, one two"
    assert cancelled.played_ms == pytest.approx(words["one"].start_ms + 40)


def test_reports_after_a_release_move_the_position_again(driver: Driver) -> None:
    words = speaking(driver)
    driver.receive(PlaybackReport("c", words["four"].start_ms), Hold("c"), Release("c", clause_after_ms=0))
    driver.receive(PlaybackReport("c", words["one"].start_ms + 100), Hold("c", at="now"))
    assert held(driver).played_ms == pytest.approx(words["one"].start_ms + 100)


def test_a_context_that_was_sent_completely_is_held_too(driver: Driver) -> None:
    words = speaking(driver)
    driver.receive(End("c"))
    driver.finish("c")
    assert driver.of(ContextDone)
    driver.receive(Hold("c", played_ms=words["one"].start_ms + 20))
    assert held(driver).spoken_text == "Let me see for you, one"
    driver.receive(Release("c"))
    assert driver.of(ContextReleased)[-1].from_ms == words["one"].end_ms


def test_a_second_hold_changes_nothing(driver: Driver) -> None:
    words = speaking(driver)
    driver.receive(Hold("c", played_ms=words["one"].end_ms))
    driver.wait(1)
    driver.receive(Hold("c", played_ms=words["three"].end_ms))
    first, second = driver.of(ContextHeld)
    assert first == second


def test_a_context_that_is_not_released_is_cancelled(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(hold_timeout_s=4.0)
    words = speaking(driver)
    driver.receive(Hold("c", played_ms=words["one"].end_ms))
    driver.wait(3.9)
    assert not driver.of(ContextCancelled)
    driver.wait(0.2)
    (cancelled,) = driver.of(ContextCancelled)
    assert (cancelled.spoken_text, cancelled.played_ms) == ("Let me see for you, one", words["one"].end_ms)
    driver.receive(Release("c"))
    assert driver.of(ErrorMessage)[-1].code == "context_closed"


def test_a_held_context_survives_a_lost_connection(driver: Driver) -> None:
    words = speaking(driver)
    driver.receive(Hold("c", played_ms=words["one"].end_ms))
    last = max(message.sequence for message in driver.sent if hasattr(message, "sequence"))
    driver.session.connection_lost(driver.now)
    driver.wait(1)
    driver.session.resume(Resume("s1", {"c": last}), driver.now)
    driver.drain()
    driver.receive(PlaybackReport("c", words["four"].end_ms), Release("c"))
    assert driver.of(ContextReleased)[-1].from_ms == words["one"].end_ms


def test_a_held_context_that_fails_while_the_connection_is_lost_tells_its_end(driver: Driver) -> None:
    speaking(driver)
    driver.receive(Hold("c", at="now", played_ms=0))
    num_sent = sum(len(message.packets) for message in driver.of(AudioPackets))
    driver.session.connection_lost(driver.now)
    driver.session.contexts.failed("c", EngineLost("the worker is gone"), driver.now)
    driver.sent.clear()
    driver.session.resume(Resume("s1", {"c": -1}), driver.now)
    driver.wait(3)
    assert sum(len(message.packets) for message in driver.of(AudioPackets)) == num_sent
    assert isinstance(driver.sent[-1], ContextFailed)


def test_a_release_without_a_hold_tells_the_position(driver: Driver) -> None:
    speaking(driver)
    driver.receive(PlaybackReport("c", 700), Release("c"))
    assert driver.of(ContextReleased) == [ContextReleased("c", 700)]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (Hold("other"), "invalid_request"),
        (Release("other"), "invalid_request"),
        (Hold("c", played_ms=-1), "invalid_message"),
        (Hold("c", played_ms=float("nan")), "invalid_message"),
        (Release("c", clause_after_ms=-1), "invalid_message"),
    ],
)
def test_a_wrong_request_is_refused_and_speech_goes_on(driver: Driver, message: Hold | Release, code: str) -> None:
    speaking(driver)
    driver.receive(message)
    assert driver.of(ErrorMessage)[-1].code == code
    driver.give("c", 5)
    driver.wait(2)
    assert driver.sent_ms("c") == 20 * (round(50 * len(SENTENCE) / 20) + 5)


def test_the_rest_of_a_word_is_made_and_sent(driver: Driver) -> None:
    driver.say("c", "Incredible.")
    driver.give("c", 10)
    driver.session.contexts.segment_progress("c", 0, 200, False, driver.now, reached=(200, 4))
    driver.give("c", 1)  # the word begins with the next packet that leaves
    (word,) = words_of(driver).values()
    assert word.end_ms > 400
    driver.did.clear()
    driver.receive(Hold("c", played_ms=100))
    assert held(driver).played_ms == word.end_ms
    assert held(driver).spoken_text == "Incredible"
    assert PARKED not in driver.did
    driver.give("c", 40)
    assert driver.did.count(PARKED) == 1
    assert word.end_ms <= driver.sent_ms("c") <= word.end_ms + 40
    driver.receive(CancelRequest("c"))
    assert driver.of(ContextCancelled)[-1].spoken_text == "Incredible"


def begin_long_word(driver: Driver) -> TimedWord:
    """Begin a word of which 220 ms are made; its estimated end."""
    driver.say("c", "Incredible.")
    driver.give("c", 10)
    driver.session.contexts.segment_progress("c", 0, 200, False, driver.now, reached=(200, 4))
    driver.give("c", 1)
    (word,) = words_of(driver).values()
    return word


def test_the_rest_of_a_word_is_made_for_a_listener_that_had_paused(driver: Driver) -> None:
    word = begin_long_word(driver)
    driver.receive(PlaybackReport("c", 100))
    driver.wait(0.6)
    driver.receive(PlaybackReport("c", 100))
    assert driver.done(PlaybackChanged)[-1].paused  # the engine stays a little ahead of 100 ms
    driver.receive(Hold("c", played_ms=100))
    assert driver.done(PlaybackChanged)[-1] == PlaybackChanged("c", word.end_ms, False)
    driver.give("c", 40)
    assert driver.did[-1] == PARKED


def test_the_rest_of_a_word_is_made_after_a_lost_connection(driver: Driver) -> None:
    word = begin_long_word(driver)
    driver.receive(Hold("c", played_ms=100))
    driver.session.connection_lost(driver.now)
    driver.drain()
    driver.did.clear()
    driver.session.resume(Resume("s1", {"c": 100}), driver.now)
    driver.drain()
    assert driver.did == [PlaybackChanged("c", word.end_ms, False)]


def test_a_report_while_it_is_held_confirms_no_more_than_it_says(driver: Driver) -> None:
    word = begin_long_word(driver)
    driver.receive(Hold("c", played_ms=100))
    for _ in range(10):
        driver.give("c")  # the rest of the word, some of it on its way
    assert held(driver).played_ms == word.end_ms > 320
    driver.receive(PlaybackReport("c", 120))
    arrived, *lost = driver.of(AudioPackets)[15:]
    driver.session.connection_lost(driver.now)
    driver.sent.clear()
    driver.session.resume(Resume("s1", {"c": arrived.sequence}), driver.now)
    driver.drain()
    assert not driver.of(ContextFailed)
    assert driver.of(AudioPackets) == lost


def test_a_hold_waits_for_no_text_that_may_never_come(driver: Driver) -> None:
    begin_long_word(driver)
    driver.session.contexts.segment_progress("c", 0, 220, True, driver.now)
    driver.receive(Hold("c", played_ms=100))
    assert held(driver).played_ms == 220


@pytest.mark.parametrize("is_complete", [False, True], ids=["made later", "complete"])
def test_a_hold_in_the_last_word_is_no_later_than_the_end_of_the_audio(driver: Driver, is_complete: bool) -> None:
    begin_long_word(driver)
    driver.receive(End("c"))
    if is_complete:
        driver.finish("c")
        driver.receive(Hold("c", played_ms=100))
    else:
        driver.receive(Hold("c", played_ms=100))
        assert held(driver).played_ms > 220  # an estimate: speech may end sooner
        driver.finish("c")
    assert driver.of(ContextDone)
    driver.receive(Hold("c"))
    assert held(driver).played_ms == 220
    assert held(driver).spoken_text == "Incredible."
    driver.receive(Release("c", clause_after_ms=1e6))
    assert driver.of(ContextReleased)[-1].from_ms == 220


def test_a_word_that_is_cut_off_by_a_cancel_was_not_heard(driver: Driver) -> None:
    begin_long_word(driver)
    driver.receive(Hold("c", played_ms=100), CancelRequest("c"))
    assert driver.of(ContextCancelled)[-1].spoken_text == ""
    assert driver.of(ContextCancelled)[-1].played_ms == 220


def test_a_hold_far_ahead_sends_no_more_than_the_word(driver: Driver) -> None:
    words = speaking(driver, "Well now. " + SENTENCE * 6)
    driver.receive(Hold("c", at="now", played_ms=1e9))
    assert held(driver).played_ms <= driver.sent_ms("c") + max(word.end_ms - word.start_ms for word in words.values())
    assert driver.wait(1.0) == []


TICK_S, PATCH_MS, LEAD_MS = 0.05, 160.0, 320.0
WORDS = "Incredible internationalization, unbelievably uncomfortable accommodations, straightforwardly."


class PacedEngine:
    """An engine that makes a patch a tick while it is no more than `LEAD_MS` ahead of the listener, as far as it knows,
    and a listener in real time that pauses."""

    def __init__(self, driver: Driver, seed: int) -> None:
        self.driver, self.rng = driver, random.Random(seed)
        self.num_told = 0
        self.made_ms = self.known_ms = self.heard_ms = 0.0
        self.is_paused = self.is_parked = False
        driver.receive(Text("c", WORDS), End("c"))
        driver.wait(0.01)  # a long text is planned in turns

    @property
    def sent_ms(self) -> float:
        return self.driver.sent_ms("c")

    def learn(self) -> None:
        for event in self.driver.did[self.num_told :]:
            if isinstance(event, PlaybackChanged):
                self.is_parked, self.is_paused = event == PARKED, event.paused
                self.known_ms = min(event.played_ms, self.made_ms)
        self.num_told = len(self.driver.did)

    def tick(self) -> None:
        self.learn()
        if not self.is_paused:
            self.known_ms = min(self.made_ms, self.known_ms + 1000 * TICK_S)
        end_ms = 50.0 * len(WORDS)
        if not self.is_parked and self.made_ms - self.known_ms <= LEAD_MS and self.made_ms < end_ms:
            self.made_ms += PATCH_MS
            self.driver.give("c", round(PATCH_MS / 20))
            is_done, reached = self.made_ms >= end_ms, (self.made_ms, min(self.made_ms / 50, len(WORDS)))
            self.driver.session.contexts.segment_progress("c", 0, self.made_ms, is_done, self.driver.now, reached)
            if is_done:
                self.driver.finish("c")
        self.driver.wait(TICK_S)

    def play(self, duration_s: float, *, is_paused: bool) -> None:
        for number in range(round(duration_s / TICK_S)):
            self.heard_ms = self.heard_ms if is_paused else min(self.sent_ms, self.heard_ms + 1000 * TICK_S)
            if number % 4 == 0:
                self.driver.receive(PlaybackReport("c", self.heard_ms))
            self.tick()

    def reconnect(self) -> None:
        self.driver.session.connection_lost(self.driver.now)
        self.driver.drain()
        self.learn()
        self.is_parked = True  # by the live session
        self.driver.wait(self.rng.choice([0.0, 0.5]))
        last = max(message.sequence for message in self.driver.sent if hasattr(message, "sequence"))
        self.driver.session.resume(Resume("s1", {"c": last}), self.driver.now)
        self.driver.drain()


@pytest.mark.parametrize("first_seed", range(0, 200, 50))
def test_whenever_it_is_held_the_rest_of_the_word_comes(make_driver: Callable[..., Driver], first_seed: int) -> None:
    num_due = 0
    for seed in range(first_seed, first_seed + 50):
        driver = make_driver()
        engine = PacedEngine(driver, seed)
        engine.tick()
        while not driver.of(ContextDone):
            engine.play(engine.rng.uniform(0.1, 0.6), is_paused=False)
            if engine.rng.random() < 0.3:
                engine.play(0.8, is_paused=True)
            driver.receive(Hold("c", played_ms=engine.heard_ms))
            if engine.rng.random() < 0.3:
                engine.reconnect()
            num_due += engine.sent_ms < held(driver).played_ms
            for _ in range(40):
                engine.tick()
            driver.receive(Hold("c"))  # where it is held by now: the audio may have ended
            assert engine.sent_ms >= held(driver).played_ms - 0.1, seed
            driver.receive(Release("c", clause_after_ms=engine.rng.choice([0.0, 1e6])))
            engine.heard_ms = driver.of(ContextReleased)[-1].from_ms
    assert num_due > 50
