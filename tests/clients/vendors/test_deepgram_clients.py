"""Clients made for Deepgram, unmodified: its Python package, LiveKit's plugin and Pipecat's service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import httpx
import livekit_turns
import pipecat_turns
import pytest
from deepgram import AsyncDeepgramClient, DeepgramClient
from deepgram.core.api_error import ApiError
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v1.types import SpeakV1Flushed, SpeakV1Metadata, SpeakV1Text
from deepgram.speak.v2.types import (
    SpeakV2Configure,
    SpeakV2Error,
    SpeakV2Interrupt,
    SpeakV2InterruptPlaybackOffset,
    SpeakV2Speak,
    SpeakV2SpeechInterrupted,
    SpeakV2SpeechMetadata,
)
from livekit.agents import APIStatusError
from livekit.plugins import deepgram
from pipecat.frames.frames import InterruptionFrame
from pipecat.services.deepgram.flux.tts import DeepgramFluxTTSService
from pipecat.services.deepgram.tts import DeepgramHttpTTSService, DeepgramTTSService
from vendor_gateways import API_KEY, gateway_figure, until_working

TOKENS = ["Hel", "lo ", "there, ", "this is ", "a turn. ", "And one ", "more."]
TEXT = "".join(TOKENS)
LONG = "This one goes on and on, until somebody breaks it off. " * 8
LAST_S = 2.6  # so long the fake voice speaks TEXT, and at least
BYTES_PER_S = 48_000


def environment(url: str) -> DeepgramClientEnvironment:
    address = url.replace("http", "ws", 1)
    return DeepgramClientEnvironment(base=url, production=address, agent=address, agent_rest=url)


@contextlib.asynccontextmanager
async def connection(url: str, key: str = "any", **query: Any) -> AsyncIterator[Any]:
    client = AsyncDeepgramClient(api_key=key, environment=environment(url))
    async with client.speak.v1.connect(model="aura-2-thalia-en", **query) as socket:
        yield socket


async def receive(socket: Any, last: str = "Flushed") -> bytes:
    """Audio up to a message of the type `last`; the package has one class for several."""
    pcm = b""
    while isinstance(message := await asyncio.wait_for(socket.recv(), 10), bytes) or message.type != last:
        assert isinstance(message, bytes | SpeakV1Metadata), message
        pcm += message if isinstance(message, bytes) else b""
    return pcm


# ---- the Python package -------------------------------------------------------------------------------------------


async def test_sdk_speaks_deltas_and_the_next_turn_on_the_same_socket(fake_gateway: str) -> None:
    sessions = gateway_figure(fake_gateway, "sessions_opened_total")
    async with connection(fake_gateway, encoding="linear16", sample_rate=24_000) as socket:
        for turn in range(2):
            for token in TOKENS:
                await socket.send_text(SpeakV1Text(text=token))
                await asyncio.sleep(0.01)
            await socket.send_flush()
            assert len(await receive(socket)) >= LAST_S * BYTES_PER_S
            assert gateway_figure(fake_gateway, "sessions_opened_total") == sessions + 1, turn


def test_the_synchronous_sdk_receives_metadata_and_may_leave(fake_gateway: str) -> None:
    client = DeepgramClient(api_key="any", environment=environment(fake_gateway))
    with client.speak.v1.connect(model="aura-2-thalia-en", encoding="mulaw", sample_rate=8_000) as socket:
        metadata = socket.recv()
        socket.send_text(SpeakV1Text(text="Hello."))
        socket.send_flush()
        heard = []
        while not isinstance(message := socket.recv(), SpeakV1Flushed):
            heard.append(message)
        socket.send_close()
        assert list(socket) == []
    assert isinstance(metadata, SpeakV1Metadata)
    assert metadata.model_name == "fake-voice"
    assert {type(message) for message in heard} == {bytes}
    assert {len(message) for message in heard} == {320}  # 40 ms


async def test_sdk_turns_overlap_and_are_spoken_in_turn(fake_gateway: str) -> None:
    async with connection(fake_gateway) as socket:
        for text in ("The first one.", "And the second, longer one.", "End."):
            await socket.send_text(SpeakV1Text(text=text))
            await socket.send_flush()
        lengths = [len(await receive(socket)) for _ in range(3)]
    assert lengths[1] > lengths[0] > lengths[2] > 0


@pytest.mark.parametrize("ended", [False, True])
async def test_sdk_interrupts(fake_gateway: str, ended: bool) -> None:
    async with connection(fake_gateway) as socket:
        await socket.send_text(SpeakV1Text(text=LONG))
        if ended:
            await socket.send_flush()
        await until_working(fake_gateway, True)
        await socket.send_clear()
        await receive(socket, "Cleared")
        await until_working(fake_gateway, False)
        await socket.send_text(SpeakV1Text(text="Next."))
        await socket.send_flush()
        assert 0 < len(await receive(socket)) < 0.7 * BYTES_PER_S  # and nothing of the long one


async def test_sdk_with_a_wrong_key_or_too_many_others(keyed_gateway: str, full_gateway: str) -> None:
    for url, key, status in ((keyed_gateway, "wrong", 401), (full_gateway, "any", 503)):
        with pytest.raises(ApiError) as refused:
            async with connection(url, key):
                pass
        assert refused.value.status_code == status
    async with connection(keyed_gateway, API_KEY) as socket:
        await socket.send_flush()
        assert await receive(socket) == b""


@contextlib.asynccontextmanager
async def sdk(url: str, key: str = "any") -> AsyncIterator[AsyncDeepgramClient]:
    """The package does not close what it opens, but takes what one has."""
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        yield AsyncDeepgramClient(api_key=key, environment=environment(url), httpx_client=http)


async def test_sdk_asks_for_files(fake_gateway: str) -> None:
    async with sdk(fake_gateway) as client:
        wav = b"".join([part async for part in client.speak.v1.audio.generate(text=TEXT, encoding="linear16")])
        mp3 = b"".join([part async for part in client.speak.v1.audio.generate(text=TEXT)])
    assert wav[:4] == b"RIFF"
    assert len(wav) >= LAST_S * BYTES_PER_S
    assert len(mp3) >= LAST_S * 6000


async def test_sdk_stops_reading(fake_gateway: str) -> None:
    async with sdk(fake_gateway) as client:
        parts = client.speak.v1.audio.generate(text=LONG, encoding="linear16")
        await anext(aiter(parts))
        await until_working(fake_gateway, True)
        await parts.aclose()
        await until_working(fake_gateway, False)


async def test_sdk_over_http_with_a_wrong_key_or_too_many_others(keyed_gateway: str, full_gateway: str) -> None:
    for url, status in ((keyed_gateway, 401), (full_gateway, 503)):
        async with sdk(url, "wrong") as client:
            parts = client.speak.v1.audio.generate(text=TEXT, request_options={"max_retries": 0})
            with pytest.raises(ApiError) as refused:
                await anext(aiter(parts))
            assert refused.value.status_code == status


# ---- LiveKit ------------------------------------------------------------------------------------------------------


async def test_livekit_speaks_deltas_and_the_next_turn_on_the_same_socket(fake_gateway: str) -> None:
    sessions = gateway_figure(fake_gateway, "sessions_opened_total")
    async with livekit_turns.plugin(deepgram.TTS, base_url=fake_gateway + "/v1/speak", api_key="any") as tts:
        for _ in range(2):
            heard = await livekit_turns.speak(tts, TOKENS, livekit_turns.TOKEN_EVERY_S)
            assert heard.seconds >= LAST_S
    assert gateway_figure(fake_gateway, "sessions_opened_total") == sessions + 1


@pytest.mark.parametrize("ended", [False, True])
async def test_livekit_interrupts_with_the_next_turn(fake_gateway: str, ended: bool) -> None:
    """It sends no `Clear`, and closes the socket when it wants another one."""
    async with livekit_turns.plugin(deepgram.TTS, base_url=fake_gateway + "/v1/speak", api_key="any") as tts:
        async with livekit_turns.interrupted(tts, LONG, ended):
            await until_working(fake_gateway, True)
        assert 0 < (await livekit_turns.speak(tts, ["Next."])).seconds < 0.7
        await until_working(fake_gateway, False)


async def test_livekit_turns_overlap(fake_gateway: str) -> None:
    async with livekit_turns.plugin(deepgram.TTS, base_url=fake_gateway + "/v1/speak", api_key="any") as tts:
        heard = await asyncio.gather(*(livekit_turns.speak(tts, TOKENS) for _ in range(2)))
    assert min(turn.seconds for turn in heard) >= LAST_S


async def test_livekit_with_a_wrong_key_or_too_many_others(keyed_gateway: str, full_gateway: str) -> None:
    for url, status in ((keyed_gateway, 401), (full_gateway, 503)):
        async with livekit_turns.plugin(deepgram.TTS, base_url=url + "/v1/speak", api_key="wrong") as tts:
            with pytest.raises(APIStatusError) as refused:
                await livekit_turns.speak(tts, TOKENS)
            assert refused.value.status_code == status


async def test_livekit_without_streaming(fake_gateway: str, keyed_gateway: str) -> None:
    async with livekit_turns.plugin(deepgram.TTS, base_url=fake_gateway + "/v1/speak", api_key="any") as tts:
        assert (await livekit_turns.whole(tts, TEXT)).seconds >= LAST_S
    async with livekit_turns.plugin(deepgram.TTS, base_url=keyed_gateway + "/v1/speak", api_key="wrong") as tts:
        with pytest.raises(APIStatusError) as refused:
            await livekit_turns.whole(tts, TEXT)
        assert refused.value.status_code == 401


# ---- Pipecat ------------------------------------------------------------------------------------------------------


def service(url: str, key: str = "any") -> DeepgramTTSService:
    return DeepgramTTSService(api_key=key, base_url=url.replace("http", "ws", 1))


async def test_pipecat_speaks_deltas_and_the_next_turn_on_the_same_socket(fake_gateway: str) -> None:
    sessions = gateway_figure(fake_gateway, "sessions_opened_total")
    async with pipecat_turns.talking(service(fake_gateway)) as talk:
        for turn in (1, 2):
            await talk.begin()
            await talk.write(*TOKENS, every_s=0.01)
            await talk.end()
            await talk.until_stopped(turn)
            assert talk.seconds >= turn * LAST_S
        assert " ".join(talk.words).split() == TEXT.split() * 2
        assert talk.errors == []
    assert gateway_figure(fake_gateway, "sessions_opened_total") == sessions + 1


@pytest.mark.parametrize("ended", [False, True])
async def test_pipecat_interrupts(fake_gateway: str, ended: bool) -> None:
    async with pipecat_turns.talking(service(fake_gateway)) as talk:
        await talk.begin()
        await talk.write(LONG)
        if ended:
            await talk.end()
        await talk.until_audio()
        await until_working(fake_gateway, True)
        await talk.interrupt()
        await until_working(fake_gateway, False)
        await talk.until(lambda: talk.of(InterruptionFrame))
        heard = len(talk.pcm)
        await talk.begin()
        await talk.write("Next.")
        await talk.end()
        await talk.until_stopped()
        assert 0 < len(talk.pcm) - heard < 0.7 * BYTES_PER_S
        assert talk.errors == []


async def test_pipecat_turns_follow_each_other_however_fast_they_come(fake_gateway: str) -> None:
    async with pipecat_turns.talking(service(fake_gateway)) as talk:
        await talk.say("One of them.")
        await talk.say("And another.")
        await talk.until_stopped(2)
        assert talk.errors == []


async def test_pipecat_is_told_why_it_is_refused(keyed_gateway: str, full_gateway: str) -> None:
    for url, why in ((keyed_gateway, "HTTP 401): this API key"), (full_gateway, "HTTP 503): all sessions")):
        async with pipecat_turns.talking(service(url, "wrong")) as talk:
            await talk.until(lambda: talk.errors)
            assert why in talk.errors[0].error


async def test_pipecat_over_http(fake_gateway: str, keyed_gateway: str, full_gateway: str) -> None:
    async with aiohttp.ClientSession() as session:
        made = DeepgramHttpTTSService(api_key="any", base_url=fake_gateway, aiohttp_session=session)
        async with pipecat_turns.talking(made) as talk:
            for turn in (1, 2):
                await talk.begin()
                await talk.write(*TOKENS)
                await talk.end()
                await talk.until(lambda: talk.seconds >= turn * LAST_S)  # noqa: B023 - awaited here
            await talk.say(LONG)
            await until_working(fake_gateway, True)
            await talk.interrupt()
            await until_working(fake_gateway, False)
            assert talk.errors == []
        for url, status in ((keyed_gateway, "401"), (full_gateway, "503")):
            made = DeepgramHttpTTSService(api_key="wrong", base_url=url, aiohttp_session=session)
            async with pipecat_turns.talking(made) as talk:
                await talk.say(TEXT)
                await talk.until(lambda: talk.errors)
                assert f"HTTP {status}" in talk.errors[0].error


# ---- Flux, the second WebSocket -----------------------------------------------------------------------------------


async def receive_turn(socket: Any) -> tuple[bytes, Any]:
    """Audio up to the message that ends a turn, and that message."""
    pcm = b""
    while True:
        message = await asyncio.wait_for(socket.recv(), 60)
        assert not isinstance(message, SpeakV2Error), message
        if isinstance(message, SpeakV2SpeechMetadata | SpeakV2SpeechInterrupted):
            return pcm, message
        pcm += message if isinstance(message, bytes) else b""


async def test_flux_sdk_speaks_is_interrupted_and_goes_on(fake_gateway: str) -> None:
    client = AsyncDeepgramClient(api_key="any", environment=environment(fake_gateway))
    async with client.speak.v2.connect(model="flux-haley-en", sample_rate=24_000) as socket:
        for token in TOKENS:
            await socket.send_speak(SpeakV2Speak(text=token))
        await socket.send_flush()
        pcm, ended = await receive_turn(socket)
        assert len(pcm) == ended.audio_duration_ms * BYTES_PER_S / 1000 >= LAST_S * BYTES_PER_S
        begin_ms = ended.audio_duration_ms
        await socket.send_configure(SpeakV2Configure(speed=1.5))
        await socket.send_speak(SpeakV2Speak(text=LONG))
        await until_working(fake_gateway, True)
        offset = SpeakV2InterruptPlaybackOffset(value=begin_ms + 400)
        await socket.send_interrupt(SpeakV2Interrupt(playback_offset=offset))
        _, interrupted = await receive_turn(socket)
        assert isinstance(interrupted, SpeakV2SpeechInterrupted)
        assert (interrupted.text_spoken or "") + (interrupted.text_remaining or "") == LONG
        await until_working(fake_gateway, False)
        await socket.send_speak(SpeakV2Speak(text="Next."))
        await socket.send_close()
        assert 0 < len((await receive_turn(socket))[0]) < 0.7 * BYTES_PER_S
        assert (await asyncio.wait_for(socket.recv(), 60)).type == "SessionMetadata"


@pytest.mark.parametrize("ended", [False, True])
async def test_flux_of_livekit(fake_gateway: str, keyed_gateway: str, ended: bool) -> None:
    async with livekit_turns.plugin(deepgram.TTSv2, base_url=fake_gateway + "/v2/speak", api_key="any") as tts:
        assert (await livekit_turns.speak(tts, TOKENS, livekit_turns.TOKEN_EVERY_S)).seconds >= LAST_S
        assert (await livekit_turns.whole(tts, TEXT)).seconds >= LAST_S
        async with livekit_turns.interrupted(tts, LONG, ended):
            await until_working(fake_gateway, True)
        assert 0 < (await livekit_turns.speak(tts, ["Next."])).seconds < 0.7
        await until_working(fake_gateway, False)
    async with livekit_turns.plugin(deepgram.TTSv2, base_url=keyed_gateway + "/v2/speak", api_key="wrong") as tts:
        with pytest.raises(APIStatusError) as refused:
            await livekit_turns.speak(tts, TOKENS)
    assert refused.value.status_code == 401


@pytest.mark.parametrize("ended", [False, True])
async def test_flux_of_pipecat(fake_gateway: str, ended: bool) -> None:
    address = fake_gateway.replace("http", "ws", 1) + "/v2/speak"
    settings = DeepgramFluxTTSService.Settings(voice="flux-haley-en")
    async with pipecat_turns.talking(DeepgramFluxTTSService(api_key="any", url=address, settings=settings)) as talk:
        await talk.begin()
        await talk.write(LONG)
        if ended:
            await talk.end()
        await talk.until_audio()
        await until_working(fake_gateway, True)
        await talk.interrupt()
        await until_working(fake_gateway, False)
        await talk.until(lambda: talk.of(InterruptionFrame))
        heard = len(talk.pcm)
        await talk.begin()
        await talk.write("Next.")
        await talk.end()
        await talk.until_stopped()
        assert 0 < len(talk.pcm) - heard < 0.7 * BYTES_PER_S
        await talk.begin()
        await talk.write(*TOKENS, every_s=0.01)
        await talk.end()
        await talk.until(lambda: len(talk.pcm) - heard >= LAST_S * BYTES_PER_S)
        assert talk.errors == []
