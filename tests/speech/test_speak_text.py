"""A whole text is handed to the engine as it can take it, in the segments that planning in one go gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from realtime_tts.speech.text_source import PLANNED_AHEAD_CHARS, TextSource, speak_text
from realtime_tts.text.normalizer import Normalizer
from realtime_tts.text.planner import Planner, PlannerFactory, Planning, Segment

TEXT = "One sentence, with a clause. " * 200


def make_planner() -> Planner:
    return PlannerFactory(None, 120, None).make("en", live=False)


class Engine:
    """Takes two segments at a time, as a speaker does."""

    def __init__(self, room: int) -> None:
        self.segments: list[Segment] = []
        self.ended: list[Exception | None] = []
        self.room = room
        self.has_room = asyncio.Event()
        self.has_room.set()

    def add(self, segment: Segment) -> None:
        self.segments.append(segment)
        if len(self.segments) >= self.room:
            self.has_room.clear()

    async def drain(self) -> None:
        await self.has_room.wait()

    def end(self, error: Exception | None = None) -> None:
        self.ended.append(error)

    def take(self, more: int) -> None:
        self.room += more
        self.has_room.set()


def texts(segments: Sequence[Segment]) -> list[str]:
    return [segment.text for segment in segments]


async def test_the_segments_are_those_of_planning_in_one_go() -> None:
    planner, engine = make_planner(), Engine(10_000)
    expected = [*planner.push(TEXT, 0.0), *planner.end(0.0)]
    await speak_text(TextSource(TEXT), make_planner(), engine)  # type: ignore[arg-type]
    assert texts(engine.segments) == texts(expected)
    assert engine.ended == [None]


async def test_no_more_is_planned_than_the_engine_takes() -> None:
    engine = Engine(2)
    speaking = asyncio.create_task(speak_text(TextSource(TEXT), make_planner(), engine))  # type: ignore[arg-type]
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert 2 <= len(engine.segments) < 20
    while not speaking.done():
        engine.take(10_000)
        await asyncio.sleep(0)
    assert len(engine.segments) > 50


async def test_the_beginning_is_planned_without_waiting_for_the_engine() -> None:
    engine, is_begun = Engine(2), asyncio.Event()
    speaking = asyncio.create_task(speak_text(TextSource(TEXT), make_planner(), engine, is_begun))  # type: ignore[arg-type]
    await asyncio.wait_for(is_begun.wait(), 30)
    for _ in range(100):
        await asyncio.sleep(0)
    assert PLANNED_AHEAD_CHARS <= engine.segments[-1].end < PLANNED_AHEAD_CHARS + 1_000 < len(TEXT)
    speaking.cancel()


@pytest.mark.parametrize("text", ["Hi.", "..."])
async def test_of_a_short_text_the_end_is_the_beginning(text: str) -> None:
    engine, is_begun = Engine(1), asyncio.Event()
    await speak_text(TextSource(text), make_planner(), engine, is_begun)  # type: ignore[arg-type]
    assert is_begun.is_set()


async def test_others_have_their_turn_while_a_long_text_is_planned() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await speak_text(TextSource(TEXT), make_planner(), Engine(10_000))  # type: ignore[arg-type]
    task.cancel()
    assert turns > 50


async def test_a_long_text_is_cut_into_segments_a_little_at_a_time() -> None:
    """All at once, 20,000 characters take 100 ms before the first segment is known, and nothing else gets a turn."""
    read: list[int] = []
    turns = 0

    class Counting(Planner):
        def pushing(self, delta: str, now: float) -> Planning:
            read.append(len(delta))
            return super().pushing(delta, now)

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    planner = Counting(Normalizer())
    await speak_text(TextSource("x" * 20_000), planner, Engine(10_000))  # type: ignore[arg-type]
    task.cancel()
    assert sum(read) == 20_000
    assert max(read) <= 100
    assert turns >= len(read)


@pytest.mark.parametrize("failure", [ValueError("no"), RuntimeError("gone")])
async def test_what_goes_wrong_is_the_readers(failure: Exception) -> None:
    class Broken(Engine):
        def add(self, segment: Any) -> None:
            raise failure

    engine = Broken(10)
    await speak_text(TextSource(TEXT), make_planner(), engine)  # type: ignore[arg-type]
    assert engine.ended == [failure]


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ValueError("no"), ValueError),
        (TimeoutError("the language model is slow"), TimeoutError),
        (asyncio.CancelledError(), RuntimeError),
    ],
)
async def test_what_the_text_raises_is_the_readers(failure: BaseException, told: type[Exception]) -> None:
    async def text() -> AsyncIterator[str]:
        yield "One. Two"
        raise failure

    engine = Engine(10)
    await asyncio.wait_for(speak_text(TextSource(text()), make_planner(), engine), 20)  # type: ignore[arg-type]
    assert [type(error) for error in engine.ended] == [told]
