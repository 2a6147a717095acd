"""Cartesia's Python package, unmodified."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cartesia import APIStatusError as APIStatusErrorOfCartesia
from cartesia import AsyncCartesia, Cartesia
from vendor_gateways import API_KEY, gateway_figure, until_working
from websockets.exceptions import InvalidStatus

TOKENS = ["Hel", "lo ", "there, ", "this is ", "a turn. ", "And one ", "more."]
TEXT = "".join(TOKENS)
WORDS = TEXT.split()
LONG = "This one goes on and on, until somebody breaks it off. " * 8
RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
REQUEST: dict[str, Any] = {
    "model_id": "sonic-3",
    "voice": {"mode": "id", "id": "6ccbfb76-1fc6-48f7-b71d-91ac6298247b"},
    "output_format": RAW,
    "language": "en",
}
LAST_S = 2.6  # so long the fake voice speaks TEXT, and at least


def sdk(url: str, key: str = "any") -> AsyncCartesia:
    return AsyncCartesia(api_key=key, base_url=url, websocket_base_url=url.replace("http", "ws", 1))


async def receive(context: Any) -> tuple[bytes, list[str]]:
    """A context's audio and words, up to its end."""
    pcm, words = b"", []
    async for event in context.receive():
        assert event.type in ("chunk", "timestamps", "flush_done", "done"), event
        if event.type == "chunk":
            pcm += event.audio
        elif event.type == "timestamps":
            words += event.word_timestamps.words
    return pcm, words


async def test_sdk_speaks_deltas_and_the_next_turn_on_the_same_socket(fake_gateway: str) -> None:
    sessions = gateway_figure(fake_gateway, "sessions_opened_total")
    async with sdk(fake_gateway) as client, client.tts.websocket_connect() as socket:
        for _ in range(2):
            context = socket.context(**REQUEST, add_timestamps=True, timeout=10)
            for token in TOKENS:
                await context.push(token)
                await asyncio.sleep(0.01)
            await context.no_more_inputs()
            pcm, words = await receive(context)
            assert words == WORDS
            assert len(pcm) >= LAST_S * 48_000
    assert gateway_figure(fake_gateway, "sessions_opened_total") == sessions + 1


def test_the_synchronous_sdk_and_a_message_without_more(fake_gateway: str) -> None:
    address = fake_gateway.replace("http", "ws", 1)
    with Cartesia(api_key="any", base_url=fake_gateway, websocket_base_url=address) as client:
        socket = client.tts.websocket()
        socket.connect()
        answers = socket.send(
            model_id="sonic-3", transcript=TEXT, voice=REQUEST["voice"], output_format=RAW, add_timestamps=True
        )
        told = list(answers)
        socket.close()
    assert sum(len(answer.audio) for answer in told if answer.audio) >= LAST_S * 48_000
    assert [word for answer in told if answer.word_timestamps for word in answer.word_timestamps.words] == WORDS


async def test_sdk_turns_overlap_on_one_socket(fake_gateway: str) -> None:
    async with sdk(fake_gateway) as client, client.tts.websocket_connect() as socket:
        contexts = [socket.context(**REQUEST, add_timestamps=True, timeout=10) for _ in range(3)]
        for token in TOKENS:
            for context in contexts:
                await context.push(token)
        for context in contexts:
            await context.no_more_inputs()
        heard = await asyncio.gather(*map(receive, contexts))
    assert [words for _, words in heard] == [WORDS] * 3
    assert len({len(pcm) for pcm, _ in heard}) == 1


async def test_sdk_flushes_and_tells_audio_apart_by_them(fake_gateway: str) -> None:
    async with sdk(fake_gateway) as client, client.tts.websocket_connect() as socket:
        context = socket.context(**REQUEST, timeout=10)
        await context.push("Stay hungry, ")
        await context.push("", flush=True)
        await context.push("stay foolish.")
        await context.no_more_inputs()
        told = [(event.type, event.flush_id) async for event in context.receive() if event.type != "done"]
    first, second = told.index(("flush_done", 1)), len(told)
    assert set(told[:first]) == {("chunk", 1)}
    assert set(told[first + 1 : second]) == {("chunk", 2)}


