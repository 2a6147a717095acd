"""Deepgram's Python package, unmodified."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
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
