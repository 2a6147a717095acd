"""A context at another speed: everything that its listener's side is told is in the listener's time."""

from __future__ import annotations

import asyncio
import math
from typing import Any, cast

import numpy as np
import pytest
from context_settings import context_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_tts.contract import frames
from realtime_tts.contract.policy import ServingPolicy, TextHead
from realtime_tts.session.alignment import WordAligner
from realtime_tts.speech.speaker import Piece, Speaker
from realtime_tts.text.planner import PlannerFactory, Segment
from realtime_tts.workers.client import EngineClient

RATE_HZ, PATCH_SAMPLES, LAG_MS = 16_000, 2560, 80.0
PATCH_MS = 160.0
SETTINGS = context_settings()
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


class ScriptedStream:
    """A request's answers, all of which are there."""

    def __init__(self, request: frames.Generate) -> None:
        self.request_id = request.request_id
        num_patches = math.ceil(len(request.text) / 4)
        pcm = np.arange(PATCH_SAMPLES, dtype="<i2").tobytes()
        self._answers: list[frames.Message] = [
            frames.Audio(request.request_id, index, 4.0 * (index + 1), payload=pcm) for index in range(num_patches)
        ]
        self._answers.append(frames.Done(request.request_id, "stop", num_patches, num_patches * PATCH_SAMPLES))

    def __aiter__(self) -> ScriptedStream:
        return self

    async def __anext__(self) -> frames.Message:
        return self._answers.pop(0)


class ScriptedEngine:
    """Answers at once, four characters a patch, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[frames.Generate] = []
        self.policy = ServingPolicy(text_head=TextHead(0, 0, LAG_MS))
        self.ready = frames.Ready("m", "cpu", "float32", "fake", RATE_HZ, PATCH_SAMPLES)

    def submit(self, request: frames.Generate) -> ScriptedStream:
        self.asked.append(request)
        return ScriptedStream(request)

    def close_context(self, context_id: str) -> None:
        pass


def segments_of(text: str) -> list[Segment]:
    planner = PlannerFactory(None, 60, None).make("en", live=False)
    return [*planner.push(text, 0.0), *planner.end(0.0)]


async def spoken(
    segments: list[Segment], speed: float, volume: float = 1.0, **options: Any
) -> tuple[list[Piece], ScriptedEngine]:
    engine = ScriptedEngine()
    settings = context_settings(speed=speed, volume=volume)
    speaker = Speaker(cast(EngineClient, engine), "c", settings, **options)
    for segment in segments:
        speaker.add(segment)
    speaker.end()
    pieces = [piece async for piece in speaker]
    speaker.close()
    return pieces, engine


def test_at_its_own_speed_a_model_is_heard_as_it_is() -> None:
    pieces, _ = asyncio.run(spoken(segments_of("One two three four."), 1.0))
    patch = np.arange(PATCH_SAMPLES, dtype="<i2").tobytes()
    assert all(piece.pcm == patch for piece in pieces if not piece.done)
    assert [piece.reached for piece in pieces if not piece.done] == [
        (PATCH_MS * (n + 1) - LAG_MS, 4.0 * (n + 1)) for n in range(len(pieces) - 1)
    ]


@settings(max_examples=25, deadline=None)
@given(
    speed=st.floats(0.25, 4.0),
    sentences=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12), min_size=1, max_size=3),
)
def test_words_and_audio_are_in_the_listeners_time(speed: float, sentences: list[list[str]]) -> None:
    """All words come, in order, within the audio; and none counts as heard that was not sent to its end."""
    text = " ".join(" ".join(words) + "." for words in sentences)
    segments = segments_of(text)
    pieces, engine = asyncio.run(spoken(segments, speed))
    assert all(request.speed == speed for request in engine.asked)
    aligner, total_ms, words = WordAligner(speed), 0.0, []
    for segment in segments:
        aligner.put_segment(segment)
        mine = [piece for piece in pieces if piece.segment.index == segment.index]
        num_made = math.ceil(len(segment.text) / 4) * PATCH_SAMPLES
        num_given = sum(len(piece.pcm) // 2 for piece in mine)
        assert num_given == round(num_made / speed)
        assert [piece.done for piece in mine] == [False] * (len(mine) - 1) + [True]
        num_so_far = 0
        for piece in mine:
            num_so_far += len(piece.pcm) // 2
            assert piece.audio_ms == pytest.approx(1000 * num_so_far / RATE_HZ)
            if piece.reached is not None:  # 80 ms before the end of what was made, and that much sooner heard
                assert piece.reached[0] * speed == pytest.approx(piece.reached[1] / 4 * PATCH_MS - LAG_MS)
            aligner.progress(segment.index, piece.audio_ms, piece.done, piece.reached)
            new = aligner.commit_until(total_ms + piece.audio_ms)
            words += new
            heard = aligner.heard_chars(total_ms + piece.audio_ms)
            assert heard <= max((word.end for word in words), default=0)
        total_ms += 1000 * num_given / RATE_HZ
    assert [text[word.start : word.end] for word in words] == text.split()
    starts = [word.start_ms for word in words]
    assert starts == sorted(starts)
    assert starts[-1] <= total_ms
    assert aligner.heard_chars(math.inf) == len(text)
    assert aligner.heard_chars(starts[-1] - 1) < len(text)


@pytest.mark.parametrize("speed", [0.5, 1.4])
def test_a_length_is_of_what_is_heard(speed: float) -> None:
    segments = segments_of("one two three four five six seven eight. " * 3)
    pieces, engine = asyncio.run(spoken(segments, speed, max_length_s=1.0, encoding="s16le"))
    assert sum(len(piece.pcm) for piece in pieces) == 2 * RATE_HZ
    assert engine.asked[0].max_patches == math.ceil(speed * RATE_HZ / PATCH_SAMPLES)


@pytest.mark.asyncio
async def test_volume_multiplies_speech_and_lets_pauses_and_times_alone() -> None:
    segments = segments_of("One two three. [pause 1s] Four five six.")
    plain, _ = await spoken(segments, 1.0)
    softer, _ = await spoken(segments, 1.0, volume=0.5)
    pcm, soft = (np.frombuffer(b"".join(piece.pcm for piece in each), "<i2") for each in (plain, softer))
    np.testing.assert_allclose(soft, pcm / 2, atol=0.5)
    assert [(piece.audio_ms, piece.reached) for piece in plain] == [(piece.audio_ms, piece.reached) for piece in softer]
