"""Clients made for OpenAI, unmodified: its Python and JavaScript packages, LiveKit's plugin and Pipecat's service."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import av
import livekit_turns
import numpy as np
import pytest
from livekit.agents import APIStatusError, tts
from livekit.plugins import openai as livekit_openai
from openai import APIStatusError as StatusError
from openai import AsyncOpenAI, AuthenticationError, InternalServerError, NotFoundError, OpenAI
from vendor_gateways import API_KEY, gateway_figure, run_node, running_gateway, until_working
from vendor_services import talking

HERE = Path(__file__).parent
TOKENS = ["Hel", "lo there, ", "this is a ", "turn of some ", "length. ", "And here is one ", "more sentence."]
TEXT = "".join(TOKENS)
LONG = "This one goes on and on, until somebody breaks it off. " * 8
ENDLESS = "command never. "
LAST_S = 3.2  # so long the fake voice speaks TEXT, and at least
BYTES_PER_S = 48_000
STALL_S = 12.0
FORMATS = {"mp3": 24_000, "opus": 48_000, "aac": 24_000, "flac": 24_000, "wav": 24_000}
WANTED: dict[str, Any] = {"model": "gpt-4o-mini-tts", "voice": "alloy", "input": TEXT}


def client_of(url: str, key: str = "any", **options: Any) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key=key, **{"max_retries": 0, **options})


def decoded(data: bytes) -> tuple[np.ndarray, int]:
    """[n] samples in -1…1 and their rate."""
    with av.open(io.BytesIO(data)) as container:
        frames = [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
        rate = container.streams.audio[0].rate
    samples = np.concatenate(frames)
    return (samples / 32_768 if samples.dtype == np.int16 else samples), rate


@contextlib.contextmanager
def place_taken(url: str) -> Iterator[None]:
    """Another client is being served."""
    with (
        client_of(url) as other,
        other.audio.speech.with_streaming_response.create(
            **{**WANTED, "input": ENDLESS, "response_format": "pcm"}
        ) as response,
    ):
        reading = response.iter_bytes()  # closes the response when it is thrown away
        next(reading)
        yield


# ---- the Python package -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_sdk_speaks_in_every_format(fake_gateway: str, name: str) -> None:
    with client_of(fake_gateway) as client:
        response = client.audio.speech.create(**WANTED, response_format=name)  # type: ignore[arg-type]
        pcm = client.audio.speech.create(**WANTED, response_format="pcm").content
    samples, rate = decoded(response.content)
    assert rate == FORMATS[name]
    assert len(samples) / rate == pytest.approx(len(pcm) / BYTES_PER_S, abs=0.2 if name in ("mp3", "aac") else 0.001)
    assert len(pcm) / BYTES_PER_S >= LAST_S


def test_sdk_streams_into_a_file_while_it_is_made(fake_gateway: str, tmp_path: Path) -> None:
    with client_of(fake_gateway) as client:
        with client.audio.speech.with_streaming_response.create(**WANTED) as response:
            assert response.headers["x-request-id"] == response.request_id
            response.stream_to_file(tmp_path / "speech.mp3")
        assert len(decoded((tmp_path / "speech.mp3").read_bytes())[0]) > LAST_S * 24_000


def test_sdk_reads_events(fake_gateway: str) -> None:
    with (
        client_of(fake_gateway) as client,
        client.audio.speech.with_streaming_response.create(
            **WANTED, stream_format="sse", response_format="pcm"
        ) as response,
    ):
        events = [json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line]
    *deltas, done = events
    pcm = b"".join(base64.b64decode(event["audio"]) for event in deltas)
    assert len(pcm) / BYTES_PER_S >= LAST_S
    assert (done["type"], done["usage"]["input_tokens"]) == ("speech.audio.done", len(TEXT))


async def test_the_asynchronous_sdk_speaks_turn_after_turn_and_two_at_a_time(fake_gateway: str) -> None:
    async with AsyncOpenAI(base_url=f"{fake_gateway}/v1", api_key="any", max_retries=0) as client:

        async def turn() -> int:
            return len((await client.audio.speech.create(**WANTED, response_format="pcm")).content)

        lengths = [await turn(), await turn(), *await asyncio.gather(turn(), turn())]
    assert len(set(lengths)) == 1
    assert lengths[0] / BYTES_PER_S >= LAST_S


async def test_sdk_interrupts(fake_gateway: str) -> None:
    async with AsyncOpenAI(base_url=f"{fake_gateway}/v1", api_key="any", max_retries=0) as client:
        wanted = {**WANTED, "input": ENDLESS, "response_format": "pcm"}
        async with client.audio.speech.with_streaming_response.create(**wanted) as response:
            reading = response.iter_bytes(1024)  # closes the response when it is thrown away
            await anext(reading)
            await until_working(fake_gateway, True)
        await until_working(fake_gateway, False)
        # Also with no sound yet: the task that waits for it is cancelled.
        waiting = asyncio.create_task(client.audio.speech.create(**{**WANTED, "input": "command stall."}))
        await until_working(fake_gateway, True)
        waiting.cancel()
        await until_working(fake_gateway, False)
        await asyncio.gather(waiting, return_exceptions=True)
        assert (await client.audio.speech.create(**WANTED)).content


def test_sdk_is_told_what_is_wrong(fake_gateway: str, keyed_gateway: str, full_gateway: str) -> None:
    with client_of(keyed_gateway, "wrong") as client, pytest.raises(AuthenticationError) as unauthorized:
        client.audio.speech.create(**WANTED)
    assert unauthorized.value.code == "unauthorized"
    assert unauthorized.value.request_id
    with client_of(keyed_gateway, API_KEY) as client:
        assert client.audio.speech.create(**WANTED).content
    with client_of(full_gateway) as client, pytest.raises(InternalServerError) as full:
        client.audio.speech.create(**WANTED)
    assert (full.value.status_code, full.value.code) == (503, "overloaded")
    assert full.value.response.headers["retry-after"] == "1"
    with client_of(fake_gateway) as client, pytest.raises(StatusError) as invalid:
        client.audio.speech.create(**{**WANTED, "response_format": "ogg"})
    assert (invalid.value.status_code, invalid.value.param) == (400, "response_format")


def test_sdk_tries_again_until_there_is_room() -> None:
    with (
        running_gateway({"max_sessions": 1}) as url,
        client_of(url, max_retries=8) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        with place_taken(url):
            speaking = pool.submit(client.audio.speech.create, **WANTED, response_format="pcm")
            end = time.monotonic() + 10
            while gateway_figure(url, "handshakes_refused_total") < 1 and time.monotonic() < end:
                time.sleep(0.01)
            assert gateway_figure(url, "handshakes_refused_total") >= 1
        assert len(speaking.result(30).content) / BYTES_PER_S >= LAST_S


def test_sdk_lists_models(fake_gateway: str) -> None:
    with client_of(fake_gateway) as client:
        assert [model.id for model in client.models.list()] == ["fake-voice"]
        assert client.models.retrieve("tts-1").object == "model"
        assert client.models.retrieve("fake-voice").created > 0


def test_sdk_of_a_strict_server_is_told_the_voices() -> None:
    with running_gateway({"strict_ids": True, "model_aliases": ["gpt-4o-mini-tts"]}) as url, client_of(url) as client:
        with pytest.raises(NotFoundError, match="slt, rms"):
            client.audio.speech.create(**WANTED)
        assert client.audio.speech.create(**{**WANTED, "voice": "rms"}).content


def test_sdk_hears_the_starter_voice(starter_gateway: str) -> None:
    with client_of(starter_gateway) as client:
        text = "The quick brown fox jumps over the lazy dog."
        samples, rate = decoded(client.audio.speech.create(**{**WANTED, "input": text}).content)
    assert 1.5 < len(samples) / rate < 6.0
    assert np.sqrt(np.mean(samples**2)) > 0.01


# ---- the JavaScript package ---------------------------------------------------------------------------------------


def run_js(url: str, action: str, key: str = "any", **more: Any) -> dict[str, Any]:
    wanted = {"input": TEXT, **more}
    return run_node(HERE / "openai.mjs", f"{url}/v1", key, action, json.dumps(wanted))


def test_js_speaks_one_two_and_two_at_a_time(fake_gateway: str) -> None:
    bytes_of_turns = run_js(fake_gateway, "turns")["bytes"]
    assert len(set(bytes_of_turns)) == 1
    assert bytes_of_turns[0] / BYTES_PER_S >= LAST_S


def test_js_gets_its_usual_format(fake_gateway: str) -> None:
    answer = run_js(fake_gateway, "whole", response_format="mp3")
    assert answer["type"] == "audio/mpeg"
    assert answer["bytes"] > LAST_S * 96_000 / 8


async def test_js_interrupts(fake_gateway: str) -> None:
    answer = await asyncio.to_thread(run_js, fake_gateway, "interrupt", input=ENDLESS)
    assert answer["bytes"] > 0
    await until_working(fake_gateway, False)


def test_js_lists_models(fake_gateway: str) -> None:
    assert run_js(fake_gateway, "models") == {"listed": ["fake-voice"], "one": "tts-1"}


def test_js_with_a_wrong_key_or_too_many_others(keyed_gateway: str, full_gateway: str) -> None:
    wrong = run_js(keyed_gateway, "whole", "wrong")
    assert (wrong["status"], wrong["code"]) == (401, "unauthorized")
    assert wrong["requestID"]
    full = run_js(full_gateway, "whole")
    assert (full["status"], full["code"], full["type"]) == (503, "overloaded", "server_error")


# ---- LiveKit and Pipecat ------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def plugin(url: str, key: str = "any", **options: Any) -> AsyncIterator[livekit_openai.TTS]:
    made = livekit_openai.TTS(base_url=f"{url}/v1", api_key=key, **options)
    try:
        yield made
    finally:
        await made.aclose()


@contextlib.asynccontextmanager
async def adapted(url: str, **options: Any) -> AsyncIterator[tts.StreamAdapter]:
    """Wrapper that an agent puts around a TTS that takes whole texts only."""
    async with plugin(url, **options) as made:
        yield tts.StreamAdapter(tts=made)


@pytest.mark.parametrize(
    "options",
    [{}, {"model": "tts-1"}, {"response_format": "pcm"}, {"response_format": "opus"}, {"response_format": "wav"}],
    ids=["mp3-sse", "mp3", "pcm", "opus", "wav"],
)
async def test_livekit_speaks_a_whole_text(fake_gateway: str, options: dict[str, Any]) -> None:
    async with plugin(fake_gateway, **options) as made:
        made.prewarm()
        heard = await livekit_turns.whole(made, TEXT)
    assert LAST_S - 0.1 <= heard.seconds < LAST_S + 2


async def test_livekit_speaks_deltas_and_the_next_turn(fake_gateway: str) -> None:
    async with adapted(fake_gateway) as made:
        for _ in range(2):
            heard = await livekit_turns.speak(made, TOKENS, livekit_turns.TOKEN_EVERY_S)
            assert heard.seconds >= LAST_S - 0.1


@pytest.mark.parametrize("ended", [False, True])
async def test_livekit_interrupts(fake_gateway: str, ended: bool) -> None:
    async with adapted(fake_gateway) as made:
        async with livekit_turns.interrupted(made, ENDLESS + LONG, ended):
            await until_working(fake_gateway, True)
        await until_working(fake_gateway, False)
        assert (await livekit_turns.speak(made, ["Next."])).seconds < 0.8


async def test_livekit_and_pipecat_bear_a_stall(fake_gateway: str) -> None:
    """Both send whole sentences, so that a stall is a pause between two requests."""

    async def livekit() -> None:
        async with adapted(fake_gateway) as made:
            heard = await livekit_turns.stall(made, "Here is a sentence. And a ", "second one.", STALL_S)
            assert heard.seconds >= 1.8

    async def pipecat() -> None:
        async with talking("openai", fake_gateway) as talk:
            await talk.begin()
            await talk.write("Here is a sentence. And a ")
            await asyncio.sleep(STALL_S)
            await talk.write("second one.")
            await talk.end()
            await talk.until(lambda: talk.seconds >= 1.8)
            assert talk.errors == []

    await asyncio.gather(livekit(), pipecat())


async def test_livekit_turns_overlap(fake_gateway: str) -> None:
    async with adapted(fake_gateway) as made:
        heard = await asyncio.gather(*(livekit_turns.speak(made, TOKENS) for _ in range(2)))
    assert min(turn.seconds for turn in heard) >= LAST_S - 0.1


async def test_livekit_with_a_wrong_key_or_too_many_others(keyed_gateway: str, full_gateway: str) -> None:
    for url, status in ((keyed_gateway, 401), (full_gateway, 503)):
        async with plugin(url, "wrong") as made:
            with pytest.raises(APIStatusError) as refused:
                await livekit_turns.whole(made, TEXT)
            assert refused.value.status_code == status
