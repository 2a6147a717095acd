"""The Pipecat service in a pipeline, against servers that follow a script; `test_plugins_alike` has more of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import numpy as np
import pipecat_turns
import pytest
from client_fake_server import AUDIO, Connection, Voice, scripted
from pipecat.frames.frames import (
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    MetricsFrame,
    TTSTextFrame,
    TTSUpdateSettingsFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.metrics.metrics import TTFBMetricsData, TTSUsageMetricsData
from pipecat.utils.errors import ErrorCategory
from pipecat.utils.string import TextPartForConcatenation, concatenate_aggregated_text
from pipecat_realtime_tts import RealtimeTTSService, RealtimeTTSSettings
from pipecat_realtime_tts.timeline import Timeline
from scripted_voices import TalkingVoice, failing

RATE_HZ = AUDIO["sample_rate"]


@contextlib.asynccontextmanager
async def talking(url: str, **options: Any) -> AsyncIterator[pipecat_turns.Talk]:
    service = RealtimeTTSService(url=url, **options)
    async with pipecat_turns.talking(service, RATE_HZ, enable_metrics=True, enable_usage_metrics=True) as talk:
        yield talk


async def test_words_are_told_when_they_have_been_spoken() -> None:
    async with scripted(TalkingVoice()) as (url, _), talking(url) as talk:
        await talk.answer("Well, ", "this is", " one. And two!")
        await talk.until_stopped()
        words = talk.of(TTSTextFrame)
        assert [word.text for word in words] == ["Well,", "this", "is", "one.", "And", "two!"]
        ends_s = [(word.pts - words[0].pts) / 1e9 for word in words]
        assert ends_s == pytest.approx([0.04 * index for index in range(6)], abs=1e-6)
        assert all(word.append_to_context for word in words)


@pytest.mark.parametrize(
    ("deltas", "told"),
    [
        (["你好，", "世界。今天", "很好！"], "你好，世界。今天很好！"),
        (
            ["こんにちは。", "Hello there, ", "it is 5 o'clock. ", "再见！"],
            "こんにちは。 Hello there, it is 5 o'clock. 再见！",
        ),
        (["안녕", " 하세요. Well"], "안녕 하세요. Well"),
    ],
)
async def test_a_conversation_has_spaces_where_the_language_has_them(deltas: list[str], told: str) -> None:
    async with scripted(TalkingVoice()) as (url, _), talking(url) as talk:
        await talk.answer(*deltas)
        await talk.until_stopped()
        parts = [
            TextPartForConcatenation(word.text, includes_inter_part_spaces=word.includes_inter_frame_spaces)
            for word in talk.of(TTSTextFrame)
        ]
        assert concatenate_aggregated_text(parts) == told
        assert len(parts) >= 2


async def test_an_utterance_beside_answers_is_a_turn_of_its_own() -> None:
    async with scripted(TalkingVoice()) as (url, connections), talking(url) as talk:
        await talk.answer("one two.")
        await talk.say("three.")
        await talk.answer("four five six.")
        await talk.until_stopped(3)
        assert len(talk.samples) == 6 * 2 * 160
        assert len(connections) == 1
        await talk.until(lambda: not talk.service._turns)


async def test_settings_hold_from_the_next_turn_on() -> None:
    given = {"speed": 1.2, "volume": 0.5, "sentence_pause_ms": 100, "lexicon": {"nginx": "engine x"}, "adapter": "warm"}
    settings = RealtimeTTSService.Settings(voice="slt", steps=8, language="en-US", openings="on", **given)
    async with scripted(TalkingVoice()) as (url, connections), talking(url, settings=settings) as talk:
        await talk.answer("one.")
        await talk.until_stopped()
        await talk.put(
            TTSUpdateSettingsFrame(
                delta=RealtimeTTSSettings(voice="rms", steps=None, openings=None, seed=7, mode="clause")
            )
        )
        await talk.answer("two.")
        await talk.until_stopped(2)
        first, second = [message for message in connections[0].received if message["type"] == "text"]
        assert (first["voice"], first["params"]) == ("slt", {"steps": 8, "language": "en", "openings": "on", **given})
        assert (second["voice"], second["params"]) == ("rms", {"seed": 7, "language": "en", "mode": "clause", **given})
        assert talk.service.settings.model == "m"


async def test_an_interruption_cancels_at_once_and_the_next_turn_speaks() -> None:
    cancelled = asyncio.Event()
    voice = TalkingVoice()
    voice.numbers["interrupted"] = 1

    async def script(connection: Connection) -> None:
        await connection.begin()
        context_id = (await connection.read("text"))["context_id"]
        await connection.accept(context_id)
        for frame in range(30):
            await connection.audio(frame + 1, frame)
        assert (await connection.read("cancel"))["context_id"] == context_id
        cancelled.set()
        await connection.audio(31, 30)  # was on its way
        await connection.cancelled(context_id, 32)
        while True:
            message = await connection.read()
            if message.get("context_id") != context_id:
                await voice.handle(connection, message)

    async with scripted(script) as (url, connections), talking(url) as talk:
        await talk.put(LLMFullResponseStartFrame(), LLMTextFrame("One two three "))
        await talk.until(lambda: len(talk.samples) == 30 * 160)
        await talk.put(InterruptionFrame())
        await asyncio.wait_for(cancelled.wait(), 20)
        await talk.answer("four five.")
        await talk.until_stopped()
        assert len(talk.samples) == (30 + 4) * 160  # nothing of the old turn afterwards
        assert [word.text for word in talk.of(TTSTextFrame)] == ["four", "five."]
        assert len(connections) == 1


@pytest.mark.parametrize(
    ("code", "category", "usable"),
    [
        ("voice_not_found", ErrorCategory.INVALID_REQUEST, False),
        ("text_too_long", ErrorCategory.APPLICATION, True),
        ("rate_limited", ErrorCategory.RATE_LIMIT, True),
        ("engine_lost", ErrorCategory.SERVER, True),
        ("a code of tomorrow", ErrorCategory.UNKNOWN, True),
    ],
)
async def test_a_failed_turn_is_told_once_and_its_rest_is_dropped(
    code: str, category: ErrorCategory, usable: bool
) -> None:
    voice = TalkingVoice()
    voice.numbers["failed"] = 1
    script = failing(code, retryable=False, then=voice)
    async with scripted(script) as (url, _), talking(url) as talk:
        await talk.put(LLMFullResponseStartFrame(), LLMTextFrame("One "))
        await talk.until(lambda: talk.errors)
        await talk.put(LLMTextFrame("two "), LLMTextFrame("three."), LLMFullResponseEndFrame())
        await talk.until_stopped()
        assert talk.errors[0].category is category
        assert talk.service.is_usable is usable
        assert voice.texts == {}
        if usable:
            await talk.answer("four.")
            await talk.until_stopped(2)
            assert len(talk.samples) == 2 * 160


async def refuse_the_second_piece(voice: TalkingVoice, connection: Connection) -> None:
    await connection.begin()
    await voice.handle(connection, first := await connection.read("text"))
    await connection.read("text")
    refused = {"code": "rate_limited", "message": "too much", "retryable": True, "retry_after_s": 3}
    await connection.send("error", context_id=first["context_id"], field="text", **refused)
    while True:
        await voice.handle(connection, await connection.read())


async def test_a_piece_that_is_refused_is_told_and_what_was_taken_is_spoken() -> None:
    voice = TalkingVoice()
    async with scripted(partial(refuse_the_second_piece, voice)) as (url, _), talking(url) as talk:
        await talk.put(LLMFullResponseStartFrame(), LLMTextFrame("One "), LLMTextFrame("two "))
        await talk.until(lambda: any(turn.context and turn.context._refusal for turn in talk.service._turns.values()))
        await talk.put(*(LLMTextFrame(word) for word in ("three ", "four ", "five.")), LLMFullResponseEndFrame())
        await talk.until_stopped()
        assert [error.category for error in talk.errors] == [ErrorCategory.RATE_LIMIT]
        assert list(voice.texts.values()) == ["One "]
        assert len(talk.samples) == 2 * 160
        await talk.say("six.")
        await talk.until_stopped(2)
        assert len(talk.samples) == 4 * 160


async def test_a_last_piece_that_is_refused_is_told_and_the_turn_ends() -> None:
    voice = TalkingVoice()
    async with scripted(partial(refuse_the_second_piece, voice)) as (url, _), talking(url) as talk:
        await talk.put(LLMFullResponseStartFrame(), LLMTextFrame("One "), LLMTextFrame("two."))
        await talk.until(lambda: any(turn.context and turn.context._refusal for turn in talk.service._turns.values()))
        await talk.put(LLMFullResponseEndFrame())
        await talk.until_stopped()
        assert [error.category for error in talk.errors] == [ErrorCategory.RATE_LIMIT]
        assert list(voice.texts.values()) == ["One "]


async def test_an_unreachable_server_is_an_error_and_the_pipeline_goes_on() -> None:
    async with talking("ws://127.0.0.1:9") as talk:
        told: list[str] = []

        async def note(service: Any, error: str) -> None:
            told.append(error)

        talk.service.add_event_handler("on_connection_error", note)
        await talk.answer("Hello.")
        await talk.until_stopped()
        await talk.until(lambda: told)
        assert {error.category for error in talk.errors[:2]} == {ErrorCategory.CONNECTIVITY}
        assert talk.service.is_usable


async def test_metrics_tell_the_first_byte_and_the_characters() -> None:
    async with scripted(TalkingVoice()) as (url, _), talking(url) as talk:
        await talk.answer("one ", "two.")
        await talk.until_stopped()
        data = [datum for frame in talk.of(MetricsFrame) for datum in frame.data]
        (usage,) = [datum for datum in data if isinstance(datum, TTSUsageMetricsData)]
        waits = [datum.value for datum in data if isinstance(datum, TTFBMetricsData) and datum.value > 0]
        assert (usage.value, usage.model) == (8, "m")
        assert len(waits) == 1


# ---- sounds of the user ----------------------------------------------------------------------------------------------

WORD_MS = 150  # ends inside a packet
LINE = "one two three four five six seven eight."
NUM_WORDS = 8


class HeldVoice(Voice):
    """Speaks a ramp, and goes on where it is told to. `is_slow`: it never ends its first context."""

    def __init__(self, from_ms: float | None = None, is_slow: bool = False) -> None:
        super().__init__()
        self.from_ms, self.is_slow = from_ms, is_slow
        self.asked: list[str] = []
        self.held_ms = 0.0

    async def handle(self, connection: Connection, message: dict[str, Any]) -> None:
        if message["type"] in ("hold", "release", "cancel"):
            self.asked.append(message["type"])
        if message["type"] == "hold":
            self.held_ms = message["played_ms"]
        if message["type"] == "release":
            from_ms = self.held_ms if self.from_ms is None else self.from_ms
            await connection.send("context.released", context_id=message["context_id"], from_ms=from_ms)
        else:
            await super().handle(connection, message)

    async def speak(self, connection: Connection, context_id: str, last_sequence: int) -> None:
        number, sequence, position = self.numbers[context_id], 1, 0
        words = [
            {"text": word, "start": LINE.index(word), "end": LINE.index(word) + len(word)} for word in LINE.split()
        ]
        for index, word in enumerate(words):
            times = {"start_ms": index * WORD_MS, "end_ms": (index + 1) * WORD_MS}
            await connection.send(
                "words", context_id=context_id, sequence=sequence, timing="measured", words=[word | times]
            )
            sequence += 1
            while position * 20 < (index + 1) * WORD_MS:
                await connection.audio(sequence, position, number)
                sequence, position = sequence + 1, position + 1
        if number > 1 or not self.is_slow:
            await connection.done(context_id, sequence, position, len(LINE))


def silence_at(samples: np.ndarray) -> np.ndarray:
    """Places of inserted silence: the ramp's only zero is its first sample."""
    zeros = np.flatnonzero(samples == 0)
    return zeros[zeros > 0]


