"""Silence between segments: exact, not the engine's business, and not piled up before a listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from context_settings import context_settings
from fake_worker import fake_worker_command

from realtime_tts.contract import frames
from realtime_tts.speech.silence import SilencePace
from realtime_tts.speech.speaker import Speaker
from realtime_tts.text.planner import Segment
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.supervisor import WorkerSpec

RATE_HZ = 16_000
SETTINGS = context_settings()


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[EngineClient]:
    client = EngineClient([WorkerSpec(command=fake_worker_command())])
    await client.start()
    yield client
    await client.close()


@pytest.fixture
def asked(engine: EngineClient, monkeypatch: pytest.MonkeyPatch) -> list[frames.Generate]:
    """What the engine is asked to speak."""
    requests: list[frames.Generate] = []
    submit: Callable[[frames.Generate], Any] = engine.submit

    def spy(request: frames.Generate) -> Any:
        requests.append(request)
        return submit(request)

    monkeypatch.setattr(engine, "submit", spy)
    return requests


def speech(index: int, text: str) -> Segment:
    return Segment(index, text, 0, len(text), ())


def silence(index: int, duration_ms: float) -> Segment:
    return Segment(index, "", 0, 0, (), silence_ms=duration_ms)


def speaker_of(engine: EngineClient, *segments: Segment, **options: Any) -> Speaker:
    speaker = Speaker(engine, "context", SETTINGS, **options)
    for segment in segments:
        speaker.add(segment)
    speaker.end()
    return speaker


async def test_silence_is_exact_and_the_engine_counts_speech_alone(
    engine: EngineClient, asked: list[frames.Generate]
) -> None:
    segments = silence(0, 100), speech(1, "four"), silence(2, 410.03), silence(3, 0.05), speech(4, "four")
    speaker = speaker_of(engine, *segments, paced=False)
    pieces = [piece async for piece in speaker]
    speaker.close()
    made = {index: b"".join(piece.pcm for piece in pieces if piece.segment.index == index) for index in range(5)}
    assert {index: len(pcm) // 2 for index, pcm in made.items()} == {0: 1600, 1: 2560, 2: 6560, 3: 1, 4: 2560}
    assert not any(np.frombuffer(made[0] + made[2] + made[3], "<i2"))
    assert [(piece.segment.index, piece.done) for piece in pieces if piece.done] == [(n, True) for n in range(5)]
    assert [piece.audio_ms for piece in pieces if piece.segment.index == 2] == [160.0, 320.0, 410.0, 410.0]
    assert [(request.segment, request.request_id) for request in asked] == [(0, "context/1"), (1, "context/4")]


async def test_the_next_segments_are_made_while_it_is_silent(
    engine: EngineClient, asked: list[frames.Generate]
) -> None:
    segments = [speech(0, "four"), *(silence(n, 50) for n in range(1, 9)), speech(9, "four"), speech(10, "four")]
    speaker = speaker_of(engine, *segments, paced=False)
    assert [request.request_id for request in asked] == ["context/0", "context/9"]
    assert [piece.segment.index async for piece in speaker if piece.done] == list(range(11))
    assert not speaker.num_streams
    speaker.close()


async def test_what_was_heard_of_silence_is_not_told_to_the_engine(
    engine: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []
    speaker = speaker_of(engine, speech(0, "four"), silence(1, 500), speech(2, "four"), silence(3, 200))
    async for _ in speaker:
        pass
    monkeypatch.setattr(engine, "playback", lambda context_id, played_ms, paused: told.append(round(played_ms)))
    for played_ms in (0, 100, 160, 400, 660, 700, 820, 900, 1020):
        speaker.playback(played_ms, paused=False)
    speaker.close()
    assert told == [0, 100, 160, 160, 160, 200, 320, 320, 320]


async def test_what_was_heard_of_a_long_silence_is_not_told_before_it_is_made_either(
    engine: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Little of it is made ahead; the speech behind it, which is made meanwhile, would count as late."""
    told: list[float] = []
    speaker = speaker_of(engine, silence(0, 10_000), speech(1, "four"))
    assert (await anext(speaker)).audio_ms == 160
    monkeypatch.setattr(engine, "playback", lambda context_id, played_ms, paused: told.append(round(played_ms)))
    for played_ms in (0, 100, 9_000):
        speaker.playback(played_ms, paused=False)
    speaker.close()
    assert told == [0, 0, 0]


async def test_silence_is_as_long_at_any_speed(engine: EngineClient) -> None:
    settings = context_settings(speed=1.25)
    speaker = Speaker(engine, "context", settings, paced=False)
    for segment in (speech(0, "twelve chars"), silence(1, 410), speech(2, "four")):
        speaker.add(segment)
    speaker.end()
    lengths_ms = {piece.segment.index: piece.audio_ms async for piece in speaker if piece.done}
    speaker.close()
    assert lengths_ms[1] == 410
    assert lengths_ms[0] == pytest.approx(480 / 1.25, rel=0.05)


async def test_the_length_bound_counts_silence(engine: EngineClient) -> None:
    speaker = speaker_of(engine, silence(0, 100), speech(1, "four"), paced=False, max_length_s=0.15)
    assert sum([len(piece.pcm) async for piece in speaker]) == 2 * 2400
    speaker.close()


async def test_little_silence_is_made_ahead_and_none_while_paused() -> None:
    pace, loop = SilencePace(), asyncio.get_running_loop()
    begun, made_ms = loop.time(), 0.0
    while made_ms < 2300:
        await pace.wait_for(100)
        made_ms += 100
        assert made_ms - 100 <= 2000 + 1000 * (loop.time() - begun) + 1
    pace.interrupted()
    await asyncio.wait_for(pace.wait_for(100), 20)  # another silence begins with another lead
    pace.listening(paused=True)
    waiting = asyncio.ensure_future(pace.wait_for(100))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    pace.listening(paused=False)
    await asyncio.wait_for(waiting, 20)
