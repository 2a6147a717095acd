"""Segments that are spoken while they are being written: what the engine is given, and what the client hears."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from session_config import session_config
from session_driver import Driver, FakePlanner, resolve

from realtime_tts.audio.packets import Packets
from realtime_tts.contract.speech_params import SpeechParams
from realtime_tts.errors import EngineLost
from realtime_tts.session.context import MAX_UNSPOKEN
from realtime_tts.session.context_text import ContextText
from realtime_tts.session.messages import (
    CancelRequest,
    ContextCancelled,
    ContextDone,
    ContextFailed,
    Crashed,
    End,
    EndOfSegments,
    ExtendSpeech,
    Flush,
    Flushed,
    PlaybackReport,
    Resume,
    StartSpeech,
    StopSpeech,
    Text,
    Words,
)
from realtime_tts.session.session import Session
from realtime_tts.text.planner import PlannerFactory, Segment

LIVE = SpeechParams(mode="live")


def write(driver: Driver, *pieces: str) -> None:
    """Pieces of one context, a tenth of a second apart."""
    for piece in pieces:
        driver.receive(Text("c", piece, params=LIVE))
        driver.wait(0.1)


def given_to_the_engine(driver: Driver) -> list[tuple[str, int, str, bool]]:
    """What of segments was handed over: started or extended, index, text, whether it is final."""
    events = [event for event in driver.did if isinstance(event, StartSpeech | ExtendSpeech)]
    kinds = {StartSpeech: "start", ExtendSpeech: "extend"}
    return [(kinds[type(e)], e.segment.index, e.segment.text, e.segment.final) for e in events]


def speak_until(driver: Driver, char: float, audio_ms: int = 400, from_ms: int = 0) -> None:
    """Audio of the context, at the end of which a character of the first segment has been reached."""
    for index in range(from_ms // 20, audio_ms // 20):
        driver.session.contexts.audio("c", Packets((b"",), index * 960, 960), driver.now)
    driver.session.contexts.segment_progress("c", 0, audio_ms, False, driver.now, (audio_ms, char))
    driver.drain()


def test_a_segment_is_started_with_its_first_words_and_extended_to_its_end(driver: Driver) -> None:
    write(driver, "One two", " three", " four", " five.", " Six")
    assert given_to_the_engine(driver) == [
        ("start", 0, "One two", False),
        ("extend", 0, "One two three", False),
        ("extend", 0, "One two three four five.", True),
    ]


@pytest.mark.parametrize(
    ("message", "rest"), [(Flush("c", "f"), []), (End("c"), [EndOfSegments("c")])], ids=["flush", "end"]
)
def test_a_flush_and_the_end_close_the_open_segment(driver: Driver, message: Any, rest: list[Any]) -> None:
    write(driver, "One two three fo")
    driver.receive(message)
    assert given_to_the_engine(driver) == [
        ("start", 0, "One two three", False),
        ("extend", 0, "One two three fo", True),
    ]
    driver.wait(0)
    assert driver.done(EndOfSegments) == rest
    write(driver, *[" ur five six"] * (not rest))
    assert [index for _, index, *_ in given_to_the_engine(driver)[2:]] == [1] * (not rest)


def test_text_that_stalls_closes_the_open_segment(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(stall_s=0.5)
    write(driver, "One two three fo")
    driver.wait(0.3)
    assert len(given_to_the_engine(driver)) == 1
    driver.wait(0.2)
    assert given_to_the_engine(driver)[1:] == [("extend", 0, "One two three fo", True)]


def test_a_flush_is_answered_when_the_segment_that_it_closes_was_spoken(driver: Driver) -> None:
    write(driver, "One two three", " four")
    driver.receive(Flush("c", "f"))
    driver.give("c", 5)
    driver.session.contexts.segment_progress("c", 0, 100, False, driver.now)
    assert not driver.of(Flushed)
    driver.speak("c", 0, 200)
    driver.receive(PlaybackReport("c", 300))
    assert [flushed.flush_id for flushed in driver.of(Flushed)] == ["f"]
    assert [word.text for words in driver.of(Words) for word in words.words] == ["One", "two", "three", "four"]


def test_an_open_segment_counts_once_and_gets_its_text_when_its_turn_is_near(driver: Driver) -> None:
    write(driver, "One. Two. Three four five")
    assert [event.segment.index for event in driver.done(StartSpeech)] == [0, 1, 2]
    assert MAX_UNSPOKEN == 3
    write(driver, " six", " seven")
    assert not driver.done(ExtendSpeech)  # the engine speaks another one
    driver.speak("c", 0, 100)
    driver.wait(0)
    assert given_to_the_engine(driver)[-1] == ("extend", 2, " Three four five six", False)
    driver.speak("c", 1, 100)
    for word in ("eight", "nine", "ten"):  # it is the last one, and being spoken
        write(driver, f" {word}")
    assert given_to_the_engine(driver)[-1] == ("extend", 2, " Three four five six seven eight nine", False)
    driver.receive(End("c"))
    driver.wait(0)
    assert given_to_the_engine(driver)[-1][2:] == (" Three four five six seven eight nine ten", True)
    assert len(driver.done(EndOfSegments)) == 1


def test_text_that_is_long_in_waiting_is_all_planned_in_the_end(driver: Driver) -> None:
    """Whatever stands in its way for a while: no room, other contexts, a turn's work."""
    driver.receive(Text("c", "One. Two. Three. Four. " + "five " * 60, params=LIVE), End("c"))
    index = 0
    while not driver.done(EndOfSegments) or index <= driver.done(StartSpeech)[-1].segment.index:
        driver.wait(0.02)
        driver.speak("c", index, 100)
        index += 1
    assert given_to_the_engine(driver)[-1] == ("extend", 4, " " + "five " * 60, True)


