"""The Realtime server's models: OpenAI-compatible addresses, and silero and Smart Turn with a real voice."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
import wave
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import onnxruntime  # noqa: F401 - imported before a test, as it leaves a temporary file
from aiohttp import web
from realtime_tts_client import synthesize
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

from bot_serving import listening
from realtime_caller import RATE_HZ, SILENCE, calling, serving
from realtime_server.models import Call, ChatModel, End, RemoteRecogniser, ScriptedModel, load_silero, load_smart_turn


def chunk(**fields: Any) -> dict[str, Any]:
    return {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [], **fields}


def choice(reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return chunk(choices=[{"index": 0, "delta": delta, "finish_reason": reason}])


class Services:
    """A language model and a recogniser over HTTP. `asked`: what they were sent."""

    def __init__(self, chunks: list[dict[str, Any]]) -> None:
        self.asked: list[dict[str, Any]] = []
        self._chunks = chunks

    def application(self) -> web.Application:
        made = web.Application()
        made.router.add_post("/v1/chat/completions", self._write)
        made.router.add_post("/v1/audio/transcriptions", self._transcribe)
        return made

    async def _write(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for one in self._chunks:
            await response.write(f"data: {json.dumps(one)}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _transcribe(self, request: web.Request) -> web.Response:
        form = await request.post()
        file = form["file"]
        assert isinstance(file, web.FileField)
        with wave.open(io.BytesIO(file.file.read())) as wav:
            num_frames = wav.getnframes()
        file.file.close()
        self.asked.append({"frames": num_frames, "model": form["model"], "language": form.get("language")})
        return web.json_response({"text": " Hello. "})


@contextlib.asynccontextmanager
async def services(*chunks: dict[str, Any]) -> AsyncIterator[tuple[str, Services]]:
    made = Services(list(chunks))
    async with listening(made.application()) as host:
        yield f"http://{host}/v1", made


async def test_text_calls_usage_and_a_limit_come_from_the_language_model() -> None:
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": ""}}
    second = {"index": 0, "function": {"arguments": "{}"}}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    async with services(
        choice(role="assistant", content=""),
        choice(content="Hello"),
        choice(tool_calls=[first]),
        choice(tool_calls=[second]),
        choice("length"),
        chunk(usage=usage),
    ) as (url, made):
        model = ChatModel(url, "llama", "key")
        pieces = [piece async for piece in model.write([{"role": "user", "content": "Hi"}], {"max_tokens": 3})]
        assert pieces == ["Hello", Call(0, "call_1", "look", ""), Call(0, "", "", "{}"), End((7, 3), True)]
        assert (made.asked[0]["model"], made.asked[0]["max_tokens"], made.asked[0]["stream"]) == ("llama", 3, True)
        await model._client.close()


async def test_a_recording_goes_to_the_recogniser_as_wav() -> None:
    async with services() as (url, made):
        recogniser = RemoteRecogniser(url, "whisper", "key")
        assert await recogniser.recognise(np.zeros(1600, np.int16), "en") == "Hello."
        assert made.asked == [{"frames": 1600, "model": "whisper", "language": "en"}]
        await recogniser._client.close()


async def test_a_language_model_that_is_not_there_fails_the_response(fake_gateway: str) -> None:
    model = ChatModel("http://127.0.0.1:1/v1", "llama", "key")
    async with serving(fake_gateway, "", model=model) as (url, server), calling(url, server) as caller:
        await caller.send("response.create")
        done = (await caller.next("response.done"))["response"]
        assert (done["status"], done["status_details"]["error"]["code"]) == ("failed", "model_failed")
    await model._client.close()


async def test_a_spoken_turn_is_found_by_silero_and_ended_by_smart_turn(speech_url: str) -> None:
    question, _ = await asyncio.to_thread(
        synthesize, speech_url, "What is the weather like today?", sample_rate=RATE_HZ
    )
    said = (question * 32_767).astype(np.int16)
    parts = {"silero": load_silero(), "is_over": load_smart_turn(), "model": ScriptedModel(100.0)}
    async with serving(speech_url, "say Sunny.", **parts) as (url, server), calling(url, server) as caller:
        await caller.update(audio={"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "low"}}})
        await caller.say(*[SILENCE] * 5, said, *[SILENCE] * 100)
        started = await caller.next("input_audio_buffer.speech_started")
        stopped = await caller.next("input_audio_buffer.speech_stopped")
        assert 0 <= started["audio_start_ms"] <= 1_000
        assert stopped["audio_end_ms"] > 500 + len(said) / RATE_HZ * 500  # it is speech to its second half at least
        done = (await caller.next("response.done"))["response"]
        assert done["output"][0]["content"][0]["transcript"] == "Sunny."
