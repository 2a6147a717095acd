"""Stand-ins for a language model, a speech recogniser and a voice detector."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from livekit import rtc
from livekit.agents import llm, vad
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

import voice_agent
from script import ANSWERS
from scripted import LoudnessVAD, ScriptedLLM, UncomprehendingSTT

RATE_HZ = 16_000


async def answer_to(scripted: ScriptedLLM, *asked: str) -> str:
    context = llm.ChatContext.empty()
    for text in asked:
        context.add_message(role="user", content=text)
    async with scripted.chat(chat_ctx=context) as stream:
        return "".join([chunk.delta.content or "" async for chunk in stream if chunk.delta])


async def test_answers_come_in_turn_token_by_token_and_can_be_asked_for() -> None:
    told: list[float] = []
    scripted = ScriptedLLM(tokens_per_second=10_000, tell=told.append)
    assert await answer_to(scripted) == ANSWERS[0]
    assert await answer_to(scripted, "Hello?") == ANSWERS[1]
    assert await answer_to(scripted, "Hello?", "say This and that.") == "This and that."
    assert await answer_to(scripted, "say This", "Hello?") == ANSWERS[2]
    assert len(told) == 4


async def test_a_stall_is_no_word() -> None:
    began = asyncio.get_running_loop().time()
    scripted = ScriptedLLM(tokens_per_second=10_000)
    assert await answer_to(scripted, "say This {0} and {1} that.") == "This and that."
    assert asyncio.get_running_loop().time() - began >= 1.0


def frames(*parts: tuple[int, float]) -> list[rtc.AudioFrame]:
    """Noise: (ms, level) one after the other, in frames of 50 ms as LiveKit gives them."""
    noise = np.random.default_rng(0).normal(0, 1, RATE_HZ * sum(ms for ms, _ in parts) // 1000)
    levels = np.repeat([level for _, level in parts], [RATE_HZ * ms // 1000 for ms, _ in parts])
    samples = (noise * levels).astype(np.int16)
    step = RATE_HZ // 20
    return [rtc.AudioFrame(samples[at : at + step].tobytes(), RATE_HZ, 1, step) for at in range(0, len(samples), step)]


async def test_the_detector_by_loudness_tells_livekit_when_speech_begins_and_ends() -> None:
    stream = LoudnessVAD().stream()
    for frame in frames((500, 20), (1000, 3000), (700, 20)):
        stream.push_frame(frame)
    stream.end_input()
    events = [event async for event in stream]
    await stream.aclose()
    changes = [event for event in events if event.type is not vad.VADEventType.INFERENCE_DONE]
    assert [event.type for event in changes] == [vad.VADEventType.START_OF_SPEECH, vad.VADEventType.END_OF_SPEECH]
    spoken = np.concatenate([np.frombuffer(frame.data, np.int16) for frame in changes[1].frames])
    assert len(np.flatnonzero(np.abs(spoken) > 300)) > 0.8 * RATE_HZ  # all that was loud is there to be recognised
    assert [event.speaking for event in events].count(True) > 20


async def test_the_ear_hears_how_long_it_was() -> None:
    for for_ms, text in ((1000, "(speech of 1.5 seconds)"), (300, "")):
        event = await UncomprehendingSTT().recognize(frames((100, 20), (for_ms, 3000), (400, 20)))
        assert event.alternatives[0].text == text


@pytest.mark.parametrize(("kind", "name"), [("STT", "unknown-plugin"), ("LLM", "realtime_tts")])
def test_a_plugin_that_is_not_there_is_named(kind: str, name: str) -> None:
    with pytest.raises(SystemExit, match="livekit-plugins-" + name):
        voice_agent.plugin(kind, name)


def test_the_journal_is_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = voice_agent.Journal(str(path), "room")
    journal.note("one", text="“a”\n")
    journal.note("two")
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(line["event"], line["room"]) for line in lines] == [("one", "room"), ("two", "room")]
    assert lines[0]["text"] == "“a”\n"
    voice_agent.Journal(None, "room").note("nowhere")