def test_a_cancel_tells_what_was_heard_of_the_open_segment(driver: Driver) -> None:
    write(driver, "One two three", " four five")
    speak_until(driver, 8.0)
    driver.wait(0.45)  # all of it has been played
    [cancelled] = [m for m in driver.receive(CancelRequest("c")) if isinstance(m, ContextCancelled)]
    assert cancelled.spoken_text == "One two"
    assert len(driver.done(StopSpeech)) == 1
    num_events = len(driver.did)
    driver.receive(Text("c", " six seven"))
    driver.wait(5)
    assert not [event for event in driver.did[num_events:] if isinstance(event, StartSpeech | ExtendSpeech)]


def test_a_failure_while_a_segment_is_open_tells_what_was_sent(driver: Driver) -> None:
    write(driver, "One two three", " four five")
    speak_until(driver, 8.0)
    driver.session.contexts.failed("c", EngineLost("the worker is gone"), driver.now)
    driver.drain()
    [failed] = driver.of(ContextFailed)
    assert (failed.code, failed.audio_ms, failed.spoken_text) == ("engine_lost", 400, "One two")
    assert len(driver.done(StopSpeech)) == 1


def test_a_word_that_was_known_after_its_audio_had_left_was_heard(driver: Driver) -> None:
    write(driver, "One two three", " fo")
    speak_until(driver, 13.0)  # "three" has been said, but what touches it was not known
    assert [word.text for words in driver.of(Words) for word in words.words] == ["One", "two"]
    write(driver, "ur five")
    speak_until(driver, 14.0, audio_ms=440, from_ms=400)
    driver.wait(0.8)
    [cancelled] = [m for m in driver.receive(CancelRequest("c")) if isinstance(m, ContextCancelled)]
    assert cancelled.spoken_text == "One two three"


def test_ends_are_told_when_they_are_measured(driver: Driver) -> None:
    write(driver, "One two three.")
    driver.receive(End("c"))
    speak_until(driver, 3.0, audio_ms=200)
    driver.wait(0.2)
    speak_until(driver, 8.0, audio_ms=600, from_ms=200)
    driver.wait(0.4)
    speak_until(driver, 13.0, audio_ms=1000, from_ms=600)
    driver.session.contexts.segment_progress("c", 0, 1200, True, driver.now)
    driver.finish("c")
    driver.wait(2)
    ends_ms: list[float] = []
    for message in driver.of(Words):
        if message.previous_end_ms is not None:
            ends_ms[-1] = message.previous_end_ms
        ends_ms += [word.end_ms for word in message.words]
    assert ends_ms == pytest.approx([280, 600, 1100])
    assert driver.of(Words)[-1].words == ()


