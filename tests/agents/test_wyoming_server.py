"""The Wyoming server, driven by the protocol's own client: deltas, whole texts, voices, refusals, interruptions."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from server_environment import ROOT
from vendor_gateways import API_KEY, running_gateway, until_working, with_key
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.server import AsyncTcpServer
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

sys.path.insert(0, str(ROOT / "agents"))

from wyoming_server import SpeechHandler

TOKENS = ["Hel", "lo ", "there, ", "this is ", "a turn. ", "And one ", "more."]
LONG = "This one goes on and on, until somebody breaks it off. " * 8
LAST_BYTES = 2.4 * 48_000  # of the speech of TOKENS at least


@contextlib.asynccontextmanager
async def connected(url: str, api_key: str | None = None) -> AsyncIterator[AsyncTcpClient]:
    """A client of a server on a free port."""
    server = AsyncTcpServer("127.0.0.1", 0)
    tts_url = url.replace("http", "ws", 1)
    await server.start(lambda *streams: SpeechHandler(*streams, url=tts_url, api_key=api_key))
    assert server._server is not None
    try:
        async with AsyncTcpClient("127.0.0.1", server._server.sockets[0].getsockname()[1]) as client:
            yield client
    finally:
        server._server.close()
        await server.stop()


async def until(client: AsyncTcpClient, last: type[Any]) -> list[Event]:
    events: list[Event] = []
    async with asyncio.timeout(60):
        while not events or not last.is_type(events[-1].type):
            event = await client.read_event()
            assert event is not None, "the connection was closed"
            events.append(event)
    return events


def heard(events: list[Event]) -> int:
    """Bytes of audio between its start and its stop."""
    kinds = [event.type for event in events]
    assert AudioStart.is_type(kinds[0])
    assert AudioStop.is_type(kinds[-1])
    chunks = [AudioChunk.from_event(event) for event in events[1:-1]]
    assert {(chunk.rate, chunk.width, chunk.channels) for chunk in chunks} == {(24_000, 2, 1)}
    return sum(len(chunk.audio) for chunk in chunks)


async def say(client: AsyncTcpClient, *tokens: str) -> None:
    await client.write_event(SynthesizeStart(voice=SynthesizeVoice(name="rms")).event())
    for token in tokens:
        await client.write_event(SynthesizeChunk(token).event())
    await client.write_event(Synthesize("".join(tokens)).event())  # for servers without streaming
    await client.write_event(SynthesizeStop().event())


async def test_deltas_and_whole_texts_one_after_the_other(fake_gateway: str) -> None:
    async with connected(fake_gateway) as client:
        for _ in range(2):
            await say(client, *TOKENS)
            events = await until(client, SynthesizeStopped)
            assert heard(events[:-1]) >= LAST_BYTES
        await client.write_event(Synthesize("".join(TOKENS)).event())
        assert heard(await until(client, AudioStop)) >= LAST_BYTES


async def test_speech_begins_before_the_text_has_ended(fake_gateway: str) -> None:
    async with connected(fake_gateway) as client:
        await client.write_event(SynthesizeStart().event())
        await client.write_event(SynthesizeChunk("Hello there, this is spoken already. And ").event())
        await until(client, AudioChunk)
        await client.write_event(SynthesizeStop().event())
        await until(client, SynthesizeStopped)


async def test_voices_are_described(fake_gateway: str) -> None:
    async with connected(fake_gateway) as client:
        await client.write_event(Describe().event())
        [program] = Info.from_event((await until(client, Info))[-1]).tts
    assert program.supports_synthesize_streaming
    assert [(voice.name, voice.languages) for voice in program.voices] == [("slt", ["en"]), ("rms", ["en"])]


async def test_a_client_who_leaves_stops_the_speech(fake_gateway: str) -> None:
    async with connected(fake_gateway) as client:
        await client.write_event(Synthesize(LONG * 4).event())
        await until(client, AudioChunk)
    await until_working(fake_gateway, False)


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (Synthesize("Hello.", voice=SynthesizeVoice(name="nobody")).event(), "voice_not_found"),
        (Synthesize("a " * 30_000).event(), "text_too_long"),
        (Event("synthesize", {}), "invalid_message"),
        (Event("synthesize", {"text": 7}), "invalid_message"),
        (Event("synthesize", {"text": "Hello.", "voice": "rms"}), "invalid_message"),
        (Event("synthesize", {"text": "Hello.", "voice": {"name": ["rms"]}}), "invalid_request"),
    ],
)
async def test_what_cannot_be_is_an_error_and_the_connection_lives(fake_gateway: str, event: Event, code: str) -> None:
    async with connected(fake_gateway) as client:
        await client.write_event(event)
        assert Error.from_event((await until(client, Error))[-1]).code == code
        await say(client, "Hello.")
        assert AudioChunk.is_type((await until(client, SynthesizeStopped))[-3].type)


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b"\xff\n", b"{}\n", b"7\n", b"x" * 100_000, b'{"type":"describe","payload_length":9}\nabc']
)
async def test_what_is_no_event_closes_the_connection(fake_gateway: str, line: bytes) -> None:
    async with connected(fake_gateway) as client:
        assert client._writer is not None
        client._writer.write(line)
        client._writer.write_eof()
        assert await asyncio.wait_for(client.read_event(), 60) is None


async def test_the_key_is_the_servers() -> None:
    with running_gateway(with_key()) as url:
        for key, last in ((API_KEY, AudioStop), ("wrong", Error)):
            async with connected(url, key) as client:
                await client.write_event(Synthesize("Hello.").event())
                events = await until(client, last)
        assert Error.from_event(events[-1]).code == "unauthorized"


async def test_a_server_that_is_not_there_is_an_error() -> None:
    async with connected("http://127.0.0.1:9") as client:
        for event in (Synthesize("Hello.").event(), Describe().event()):
            await client.write_event(event)
            assert Error.from_event((await until(client, Error))[-1]).code == "connection_failed"