@pytest.mark.parametrize("ended", [False, True])
async def test_sdk_interrupts(fake_gateway: str, ended: bool) -> None:
    async with sdk(fake_gateway) as client, client.tts.websocket_connect() as socket:
        context = socket.context(**REQUEST, timeout=10)
        await context.push(LONG)
        if ended:
            await context.no_more_inputs()
        await until_working(fake_gateway, True)
        await context.cancel()
        await until_working(fake_gateway, False)
        after = socket.context(**REQUEST, timeout=10)
        await after.push("Next.", continue_=False)
        assert (await receive(after))[0]


async def test_sdk_is_told_of_an_error_and_goes_on(fake_gateway: str) -> None:
    async with sdk(fake_gateway) as client, client.tts.websocket_connect() as socket:
        bad = socket.context(**{**REQUEST, "language": "xx"}, timeout=10)
        await bad.push("Hello.")
        [error] = [event async for event in bad.receive()]
        good = socket.context(**REQUEST, timeout=10)
        await good.push("Hello.", continue_=False)
        assert (await receive(good))[0]
    assert (error.type, error.status_code, error.error_code) == ("error", 400, "unsupported_language")
    assert "speaks en" in error.message


async def test_sdk_with_a_wrong_key_or_too_many_others(keyed_gateway: str, full_gateway: str) -> None:
    for url, key, status in ((keyed_gateway, "wrong", 401), (full_gateway, "any", 503)):
        async with sdk(url, key) as client:
            with pytest.raises(InvalidStatus) as refused:
                await client.tts.websocket_connect().enter()
            assert refused.value.response.status_code == status
    async with sdk(keyed_gateway, API_KEY) as client, client.tts.websocket_connect() as socket:
        context = socket.context(**REQUEST, timeout=10)
        await context.push("Hello.", continue_=False)
        assert (await receive(context))[0]


async def test_sdk_asks_for_bytes_and_files(fake_gateway: str) -> None:
    async with sdk(fake_gateway) as client:
        asked = {name: value for name, value in REQUEST.items() if name != "output_format"}
        raw = await (await client.tts.generate(**asked, output_format=RAW, transcript=TEXT)).read()
        mp3 = {"container": "mp3", "sample_rate": 44_100, "bit_rate": 128_000}
        file = await (await client.tts.generate(**asked, output_format=mp3, transcript=TEXT)).read()
    assert len(raw) >= LAST_S * 48_000
    assert len(file) >= LAST_S * 16_000


async def test_sdk_asks_for_events(fake_gateway: str) -> None:
    async with sdk(fake_gateway) as client:
        stream = await client.tts.generate_sse(**REQUEST, transcript=TEXT, add_timestamps=True, context_id="mine")
        told = [event async for event in stream]
    assert sum(len(event.audio) for event in told if event.type == "chunk") >= LAST_S * 48_000
    assert [word for event in told if event.type == "timestamps" for word in event.word_timestamps.words] == WORDS
    assert (told[-1].type, told[-1].context_id) == ("done", "mine")


async def test_sdk_stops_reading(fake_gateway: str) -> None:
    async with sdk(fake_gateway) as client:
        async with client.tts.with_streaming_response.generate(**REQUEST, transcript=LONG) as answer:
            reading = aiter(answer.iter_bytes())  # closes the answer when it is thrown away
            await anext(reading)
            await until_working(fake_gateway, True)
        await until_working(fake_gateway, False)


async def test_sdk_lists_voices(fake_gateway: str) -> None:
    async with sdk(fake_gateway) as client:
        voices = [voice async for voice in client.voices.list(limit=1)]
        assert {voice.id for voice in voices} == {"slt", "rms"}
        assert (await client.voices.get("rms")).description


async def test_sdk_over_http_with_a_wrong_key_or_too_many_others(keyed_gateway: str, full_gateway: str) -> None:
    for url, status in ((keyed_gateway, 401), (full_gateway, 503)):
        async with sdk(url, "wrong").with_options(max_retries=0) as client:
            with pytest.raises(APIStatusErrorOfCartesia) as refused:
                await client.tts.generate(**REQUEST, transcript=TEXT)
            assert refused.value.status_code == status
