"""`Speaker`: segments in, pieces of audio out, in order; every way to end is clean."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from context_settings import context_settings
from fake_worker import fake_worker_command

from realtime_tts.errors import Draining, EngineLost, NumericalError, VoiceNotFound
from realtime_tts.session.messages import NOTHING_PLAYED_MS
from realtime_tts.session.settings import ContextSettings
from realtime_tts.speech.speaker import Piece, Speaker
from realtime_tts.speech.text_source import TextSource, speak_text
from realtime_tts.text.planner import PlannerFactory, Segment
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.supervisor import WorkerSpec

PATCH_SAMPLES = 2560
SETTINGS = context_settings()


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[EngineClient]:
    client = EngineClient([WorkerSpec(command=fake_worker_command(patch_delay_s=0.002))])
    await client.start()
    yield client
    assert client.num_requests == 0, "a request outlived its speaker"
    await client.close()


def segment(index: int, text: str) -> Segment:
    return Segment(index, text, 0, len(text), ())


def speaker_of(engine: EngineClient, *texts: str, settings: ContextSettings = SETTINGS, **options: Any) -> Speaker:
    speaker = Speaker(engine, "context", settings, **options)
    for index, text in enumerate(texts):
        speaker.add(segment(index, text))
    speaker.end()
    return speaker


def ramp(num_samples: int, seed: int = 3) -> np.ndarray[Any, Any]:
    return np.arange(num_samples) % 2000 - 1000 + 1000 * seed


async def test_segments_come_in_order_and_each_is_counted_to_its_end(engine: EngineClient) -> None:
    speaker = speaker_of(engine, "eight ch", "four", "twelve chars")
    pieces = [piece async for piece in speaker]
    speaker.close()
    assert [(p.segment.index, round(p.audio_ms), p.done) for p in pieces] == [
        (0, 160, False), (0, 320, False), (0, 320, True),
        (1, 160, False), (1, 160, True),
        (2, 160, False), (2, 320, False), (2, 480, False), (2, 480, True),
    ]  # fmt: skip
    pcm = b"".join(piece.pcm for piece in pieces if piece.segment.index == 2)
    assert np.array_equal(np.frombuffer(pcm, "<i2"), ramp(3 * PATCH_SAMPLES))


async def test_samples_are_floats_where_asked(engine: EngineClient) -> None:
    speaker = speaker_of(engine, "four", encoding="f32le", paced=False)
    pieces = [piece async for piece in speaker]
    speaker.close()
    assert np.array_equal(np.frombuffer(pieces[0].pcm, "<f4") * 32768, ramp(PATCH_SAMPLES))
    assert round(pieces[0].audio_ms) == 160


@pytest.mark.parametrize(("max_length_s", "num_samples"), [(0.25, 4000), (0.16, 2560), (0.4, 6400), (0.0, 0)])
async def test_the_length_is_exact(engine: EngineClient, max_length_s: float, num_samples: int) -> None:
    speaker = speaker_of(engine, "eight ch", "eight ch", "[never]", max_length_s=max_length_s, paced=False)
    pieces = [piece async for piece in speaker]
    speaker.close()
    assert sum(len(piece.pcm) for piece in pieces) == 2 * num_samples


async def test_only_a_few_segments_are_at_the_engine_at_one_time(engine: EngineClient) -> None:
    speaker = speaker_of(engine, *["four"] * 10, max_submitted=3)
    assert engine.num_requests == 3
    async for _ in speaker:
        assert engine.num_requests <= 3
    speaker.close()
    assert not speaker.num_streams


async def test_closing_ends_a_wait_for_audio_at_once(engine: EngineClient) -> None:
    speaker = speaker_of(engine, "[stall]", "four")
    reading = asyncio.create_task(collect(speaker))
    await asyncio.sleep(0.01)
    assert speaker.num_streams
    speaker.close()
    assert await asyncio.wait_for(reading, 20) == []
    assert [piece async for piece in speaker] == []
    assert engine.num_requests == 0


async def test_closing_ends_a_wait_for_a_segment(engine: EngineClient) -> None:
    speaker = Speaker(engine, "context", SETTINGS)
    reading = asyncio.create_task(collect(speaker))
    await asyncio.sleep(0.01)
    speaker.close()
    speaker.close()
    speaker.add(segment(0, "four"))
    assert await asyncio.wait_for(reading, 20) == []
    assert not speaker.num_streams


async def test_what_was_made_but_not_read_is_not_heard_after_a_close(engine: EngineClient) -> None:
    speaker = speaker_of(engine, "a long text of many patches", "four")
    await anext(speaker)
    await asyncio.sleep(0.05)
    speaker.close()
    assert [piece async for piece in speaker] == []


async def test_a_failure_is_typed_and_comes_after_the_audio_before_it(engine: EngineClient) -> None:
    speaker = speaker_of(engine, "four", "[fail]")
    heard: list[Piece] = []
    with pytest.raises(NumericalError):
        await read_into(heard, speaker)
    speaker.close()
    assert [(p.segment.index, p.done) for p in heard] == [(0, False), (0, True), (1, False)]
    other = speaker_of(engine, "four", settings=dataclasses.replace(SETTINGS, voice="nobody"))
    with pytest.raises(VoiceNotFound):
        await anext(other)
    other.close()


async def test_a_lost_engine_is_told_by_add_or_by_the_iteration() -> None:
    engine = EngineClient([WorkerSpec(command=fake_worker_command())])
    await engine.start()
    speaker = speaker_of(engine, "[crash]" + 400 * "x", "four", "four")
    with pytest.raises(EngineLost):
        await collect(speaker)
    speaker.close()
    other = Speaker(engine, "other", SETTINGS)
    with pytest.raises(EngineLost):
        other.add(segment(0, "four"))
    other.close()
    await engine.close()
    with pytest.raises(Draining):
        Speaker(engine, "late", SETTINGS).add(segment(0, "four"))


async def test_a_parked_context_makes_nothing_until_it_is_heard_again(engine: EngineClient) -> None:
    speaker = speaker_of(engine, "[never]")
    await anext(speaker)
    speaker.playback(NOTHING_PLAYED_MS, paused=True)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(collect(speaker), 0.5)  # what was on its way, and nothing after it
    speaker.playback(1e6, paused=False)
    await asyncio.wait_for(anext(speaker), 20)
    speaker.close()


async def test_a_text_is_planned_no_further_than_the_engine_takes_it(engine: EngineClient) -> None:
    num_read = 0

    async def endless() -> AsyncIterator[str]:
        nonlocal num_read
        while True:
            num_read += 1
            yield "This is one sentence. "

    speaker = Speaker(engine, "context", SETTINGS)
    planner = PlannerFactory(None, 70, None).make("en")
    feeding = asyncio.create_task(speak_text(TextSource(endless()), planner, speaker))
    await anext(speaker)
    await asyncio.sleep(0.05)
    assert num_read < 20
    feeding.cancel()
    await asyncio.gather(feeding, return_exceptions=True)
    speaker.close()


async def test_what_the_text_raises_comes_after_the_speech_before_it(engine: EngineClient) -> None:
    async def broken() -> AsyncIterator[str]:
        yield "This is one sentence. And this "
        raise KeyError("the LLM failed")

    speaker = Speaker(engine, "context", SETTINGS)
    await speak_text(TextSource(broken()), PlannerFactory(None, 70, None).make("en"), speaker)
    heard: list[Piece] = []
    with pytest.raises(KeyError):
        await read_into(heard, speaker)
    speaker.close()
    assert heard[-1].done


async def collect(speaker: Speaker) -> list[Piece]:
    return [piece async for piece in speaker]


async def read_into(heard: list[Piece], speaker: Speaker) -> None:
    async for piece in speaker:
        heard.append(piece)  # noqa: PERF401 - a comprehension would lose what came before an error
