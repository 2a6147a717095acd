"""Turns through a Pipecat TTS service, whosever it is: a pipeline of source → service → sink."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    StartFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.tts_service import TTSService
from pipecat.workers.runner import WorkerRunner

RATE_HZ = 24_000


class Sink(FrameProcessor):
    """Keeps what goes down, and what the service sends up."""

    def __init__(self, frames: list[Frame]) -> None:
        super().__init__(enable_direct_mode=True)
        self.frames = frames

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        self.frames.append(frame)
        await self.push_frame(frame, direction)


class Talk:
    """A running pipeline.

    Args:
        rate_hz: of the audio that is asked for.
        params: of Pipecat's `PipelineParams`.
    """

    def __init__(self, service: TTSService, rate_hz: int = RATE_HZ, **params: Any) -> None:
        self.service, self.rate_hz = service, rate_hz
        self.up: list[Frame] = []
        self.down: list[Frame] = []
        self.worker = PipelineWorker(
            Pipeline([Sink(self.up), service, Sink(self.down)]),
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
            params=PipelineParams(audio_out_sample_rate=rate_hz, **params),
        )

    async def put(self, *frames: Frame) -> None:
        for frame in frames:
            await self.worker.queue_frame(frame)

    async def say(self, text: str) -> None:
        """A whole utterance."""
        await self.put(TTSSpeakFrame(text))

    async def begin(self) -> None:
        """A turn of a language model."""
        await self.put(LLMFullResponseStartFrame())

    async def write(self, *tokens: str, every_s: float = 0.0) -> None:
        for token in tokens:
            await self.put(LLMTextFrame(token))
            await asyncio.sleep(every_s)

    async def end(self) -> None:
        await self.put(LLMFullResponseEndFrame())

    async def answer(self, *tokens: str) -> None:
        """A whole turn of a language model."""
        await self.begin()
        await self.write(*tokens)
        await self.end()

    async def interrupt(self) -> None:
        await self.put(InterruptionFrame())

    def of(self, kind: type[Any]) -> list[Any]:
        return [frame for frame in self.down if isinstance(frame, kind)]

    @property
    def errors(self) -> list[ErrorFrame]:
        return [frame for frame in self.up if isinstance(frame, ErrorFrame)]

    @property
    def words(self) -> list[str]:
        return [frame.text for frame in self.of(TTSTextFrame)]

    @property
    def pcm(self) -> bytes:
        return b"".join(frame.audio for frame in self.of(TTSAudioRawFrame))

    @property
    def samples(self) -> np.ndarray:
        return np.frombuffer(self.pcm, np.int16)

    @property
    def seconds(self) -> float:
        return len(self.pcm) / 2 / self.rate_hz

    async def until(self, condition: Callable[[], Any], timeout_s: float = 20.0) -> None:
        async def poll() -> None:
            while not condition():
                await asyncio.sleep(0.005)

        await asyncio.wait_for(poll(), timeout_s)

    async def until_audio(self) -> None:
        await self.until(lambda: self.of(TTSAudioRawFrame))

    async def until_stopped(self, times: int = 1, timeout_s: float = 20.0) -> None:
        await self.until(lambda: len(self.of(TTSStoppedFrame)) >= times, timeout_s)


@contextlib.asynccontextmanager
async def talking(service: TTSService, rate_hz: int = RATE_HZ, **params: Any) -> AsyncIterator[Talk]:
    talk = Talk(service, rate_hz, **params)
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(talk.worker)
    running = asyncio.create_task(runner.run())
    try:
        await talk.until(lambda: talk.of(StartFrame))
        yield talk
        await talk.put(EndFrame())
        await asyncio.wait_for(running, 20)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
