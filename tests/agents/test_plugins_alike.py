"""What LiveKit's plugin and Pipecat's service have in common, against servers that follow a script, and a gateway."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pipecat_turns
import pytest
from client_fake_server import AUDIO, Connection, Voice, ramp, scripted
from livekit.agents import APIConnectOptions
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
from livekit.plugins import realtime_tts
from pipecat.frames.frames import TTSStartedFrame, TTSTextFrame
from pipecat_realtime_tts import RealtimeTTSService
from scripted_voices import TalkingVoice

RATE_HZ = AUDIO["sample_rate"]


@dataclass
class Spoken:
    """One turn. times_s: start of each word.

    A plugin's context manager yields a function that speaks a turn; its second delta leaves after the event.
    """

    samples: np.ndarray
    words: list[str]
    times_s: list[float]


@contextlib.asynccontextmanager
async def livekit(url: str) -> AsyncIterator[Any]:
    tts = realtime_tts.TTS(url, sample_rate=RATE_HZ)

    async def turn(*deltas: str, after_first: asyncio.Event | None = None) -> Spoken:
        stream = tts.stream(conn_options=APIConnectOptions(max_retry=2, retry_interval=0.01, timeout=20))
        stream.push_text(deltas[0])
        if after_first is not None:
            await asyncio.wait_for(after_first.wait(), 20)
        for delta in deltas[1:]:
            stream.push_text(delta)
        stream.end_input()
        events = [event async for event in stream]
        await stream.aclose()
        assert [event.is_final for event in events] == [False] * (len(events) - 1) + [True]
        samples = [np.frombuffer(event.frame.data, np.int16) for event in events]
        pieces = [piece for event in events for piece in event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])]
        words = [piece for piece in pieces if piece.strip()]
        return Spoken(np.concatenate(samples), [word.strip() for word in words], [word.start_time for word in words])

    yield turn
    await tts.aclose()


@contextlib.asynccontextmanager
async def pipecat(url: str) -> AsyncIterator[Any]:
    async with pipecat_turns.talking(RealtimeTTSService(url=url), RATE_HZ) as talk:

        async def turn(*deltas: str, after_first: asyncio.Event | None = None) -> Spoken:
            await talk.begin()
            await talk.write(deltas[0])
            if after_first is not None:
                await asyncio.wait_for(after_first.wait(), 20)
            await talk.write(*deltas[1:])
            await talk.end()
            await talk.until_stopped()
            words = talk.of(TTSTextFrame)
            assert len(talk.of(TTSStartedFrame)) == 1
            spoken = Spoken(talk.samples, talk.words, [(word.pts - words[0].pts) / 1e9 for word in words])
            talk.down.clear()
            return spoken

        yield turn
        assert talk.errors == []
        assert talk.service.is_usable


@pytest.fixture(params=[livekit, pipecat], ids=lambda plugin: plugin.__name__)
def plugin(request: pytest.FixtureRequest) -> Any:
    return request.param


def whole_ramp(num_frames: int) -> np.ndarray:
    return np.concatenate([ramp(frame) for frame in range(num_frames)])


async def test_text_leaves_as_it_comes_and_every_sample_comes_out_once(plugin: Any) -> None:
    arrived = asyncio.Event()

    async def script(connection: Connection) -> None:
        await connection.begin()
        first = await connection.read("text")
        arrived.set()
        await connection.accept(first["context_id"])
        assert [(await connection.read())["text"] for _ in range(2)] == ["lo ", "there."]
        await connection.read("end")
        for frame in range(30):
            await connection.audio(frame + 1, frame)
        await connection.done(first["context_id"], 31, 30, 12)

    async with scripted(script) as (url, connections), plugin(url) as turn:
        # The first delta leaves though no word, let alone a sentence, has ended.
        spoken = await turn("Hel", "lo ", "there.", after_first=arrived)
        kinds = [message["type"] for message in connections[0].received]
    assert np.array_equal(spoken.samples, whole_ramp(30))
    assert kinds.count("text") == 3
    assert "flush" not in kinds


async def test_a_word_that_comes_after_its_audio_is_not_lost(plugin: Any) -> None:
    async with scripted(TalkingVoice(is_late=True)) as (url, _), plugin(url) as turn:
        spoken = await turn("one two three. ")
    assert spoken.words == ["one", "two", "three."]
    assert len(spoken.samples) == 6 * 160


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_word_is_told_once_though_the_server_forgot_the_session(plugin: Any, is_late: bool) -> None:
    async def first(connection: Connection) -> None:
        await connection.begin()
        context_id = (await connection.read("text"))["context_id"]
        await connection.read("end")
        await connection.accept(context_id)
        words = [
            {"text": text, "start": start, "end": start + 3, "start_ms": 30.0 * index, "end_ms": 30.0 * index + 30}
            for index, (text, start) in enumerate([("one", 0), ("two", 4), ("six", 8)])
        ]
        await connection.send("words", context_id=context_id, sequence=1, timing="measured", words=words)
        await connection.audio(2, 0)
        await asyncio.sleep(0.05)
        await connection.cut()

    voice = TalkingVoice(is_late=is_late)

    async def second(connection: Connection) -> None:
        await connection.read("session.resume")
        await connection.send("error", code="session_not_found", message="gone", retryable=False)
        await voice(connection)

    async with scripted(first, second) as (url, _), plugin(url) as turn:
        spoken = await turn("one two six ten.")
    assert spoken.words == ["one", "two", "six", "ten."]
    assert spoken.times_s == sorted(spoken.times_s)  # times that go back are taken for those of another stream
    assert voice.texts.popitem()[1] == "one two six ten."


async def test_a_cut_connection_is_taken_up_again_and_nothing_is_lost_or_doubled(plugin: Any) -> None:
    voice = Voice(num_frames=40, cuts=(7, 9))
    async with scripted(voice) as (url, connections), plugin(url) as turn:
        spoken = await turn("Hello.")
        assert len(connections) == 3
    assert np.array_equal(spoken.samples, whole_ramp(40))
    assert voice.num_resumes == 2


async def test_what_cannot_be_spoken_is_no_failure(plugin: Any) -> None:
    async with scripted(Voice(num_frames=0)) as (url, connections), plugin(url) as turn:
        for _ in range(4):  # Pipecat gives a service up after three without a sample
            assert not (await turn("👍")).samples.any()
        kinds = [message["type"] for message in connections[0].received]
    assert kinds.count("end") == 4  # asked once each, not again


async def test_turns_share_a_connection_and_never_their_audio(plugin: Any) -> None:
    async with scripted(TalkingVoice()) as (url, connections), plugin(url) as turn:
        for text in ("one two three.", "four five.", "six seven eight nine."):
            spoken = await turn(text)
            assert " ".join(spoken.words) == text
            assert len(spoken.samples) == 2 * 160 * len(spoken.words)
        assert len(connections) == 1


async def test_a_gateways_words_are_the_text_in_the_order_of_their_times(plugin: Any, fake_gateway: str) -> None:
    text = "Here is a first sentence, with a comma in it. And then (in brackets) there is a second one!"
    async with plugin(fake_gateway) as turn:
        spoken = await turn(*(text[start : start + 3] for start in range(0, len(text), 3)))
    assert " ".join(spoken.words) == text
    assert spoken.times_s == sorted(spoken.times_s)
