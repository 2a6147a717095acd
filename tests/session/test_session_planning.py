"""Text is planned as far as it can be spoken soon, a little at a time, without an audible difference."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_driver import Driver, FakePlanner, FakeSegment

from realtime_tts.session.context import MAX_UNSPOKEN
from realtime_tts.session.context_text import SLICE_CHARS, ContextText
from realtime_tts.session.contexts import PLAN_CHARS
from realtime_tts.session.messages import (
    ContextDone,
    ContextStarted,
    End,
    EndOfSegments,
    Flush,
    Flushed,
    StartSpeech,
    Text,
)
from realtime_tts.text.planner import PlannerFactory, Segment

LONG = "One two three. " * 1000
PLANNERS = PlannerFactory(None, 200, 1.0)
WORDS = st.lists(
    st.sampled_from(["One", " two", " $3.50", ".", ", ", "🙂", "\n", "é", " U.S. ", "x" * 90]), max_size=40
)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of characters that the planner was given, call by call."""
    found: list[int] = []
    push = FakePlanner.push

    def counted(self: FakePlanner, delta: str, now: float) -> list[FakeSegment]:
        found.append(len(delta))
        return push(self, delta, now)

    monkeypatch.setattr(FakePlanner, "push", counted)
    return found


def started(driver: Driver) -> list[int]:
    return [event.segment.index for event in driver.done(StartSpeech)]


def test_only_what_the_engine_may_take_is_planned(driver: Driver, reads: list[int]) -> None:
    driver.receive(Text("c", LONG), End("c"))
    driver.wait(0)
    num_planned = len(started(driver))
    assert MAX_UNSPOKEN <= num_planned <= MAX_UNSPOKEN + SLICE_CHARS / 15
    num_read = sum(reads)
    assert num_read <= 2 * SLICE_CHARS
    assert driver.session.next_deadline() != driver.now
    driver.speak("c", 0, 100)
    assert len(started(driver)) == num_planned  # there are enough left
    for index in range(1, num_planned):
        driver.speak("c", index, 100)
        assert len(started(driver)) - index - 1 >= MAX_UNSPOKEN


def test_planning_stops_for_others_and_goes_on(driver: Driver, reads: list[int]) -> None:
    driver.receive(Text("c", " " * 20_000))
    assert sum(reads) <= PLAN_CHARS
    assert max(reads) <= SLICE_CHARS
    assert driver.session.next_deadline() == driver.now
    while driver.session.next_deadline() == driver.now:
        before = sum(reads)
        driver.session.tick(driver.now)
        assert 0 < sum(reads) - before <= PLAN_CHARS
    assert sum(reads) == 20_000


def test_contexts_of_a_session_share_one_turn(driver: Driver, reads: list[int]) -> None:
    for index in range(16):
        driver.receive(Text(f"c{index}", " " * 1000))
    reads.clear()
    driver.session.tick(driver.now)
    assert sum(reads) <= PLAN_CHARS


def test_all_of_a_long_text_is_spoken_and_counted(driver: Driver) -> None:
    driver.receive(Text("c", LONG), End("c"))
    driver.wait(0)
    assert not driver.done(EndOfSegments)
    index = 0
    while index < len(started(driver)):
        driver.speak("c", index, 20)
        driver.wait(0.02)
        index += 1
    assert started(driver) == list(range(1000))
    assert len(driver.done(EndOfSegments)) == 1
    driver.finish("c")
    driver.wait(30)
    assert driver.of(ContextDone)[0].characters == len(LONG)


def test_a_flush_waits_for_the_text_before_it(driver: Driver) -> None:
    driver.receive(Text("c", LONG[:150]), Flush("c", "first"), Text("c", "Four five"), Flush("c", "second"))
    driver.wait(0)
    for index in range(10):
        assert not driver.of(Flushed)
        driver.speak("c", index, 20)
        driver.wait(0.02)
    assert [flushed.flush_id for flushed in driver.of(Flushed)] == ["first"]
    driver.speak("c", 10, 20)
    driver.wait(0.02)
    assert [(flushed.flush_id, flushed.audio_ms) for flushed in driver.of(Flushed)] == [("first", 200), ("second", 220)]
    assert driver.done(StartSpeech)[-1].segment.text == "Four five"


def test_a_stalled_text_is_spoken_when_the_engine_has_room(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(stall_s=0.5)
    driver.receive(Text("c", "One. Two. Three. Four"))
    driver.wait(2)
    assert len(started(driver)) == 3
    driver.speak("c", 0, 20)
    driver.wait(0)
    assert driver.done(StartSpeech)[-1].segment.text == " Four"


def test_a_text_that_stalls_is_spoken_after_its_wait(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(stall_s=0.5)
    driver.receive(Text("c", "One"))
    driver.wait(0.49)
    assert not started(driver)
    driver.wait(0.01)
    assert started(driver) == [0]


def test_a_blank_text_is_done_when_all_of_it_was_read(driver: Driver) -> None:
    driver.receive(Text("c", " \n" * 5000), End("c"))
    assert driver.of(ContextStarted)
    driver.wait(0)
    assert driver.of(ContextDone)[0].characters == 10_000


def drained(context_text: ContextText) -> list[Segment]:
    segments: list[Segment] = []
    while planned := context_text.step(0.0):
        segments += planned.segments  # type: ignore[arg-type]
    return segments


@given(words=WORDS, cuts=st.lists(st.integers(0, 400), max_size=10), flush_at=st.integers(0, 400))
def test_slices_give_the_segments_of_the_whole(words: list[str], cuts: list[int], flush_at: int) -> None:
    text = "".join(words)
    flush_at = min(flush_at, len(text))
    planner = PLANNERS.make("en")
    expected = [*planner.push(text[:flush_at], 0.0), *planner.flush(0.0)]
    expected += [*planner.push(text[flush_at:], 0.0), *planner.end(0.0)]
    context_text = ContextText(PLANNERS.make("en"))
    segments: list[Segment] = []
    bounds = sorted({0, flush_at, len(text), *(min(cut, len(text)) for cut in cuts)})
    if flush_at == 0:
        context_text.flush(None)
    for number, (start, end) in enumerate(pairwise(bounds)):
        context_text.push(text[start:end], 0.0)
        if end == flush_at:
            context_text.flush(None)
        if number % 2:
            segments += drained(context_text)
    context_text.end()
    segments += drained(context_text)
    assert segments == expected
    assert context_text.is_planned
    assert context_text.head(7) == text[:7]
    assert context_text.num_chars == len(text)