def test_a_cancel_tells_how_far_into_the_word_it_got(driver: Driver) -> None:
    write(driver, "One two three", " four")
    speak_until(driver, 8.0)
    driver.wait(0.3)
    [cancelled] = [m for m in driver.receive(CancelRequest("c")) if isinstance(m, ContextCancelled)]
    assert (cancelled.spoken_text, cancelled.word_share) == ("One", pytest.approx(0.5))


def test_after_the_end_all_of_the_text_was_heard(driver: Driver) -> None:
    write(driver, "One two three", " four ", "🙂")
    driver.receive(End("c"))
    driver.speak("c", 0, 400)
    driver.finish("c")
    driver.wait(1)
    assert driver.of(ContextDone)
    driver.receive(CancelRequest("c"))
    assert driver.sent[-1].spoken_text == "One two three four "


def test_an_open_segment_outlives_the_connection(driver: Driver) -> None:
    write(driver, "One two three", " fo")
    driver.session.connection_lost(driver.now)
    driver.wait(2)
    driver.session.resume(Resume("s1", {"c": 0}), driver.now)
    driver.drain()
    write(driver, "ur", " five.")
    assert given_to_the_engine(driver)[-1] == ("extend", 0, "One two three four five.", True)


def test_what_an_open_segment_keeps_in_memory_is_counted() -> None:
    grown = []
    for live in (True, False):
        context_text = ContextText(FakePlanner(live=live))
        context_text.push("One two three four", 0.0)
        before = context_text.num_bytes
        while context_text.step(0.0):
            pass
        grown.append(context_text.num_bytes - before)
    assert grown[0] == grown[1] > 0  # the planner has all of it until its segment is whole


# ---- any text, any split, at any pace --------------------------------------------------------------------------------

PATCH_MS, CHARS_PER_PATCH, LOOK_AHEAD_CHARS = 160, 2.4, 14


