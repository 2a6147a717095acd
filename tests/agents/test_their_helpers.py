"""LiveKit's and Pipecat's own helpers for tests, those that their packages bring along, on ours."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from livekit import rtc
from livekit.agents import Agent, AgentSession
from livekit.agents.testing import fake_job_context
from livekit.agents.voice import io
from livekit.plugins import realtime_tts
from pipecat.frames.frames import (
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.tests.utils import run_test
from pipecat_realtime_tts import RealtimeTTSService
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

from scripted import ScriptedLLM

TEXT = "The old house was empty."


class Loudspeaker(io.AudioOutput):
    """Plays at once."""

    def __init__(self) -> None:
        super().__init__(label="loudspeaker", capabilities=io.AudioOutputCapabilities(pause=False), sample_rate=24_000)
        self.played_s = 0.0
        self._turn_s = 0.0

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        self._turn_s += frame.duration

    def flush(self) -> None:
        super().flush()
        if self._turn_s > 0:
            self.played_s += self._turn_s
            self.on_playback_finished(playback_position=self._turn_s, interrupted=False)
            self._turn_s = 0.0

    def clear_buffer(self) -> None:
        self._turn_s = 0.0


@pytest_asyncio.fixture
async def conversation(fake_gateway: str) -> AsyncIterator[tuple[AgentSession[None], Loudspeaker]]:
    """A session in a job that there is not, with our speech."""
    tts, speaker = realtime_tts.TTS(fake_gateway), Loudspeaker()
    llm = ScriptedLLM(tokens_per_second=200)
    session: AgentSession[None] = AgentSession(llm=llm, tts=tts, use_tts_aligned_transcript=True, vad=None)
    with fake_job_context() as job:
        session.output.audio = speaker
        await session.start(Agent(instructions="Speak."))
        yield session, speaker
        await session.aclose()
    await tts.aclose()
    job._tempdir.cleanup()  # what a real job does when it ends


@pytest.mark.timeout(60)
async def test_livekits_run_of_a_turn_expects_what_was_said(
    conversation: tuple[AgentSession[None], Loudspeaker],
) -> None:
    session, speaker = conversation
    for text in (TEXT, "And another turn."):
        before_s = speaker.played_s
        result = await session.run(user_input=f"say {text}")
        said = result.expect.next_event().is_message(role="assistant")
        assert said.event().item.text_content == text
        result.expect.no_more_events()
        assert speaker.played_s > before_s + 0.2


@pytest.mark.timeout(60)
async def test_pipecats_run_of_a_processor_sees_the_frames_of_an_utterance(fake_gateway: str) -> None:
    down, up = await run_test(
        RealtimeTTSService(url=fake_gateway),
        frames_to_send=[TTSSpeakFrame(TEXT)],
        start_timeout=10.0,
    )
    kinds = [type(frame) for frame in down]
    assert kinds.index(TTSStartedFrame) < kinds.index(TTSAudioRawFrame) < kinds.index(TTSStoppedFrame)
    assert (kinds.count(TTSStartedFrame), kinds.count(TTSStoppedFrame)) == (1, 1)
    spoken = " ".join(frame.text.strip() for frame in down if type(frame) is TTSTextFrame)
    assert spoken == TEXT
    assert not up


@pytest.mark.timeout(60)
async def test_pipecats_run_of_a_processor_sees_the_frames_of_an_answer(fake_gateway: str) -> None:
    tokens = [LLMTextFrame(token) for token in ("The ", "old ", "house ", "was ", "empty.")]
    down, up = await run_test(
        RealtimeTTSService(url=fake_gateway),
        frames_to_send=[LLMFullResponseStartFrame(), *tokens, LLMFullResponseEndFrame()],
        start_timeout=10.0,
    )
    kinds = [type(frame) for frame in down]
    assert (kinds.count(TTSStartedFrame), kinds.count(TTSStoppedFrame)) == (1, 1)
    assert kinds.index(LLMFullResponseStartFrame) < kinds.index(TTSStartedFrame)
    assert TTSAudioRawFrame in kinds[kinds.index(TTSStartedFrame) : kinds.index(TTSStoppedFrame)]
    assert kinds.count(LLMFullResponseEndFrame) == 1
    spoken = " ".join(frame.text.strip() for frame in down if type(frame) is TTSTextFrame)
    assert spoken == TEXT
    assert not up
