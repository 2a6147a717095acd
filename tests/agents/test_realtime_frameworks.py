"""The Realtime server behind the OpenAI services of LiveKit and Pipecat and OpenAI's agents SDK, unmodified."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import onnxruntime  # noqa: F401 - imported before a test, as it leaves a temporary file
import pytest
from livekit import rtc
from livekit.agents import llm
from livekit.agents.llm._realtime.openai import RealtimeModel  # of livekit-plugins-openai, which adds its name alone
from pipecat.frames.frames import (
    EndFrame,
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMContextFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.workers.runner import WorkerRunner
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

from pipecat_turns import Sink
from realtime_caller import RATE_HZ, SILENCE, serving, sound, until
from realtime_server.server import Server

SENTENCE = "The quick brown fox."
LONG = " ".join([SENTENCE] * 16)
PIECE = RATE_HZ // 10
AGENTS_SDK = ROOT / "tests/clients/vendors"
needs_agents_sdk = pytest.mark.skipif(
    shutil.which("node") is None or not (AGENTS_SDK / "node_modules/@openai/agents-realtime").exists(),
    reason="needs Node and @openai/agents-realtime, which make test-clients installs",
)


def pieces(*parts: np.ndarray[Any, np.dtype[np.int16]]) -> list[bytes]:
    samples = np.concatenate(parts)
    return [samples[start : start + PIECE].tobytes() for start in range(0, len(samples), PIECE)]


async def test_livekit_completes_a_turn_and_interrupts_the_next(fake_gateway: str) -> None:
    async with serving(fake_gateway, f"say {SENTENCE}", f"say {LONG}", "say Yes.") as (url, server):
        model = RealtimeModel(base_url=url.replace("ws:", "http:"), api_key="any")
        session = model.session()
        generations: list[llm.GenerationCreatedEvent] = []
        starts: list[Any] = []
        session.on("generation_created", generations.append)
        session.on("input_speech_started", starts.append)

        def say(*parts: np.ndarray[Any, np.dtype[np.int16]]) -> None:
            for piece in pieces(*parts):
                session.push_audio(rtc.AudioFrame(piece, RATE_HZ, 1, len(piece) // 2))

        async def read(number: int, until_ms: float = 1e9) -> tuple[str, str, float]:
            """Return id, transcript and duration of a generation, read until so much audio has come."""
            await until(lambda: len(generations) > number)
            message = await anext(aiter(generations[number].message_stream))
            duration_ms = 0.0
            async for frame in message.audio_stream:
                duration_ms += frame.duration * 1000
                if duration_ms >= until_ms:
                    return message.message_id, "", duration_ms
            return message.message_id, "".join([str(text) async for text in message.text_stream]), duration_ms

        try:
            say(*[SILENCE] * 5, sound(800), *[SILENCE] * 8)
            _, text, duration_ms = await read(0)
            assert text == SENTENCE
            assert duration_ms > 500
            say(sound(800), *[SILENCE] * 8)
            message_id, _, _ = await read(1, until_ms=600)
            say(sound(800))
            await until(lambda: len(starts) == 3)
            session.interrupt()
            session.truncate(message_id=message_id, modalities=["audio"], audio_end_ms=500)
            say(*[SILENCE] * 8)
            _, text, _ = await read(2)
            assert text == "Yes."
            core = next(iter(server.connections)).core
            kept = next(item for item in core.items if item["id"] == message_id)["content"][0]["transcript"]
            assert LONG.startswith(kept)
            assert len(kept) < len(SENTENCE)
        finally:
            await session.aclose()
            await model.aclose()


async def test_livekit_calls_a_function(fake_gateway: str) -> None:
    async with serving(fake_gateway, 'call weather {"city": "Rome"}') as (url, _):
        model = RealtimeModel(base_url=url.replace("ws:", "http:"), api_key="any")
        session = model.session()
        generations: list[llm.GenerationCreatedEvent] = []
        session.on("generation_created", generations.append)

        @llm.function_tool
        async def weather(city: str) -> str:
            """Return the weather of a city."""
            return city

        try:
            await session.update_tools([weather])
            for piece in pieces(*[SILENCE] * 5, sound(800), *[SILENCE] * 8):
                session.push_audio(rtc.AudioFrame(piece, RATE_HZ, 1, len(piece) // 2))
            await until(lambda: generations)
            call = await anext(aiter(generations[0].function_stream))
            assert (call.name, call.arguments) == ("weather", '{"city": "Rome"}')
            context = session.chat_ctx.copy()
            context.items.append(
                llm.FunctionCallOutput(call_id=call.call_id, name=call.name, output="say Sun.", is_error=False)
            )
            await session.update_chat_ctx(context)
            answer = await asyncio.wait_for(session.generate_reply(), 20)
            message = await anext(aiter(answer.message_stream))
            assert "".join([str(text) async for text in message.text_stream]) == "Sun."
        finally:
            await session.aclose()
            await model.aclose()


@contextlib.asynccontextmanager
async def piped(url: str, server: Server) -> AsyncIterator[tuple[PipelineWorker, list[Frame]]]:
    """Run Pipecat's service, with the aggregators that keep its conversation, and let it speak first.

    Yield the frames that come out.
    """
    service = OpenAIRealtimeLLMService(api_key="any", base_url=f"{url}/realtime")
    context = LLMContext([{"role": "user", "content": "say Hello."}])
    pair = LLMContextAggregatorPair(context)
    frames: list[Frame] = []
    steps = [pair.user(), service, Sink(frames), pair.assistant()]
    worker = PipelineWorker(Pipeline(steps), cancel_on_idle_timeout=False, enable_rtvi=False)

    async def weather(params: FunctionCallParams) -> None:
        await params.result_callback({"weather": "sun"})

    service.register_function("weather", weather)
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    try:
        await worker.queue_frame(LLMContextFrame(context))
        await until(lambda: server.connections)
        core = next(iter(server.connections)).core
        await until(lambda: core.items and core.items[-1].get("status") == "completed" and texts(frames) == "Hello.")
        yield worker, frames
    finally:
        await worker.queue_frame(EndFrame())
        await asyncio.wait_for(running, 20)


def texts(frames: list[Frame]) -> str:
    return "".join(frame.text for frame in frames if isinstance(frame, TTSTextFrame))


async def pipe(worker: PipelineWorker, *parts: np.ndarray[Any, np.dtype[np.int16]]) -> None:
    for piece in pieces(*parts):
        await worker.queue_frame(InputAudioRawFrame(piece, RATE_HZ, 1))


async def test_pipecat_completes_turns_and_interrupts_one(fake_gateway: str) -> None:
    async with (
        serving(fake_gateway, f"say {LONG}", "say Yes.") as (url, server),
        piped(url, server) as (worker, frames),
    ):
        await pipe(worker, *[SILENCE] * 10, sound(800), *[SILENCE] * 8)
        await until(lambda: sum(len(frame.audio) for frame in frames if isinstance(frame, TTSAudioRawFrame)) > 48_000)
        num_before = sum(isinstance(frame, InterruptionFrame) for frame in frames)
        await pipe(worker, sound(800))
        core = next(iter(server.connections)).core
        await until(lambda: any(item["status"] == "incomplete" for item in core.items))
        await until(lambda: sum(isinstance(frame, InterruptionFrame) for frame in frames) > num_before)
        await pipe(worker, *[SILENCE] * 8)
        await until(lambda: texts(frames).endswith("Yes."))
        kept = next(item for item in core.items if item["status"] == "incomplete")["content"][0]["transcript"]
        assert LONG.startswith(kept)
        assert len(kept) < len(LONG)


async def test_pipecat_calls_a_function(fake_gateway: str) -> None:
    async with (
        serving(fake_gateway, 'call weather {"city": "Rome"}') as (url, server),
        piped(url, server) as (worker, frames),
    ):
        core = next(iter(server.connections)).core
        await pipe(worker, *[SILENCE] * 10, sound(800), *[SILENCE] * 8)
        await until(lambda: texts(frames) != "Hello.")
        [output] = [item for item in core.items if item["type"] == "function_call_output"]
        assert json.loads(output["output"]) == {"weather": "sun"}


@needs_agents_sdk
async def test_openais_agents_sdk_interrupts_a_turn_and_calls_a_tool(fake_gateway: str) -> None:
    async with serving(fake_gateway, f"say {LONG}", 'call weather {"city": "Rome"}') as (url, _):
        process = await asyncio.create_subprocess_exec(
            "node", str(AGENTS_SDK / "openai_agents.mjs"), f"{url}/realtime", stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        told = json.loads(output)
        assert (told["errors"], told["asked"], told["last"]) == ([], ["Rome"], "It is sunny.")