@dataclass
class Turn:
    """A turn of speech from the first piece of its text to its terminal message, with an engine that measures."""

    mode: str
    rng: random.Random
    stall_s: float | None = None
    now: float = 1000.0
    segments: list[Segment] = field(default_factory=list)  # the newest version of each
    words: list[tuple[str, int, int]] = field(default_factory=list)
    terminals: list[Any] = field(default_factory=list)
    num_done: int = 0
    num_patches: int = 0
    num_packets: int = 0
    num_extended: int = 0
    ended: bool = False

    def __post_init__(self) -> None:
        planners = PlannerFactory(None, 70, self.stall_s)
        self.session = Session(
            "s",
            session_config(max_session_bytes=10**7, idle_timeout_s=1e9),
            resolve=resolve,
            make_planner=lambda settings: planners.make("en", live=settings.params["mode"] == "live"),
            now=self.now,
        )

    def play(self, pieces: Sequence[tuple[str, float]], flushes: frozenset[int]) -> None:
        for index, (text, wait_s) in enumerate(pieces):
            self.session.receive(Text("c", text, params=SpeechParams(mode=self.mode)), self.now)
            if index in flushes:
                self.session.receive(Flush("c"), self.now)
            self.drain()
            self.run(wait_s)
        self.session.receive(End("c"), self.now)
        self.drain()
        for _ in range(10_000):
            if self.terminals:
                break
            self.run(0.2)
        self.run(1.0)

    def run(self, seconds: float) -> None:
        """The session is woken at its deadlines, and the engine works a little between."""
        end = self.now + seconds
        for _ in range(1000):
            due = self.session.next_deadline()
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            self.session.tick(self.now)
            self.drain()
        self.now = end
        for _ in range(self.rng.randint(0, 3)):
            self.speak_patch()

    def speak_patch(self) -> None:
        if self.num_done == len(self.segments):
            if self.ended and not self.terminals:
                self.ended = False
                self.session.contexts.audio_finished("c", self.now)
                self.drain()
            return
        segment = self.segments[self.num_done]
        position = self.num_patches * CHARS_PER_PATCH
        if not segment.final and len(segment.text) - position < LOOK_AHEAD_CHARS:
            return
        done = segment.final and position >= len(segment.text)
        if not done:
            self.num_patches += 1
            for _ in range(PATCH_MS // 20):
                self.session.contexts.audio("c", Packets((b"",), self.num_packets * 960, 960), self.now)
                self.num_packets += 1
        audio_ms = PATCH_MS * self.num_patches
        reached = None if done else (audio_ms, min(position + CHARS_PER_PATCH, len(segment.text)))
        self.session.contexts.segment_progress("c", segment.index, audio_ms, done, self.now, reached)
        if done:
            self.num_done, self.num_patches = self.num_done + 1, 0
        self.drain()

    def drain(self) -> None:
        for message in self.session.messages_to_send(self.now):
            if isinstance(message, Words):
                self.words += [(word.text, word.start, word.end) for word in message.words]
            elif isinstance(message, ContextDone | ContextCancelled | ContextFailed):
                self.terminals.append(message)
        self.session.receive(PlaybackReport("c", 20 * self.num_packets), self.now)
        for event in self.session.events():
            assert not isinstance(event, Crashed), event
            if isinstance(event, StartSpeech):
                assert event.segment.index == len(self.segments)
                assert not self.segments or self.segments[-1].final
                self.segments.append(event.segment)
            elif isinstance(event, ExtendSpeech):
                before = self.segments[-1]
                assert not before.final
                assert (event.segment.index, event.segment.start) == (before.index, before.start)
                assert event.segment.text.startswith(before.text)
                assert event.segment.words[: len(before.words)] == before.words
                self.segments[-1] = event.segment
                self.num_extended += 1
            elif isinstance(event, EndOfSegments):
                assert all(segment.final for segment in self.segments)
                self.ended = True


WORDS = """
    the a of and it was in to I We said that Dr. Smith March 3 $5 U.S. No. well, then: so. Yes! really? e.g. API 12
    (and more) — was-it etc. never over while which https://a.io/b 🙂 🙂🙂 é 12:30 internationalization, *so*
"""
TEXTS = st.lists(st.sampled_from(WORDS.split()), min_size=1, max_size=45).map(" ".join) | st.text(max_size=40)
CUTS = {"seed": st.integers(0, 2**32), "longest": st.sampled_from([1, 3, 9, 40, 400])}


def cut(text: str, rng: random.Random, longest: int, pauses_s: Sequence[float]) -> list[tuple[str, float]]:
    pieces, start = [], 0
    while start < len(text) or not pieces:
        end = start + rng.randint(1, longest)
        pieces.append((text[start:end], rng.choice(pauses_s)))
        start = end
    return pieces


@given(text=TEXTS, **CUTS, num_flushes=st.sampled_from([0, 0, 2]))
@settings(max_examples=150, deadline=None)
def test_live_and_by_clauses_the_same_is_said(text: str, seed: int, longest: int, num_flushes: int) -> None:
    rng = random.Random(seed)
    pieces = cut(text, rng, longest, (0.0, 0.0, 0.01, 0.05, 0.3))
    flushes = frozenset(rng.randrange(len(pieces)) for _ in range(num_flushes))
    turns = [Turn(mode, random.Random(seed)) for mode in ("live", "clause")]
    for turn in turns:
        turn.play(pieces, flushes)
    live, clause = turns
    assert live.segments == clause.segments
    assert live.words == clause.words == [(w.text, w.start, w.end) for each in clause.segments for w in each.words]
    assert [len(turn.terminals) for turn in turns] == [1, 1]
    assert all(isinstance(turn.terminals[0], ContextDone) for turn in turns)


@given(text=TEXTS, **CUTS)
@settings(max_examples=100, deadline=None)
def test_a_stream_that_stalls_is_said_to_its_end(text: str, seed: int, longest: int) -> None:
    rng = random.Random(seed)
    turn = Turn("live", rng, stall_s=0.5)
    turn.play(cut(text, rng, longest, (0.0, 0.05, 0.4, 0.7, 1.1)), frozenset())
    assert all(segment.final for segment in turn.segments)
    assert turn.words == [(w.text, w.start, w.end) for each in turn.segments for w in each.words]
    assert all(text[start:end] == word for word, start, end in turn.words)
    assert [type(message) for message in turn.terminals] == [ContextDone]


@given(text=TEXTS | st.lists(TEXTS, min_size=3, max_size=3).map(" ".join), seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_text_that_is_whole_when_it_comes_is_never_open(text: str, seed: int) -> None:
    turn = Turn("live", random.Random(seed))
    turn.play([(text, 0.0)], frozenset())
    assert turn.num_extended == 0
    assert [type(message) for message in turn.terminals] == [ContextDone]