@pytest.mark.parametrize("from_ms", [None, 0.0], ids=["word", "clause"])
async def test_after_a_nod_it_goes_on_where_the_server_says(from_ms: float | None) -> None:
    voice = HeldVoice(from_ms)
    async with scripted(voice) as (url, _), talking(url, hold_while_user_speaks=True) as talk:
        await talk.answer(LINE)
        await talk.until(lambda: len(talk.samples) > 0)
        await talk.put(VADUserStartedSpeakingFrame())
        await talk.until(lambda: len(silence_at(talk.samples)))
        await talk.put(VADUserStoppedSpeakingFrame())
        await talk.until_stopped()
        silence = silence_at(talk.samples)
        held = round(voice.held_ms * RATE_HZ / 1000)
        assert voice.held_ms in [(word + 1) * WORD_MS for word in range(NUM_WORDS)]
        assert silence[0] == held
        whole = np.arange(NUM_WORDS * WORD_MS * RATE_HZ // 1000)
        again = whole[held if from_ms is None else 1 :]
        assert np.array_equal(talk.samples[talk.samples > 0], np.concatenate([whole[1:held], again]))
        words = talk.of(TTSTextFrame)
        assert [word.text for word in words] == LINE.split()
        num_held = round(voice.held_ms / WORD_MS)
        moved_s = len(silence) / RATE_HZ + (0.0 if from_ms is None else voice.held_ms / 1000)
        gap_s = (words[num_held].pts - words[num_held - 1].pts) / 1e9 - WORD_MS / 1000
        assert gap_s >= moved_s - 0.001  # later on a slow machine
        assert voice.asked == ["hold", "release"]
        assert talk.errors == []


async def test_an_interruption_while_it_is_held_cancels_and_the_words_heard_are_told() -> None:
    voice = HeldVoice(is_slow=True)
    async with scripted(voice) as (url, _), talking(url, hold_while_user_speaks=True) as talk:
        await talk.answer(LINE)
        await talk.until(lambda: len(talk.samples) > 0)
        await talk.put(VADUserStartedSpeakingFrame())
        await talk.until(lambda: len(silence_at(talk.samples)))
        await talk.interrupt()
        await talk.until(lambda: voice.asked == ["hold", "cancel"])
        heard = [word.text for word in talk.of(TTSTextFrame)]
        assert heard == LINE.split()[: round(voice.held_ms / WORD_MS)]
        await talk.put(VADUserStoppedSpeakingFrame())
        await talk.answer(LINE)
        await talk.until_stopped()
        assert [word.text for word in talk.of(TTSTextFrame)] == heard + LINE.split()


async def test_a_sound_between_turns_holds_nothing() -> None:
    voice = HeldVoice()
    async with scripted(voice) as (url, _), talking(url, hold_while_user_speaks=True) as talk:
        await talk.put(VADUserStartedSpeakingFrame(), VADUserStoppedSpeakingFrame())
        await talk.answer(LINE)
        await talk.answer(LINE)
        await talk.until_stopped(2)
        await talk.put(VADUserStartedSpeakingFrame(), VADUserStoppedSpeakingFrame())
        ramp_ = np.arange(NUM_WORDS * WORD_MS * RATE_HZ // 1000)
        assert np.array_equal(talk.samples, np.concatenate([ramp_, ramp_]))
        assert voice.asked == []


def test_a_gap_moves_what_comes_after_it() -> None:
    timeline = Timeline()
    timeline.take(0.5, now=10.0)
    timeline.take(0.5, now=10.2)
    assert timeline.gaps_s == 0.0
    timeline.take(0.5, now=12.0)
    assert timeline.gaps_s == pytest.approx(1.0)
    timeline.take(0.5, now=12.5)
    assert timeline.gaps_s == pytest.approx(1.0)
