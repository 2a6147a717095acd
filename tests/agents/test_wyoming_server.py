"""The Wyoming server, driven by the protocol's own client: deltas, whole texts, voices, refusals, interruptions."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import logging
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest
from server_environment import ROOT
from vendor_gateways import API_KEY, gateway_figure, running_gateway, until_figure, until_working, with_key
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
async def serving(url: str, api_key: str | None = None) -> AsyncIterator[tuple[AsyncTcpServer, int]]:
    """A server on a free port, and the port."""
    process = psutil.Process()
    num_files, server = process.num_fds(), AsyncTcpServer("127.0.0.1", 0)
    tts_url = url.replace("http", "ws", 1)
    await server.start(lambda *streams: SpeechHandler(*streams, url=tts_url, api_key=api_key))
    assert server._server is not None
    # Linux would buffer a minute of speech for a client that does not read.
    server._server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    try:
        yield server, server._server.sockets[0].getsockname()[1]
    finally:
        server._server.close()
        await server.stop()
        async with asyncio.timeout(60):
            while process.num_fds() > num_files:  # connections to the speech server whose last bytes are on their way
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def connected(url: str, api_key: str | None = None) -> AsyncIterator[AsyncTcpClient]:
    """A client of a server of its own."""
    async with serving(url, api_key) as (_, port), AsyncTcpClient("127.0.0.1", port) as client:
        yield client


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


@pytest.mark.parametrize("form", ["ws://{}", "{}", "ws://{}/v1/stream"])
async def test_voices_are_described(fake_gateway: str, form: str) -> None:
    async with connected(form.format(fake_gateway.removeprefix("http://"))) as client:
        await client.write_event(Describe().event())
        [program] = Info.from_event((await until(client, Info))[-1]).tts
    assert program.supports_synthesize_streaming
    assert [(voice.name, voice.languages) for voice in program.voices] == [("slt", ["en"]), ("rms", ["en"])]


async def test_a_client_that_leaves_stops_the_speech(fake_gateway: str) -> None:
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
        (Event("synthesize", {"text": "Hello.", "voice": {"name": ["rms"]}}), "invalid_message"),
    ],
)
async def test_an_invalid_event_is_an_error_and_the_connection_stays_open(
    fake_gateway: str, event: Event, code: str
) -> None:
    async with connected(fake_gateway) as client:
        await client.write_event(event)
        assert Error.from_event((await until(client, Error))[-1]).code == code
        await say(client, "Hello.")
        assert AudioChunk.is_type((await until(client, SynthesizeStopped))[-3].type)


async def test_after_a_whole_text_that_is_too_long_the_next_is_spoken(fake_gateway: str) -> None:
    async with connected(fake_gateway) as client:
        await client.write_event(Synthesize("a " * 30_000).event())
        await until(client, AudioStop)
        await client.write_event(Synthesize("Hello.").event())
        await until(client, AudioChunk)


async def test_a_refused_last_piece_is_an_error_and_the_rest_is_spoken() -> None:
    with running_gateway({"max_chars_per_minute": 600}) as url:
        async with serving(url) as (server, port), AsyncTcpClient("127.0.0.1", port) as client:
            await client.write_event(SynthesizeStart().event())
            for text in ("Hello. ", "a" * 600):
                await client.write_event(SynthesizeChunk(text).event())
            await until(client, AudioChunk)
            [handler] = server._handlers.values()
            async with asyncio.timeout(60):
                while not handler._context._refusal:
                    await asyncio.sleep(0.01)
            await client.write_event(SynthesizeStop().event())
            events = await until(client, SynthesizeStopped)
            assert [Error.from_event(event).code for event in events if Error.is_type(event.type)] == ["rate_limited"]
            await client.write_event(Synthesize("Hello.").event())
            await until(client, AudioChunk)


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b"\xff\n", b"{}\n", b"7\n", b"x" * 100_000, b'{"type":"describe","payload_length":9}\nabc']
)
async def test_a_malformed_event_closes_the_connection(fake_gateway: str, line: bytes) -> None:
    async with connected(fake_gateway) as client:
        assert client._writer is not None
        client._writer.write(line)
        client._writer.write_eof()
        assert await asyncio.wait_for(client.read_event(), 60) is None


# ---- hostile clients -------------------------------------------------------------------------------------------------

HUGE, DEEP = "1" + "0" * 400, "[" * 20_000
START, STOP = b'{"type":"synthesize-start"}\n', b'{"type":"synthesize-stop"}\n'
CHUNK = b'{"type":"synthesize-chunk","data":{"text":"Hello there, this is a turn. "}}\n'
WHOLE = b'{"type":"synthesize","data":{"text":"Hello there. "}}\n'
WRONG = ("7", HUGE, "1.5", "-1", "true", "null", "[]", "{}", '"x"', '"\\ud800"', "NaN", DEEP)


@contextlib.asynccontextmanager
async def beside_an_honest_client(url: str, caplog: pytest.LogCaptureFixture) -> AsyncIterator[int]:
    """Port of a server that speaks to another client before and after. The attacker leaves nothing behind."""
    async with serving(url) as (server, port), AsyncTcpClient("127.0.0.1", port) as honest:
        await honest.write_event(SynthesizeStart().event())
        await honest.write_event(SynthesizeChunk("Hello there, this is spoken already. And ").event())
        await until(honest, AudioChunk)
        yield port
        await honest.write_event(SynthesizeChunk("this is the rest of it.").event())
        await honest.write_event(SynthesizeStop().event())
        assert AudioChunk.is_type((await until(honest, SynthesizeStopped))[-3].type)
        async with asyncio.timeout(60):
            while len(server._handlers) > 1:
                await asyncio.sleep(0.02)
    await until_working(url, False, 60)
    assert until_figure(url, "sessions", 0, 60) == 0
    gc.collect()  # a task whose exception is not retrieved is logged then
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def answers(port: int, sent: bytes, ends: bool = True) -> list[Event]:
    """Send bytes, then the end unless the server has to close by itself; return its events up to its close."""
    events: list[Event] = []
    async with AsyncTcpClient("127.0.0.1", port) as client:
        assert client._writer is not None
        assert client._reader is not None
        client._writer.write(sent)
        if ends:
            client._writer.write_eof()
        with contextlib.suppress(ConnectionError):
            while (event := await asyncio.wait_for(client.read_event(), 60)) is not None:
                events.append(event)
    return events


@pytest.mark.parametrize("kind", ["describe", "synthesize", "synthesize-start", "synthesize-chunk"])
async def test_events_with_members_of_wrong_types(
    fake_gateway: str, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    before = START if kind == "synthesize-chunk" else b""
    heads = [f'{{"type":"{kind}",{member}' for member in ('"data":', '"data_length":', '"payload_length":')]
    heads += [
        f'{{"type":"{kind}","data":{{{member}'
        for member in ('"text":', '"text":"Hi.","text_format":', '"text":"Hi.","voice":')
    ]
    heads += [f'{{"type":"{kind}","data":{{"text":"Hi.","voice":{{"{name}":' for name in ("name", "language")]
    async with beside_an_honest_client(fake_gateway, caplog) as port:
        for head in heads:
            for wrong in WRONG:
                line = (head + wrong + "}" * head.count("{") + "\n").encode()
                await answers(port, before + line)


@pytest.mark.parametrize("member", ["data_length", "payload_length"])
async def test_an_event_that_is_too_large_closes_the_connection(
    fake_gateway: str, caplog: pytest.LogCaptureFixture, member: str
) -> None:
    async with beside_an_honest_client(fake_gateway, caplog) as port:
        for length in (str(2**24), str(2**64), HUGE):
            assert await answers(port, f'{{"type":"describe","{member}":{length}}}\n'.encode(), ends=False) == []
        nested = DEEP.encode()
        await answers(port, b'{"type":"describe","data_length":%d}\n%b' % (len(nested), nested), ends=False)


async def test_events_out_of_order(fake_gateway: str, caplog: pytest.LogCaptureFixture) -> None:
    async with beside_an_honest_client(fake_gateway, caplog) as port:
        for order in itertools.product((START, CHUNK, STOP, WHOLE), repeat=3):
            await answers(port, b"".join(order))


@pytest.mark.parametrize("text", ["\x00\x01\x1b[31m", "\u202e\u200b", "\u4f60\u597d", "\ud800", "..."])
async def test_a_text_of_no_letters_ends(fake_gateway: str, caplog: pytest.LogCaptureFixture, text: str) -> None:
    line = json.dumps({"type": "synthesize", "data": {"text": text}}).encode() + b"\n"
    async with beside_an_honest_client(fake_gateway, caplog) as port, AsyncTcpClient("127.0.0.1", port) as client:
        assert client._writer is not None
        client._writer.write(line)
        assert not [event for event in await until(client, AudioStop) if Error.is_type(event.type)]


@pytest.mark.parametrize("reads", [False, True])
async def test_a_client_that_hangs_up_at_any_point(
    fake_gateway: str, caplog: pytest.LogCaptureFixture, reads: bool
) -> None:
    sent = (START, CHUNK * 20, STOP, WHOLE, WHOLE, START)
    async with beside_an_honest_client(fake_gateway, caplog) as port:
        for num_sent in range(1, len(sent) + 1):
            async with unread(port, b"".join(sent[:num_sent])) as reader:
                if reads:
                    await asyncio.wait_for(reader.read(1), 60)


@pytest.mark.parametrize(
    "flood",
    [b'{"type":"describe"}\n' * 5000, WHOLE * 500, START * 500, START + CHUNK * 5000],
    ids=lambda data: data[9:20],
)
async def test_a_flood_that_is_not_read(fake_gateway: str, caplog: pytest.LogCaptureFixture, flood: bytes) -> None:
    async with beside_an_honest_client(fake_gateway, caplog) as port, unread(port, flood) as reader:
        await asyncio.wait_for(reader.read(1), 60)


async def test_a_client_that_does_not_read_is_closed(
    fake_gateway: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wyoming_server.SLOW_READER_S", 1.0)
    line = json.dumps({"type": "synthesize", "data": {"text": LONG * 40}}).encode() + b"\n"
    async with beside_an_honest_client(fake_gateway, caplog) as port:
        for flood in (line, line + WHOLE * 500, START + CHUNK * 5000):
            async with unread(port, flood) as reader:
                await asyncio.wait_for(reader.read(1), 60)
                assert await asyncio.to_thread(until_figure, fake_gateway, "sessions", 1, 60) == 1  # the honest one's


async def test_speech_that_is_never_read_is_not_made(fake_gateway: str, caplog: pytest.LogCaptureFixture) -> None:
    line = json.dumps({"type": "synthesize", "data": {"text": LONG * 40}}).encode() + b"\n"
    before = made = last = gateway_figure(fake_gateway, "audio_seconds_total")
    async with beside_an_honest_client(fake_gateway, caplog) as port, unread(port, line):
        async with asyncio.timeout(60):
            while made == before or made != last:
                last = made
                await asyncio.sleep(1)
                made = await asyncio.to_thread(gateway_figure, fake_gateway, "audio_seconds_total")
    assert made - before < 600  # of 1100 s, what fits into buffers


@contextlib.asynccontextmanager
async def unread(port: int, sent: bytes) -> AsyncIterator[asyncio.StreamReader]:
    """A connection with a small buffer for what it does not read. It ends with a reset."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.connect(("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=peer, limit=1024)
    writer.write(sent)
    try:
        yield reader
    finally:
        writer.transport.abort()


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
