"""Sockets that do what no client should, each bounded in time and in what it sends, on loopback only."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit, urlunsplit

from websockets.frames import Frame, Opcode

MAX_FRAMES = 200_000  # of one connection
MAX_CONNECTIONS_PER_S = 20.0  # of one hostile
BATCH = 64  # frames in one write
LOUD = {"codec": "pcm_s16le", "sample_rate": 48_000}
SPEECH = "It takes a few seconds until all of this has been said. " * 20


class HostileSocket:
    """One connection, by hand: nothing is read or answered unless the hostile wants it."""

    def __init__(self, url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, end: float) -> None:
        self.url, self.reader, self.end = url, reader, end
        self._writer = writer
        self._num_frames = 0

    async def send(self, *messages: dict[str, object]) -> None:
        await self.write(*(Frame(Opcode.TEXT, json.dumps(message).encode()) for message in messages))

    async def write(self, *frames: Frame) -> None:
        """Raises TimeoutError at the end of the campaign, also where the server has stopped reading."""
        self._num_frames += len(frames)
        if self._num_frames > MAX_FRAMES:
            await asyncio.sleep(max(0.0, self.end - time.monotonic()))
        if time.monotonic() >= self.end:
            raise TimeoutError
        self._writer.write(b"".join(frame.serialize(mask=True) for frame in frames))
        await asyncio.wait_for(self._writer.drain(), max(0.001, self.end - time.monotonic()))

    async def read_some(self, seconds: float) -> bytes:
        data = b""
        with contextlib.suppress(TimeoutError):
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0 and (
                more := await asyncio.wait_for(self.reader.read(4096), left)
            ):
                data += more
        return data

    async def wait_to_the_end(self) -> None:
        """Hold the connection, without reading."""
        while time.monotonic() < self.end and not self.reader.at_eof():
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def hostile_socket(url: str, end: float) -> AsyncIterator[HostileSocket]:
    """Raise OSError while the server accepts no connection. Leave by RST."""
    parts = urlsplit(url)
    assert parts.hostname == "127.0.0.1", "hostile traffic stays on this machine"
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=4096)
    try:
        key = base64.b64encode(os.urandom(16)).decode()
        path = urlunsplit(parts._replace(scheme="", netloc=""))
        head = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        writer.write(f"{head}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        if b" 101 " not in answer.split(b"\r\n", 1)[0]:
            raise OSError("refused")
        yield HostileSocket(url, reader, writer, end)
    except asyncio.IncompleteReadError as error:
        raise OSError("closed") from error
    finally:
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


Attack = Callable[[HostileSocket], Awaitable[None]]


async def flushes_of_a_paused_context(hostile: HostileSocket) -> None:
    await hostile.send({"type": "text", "context_id": "c", "text": SPEECH})
    await hostile.send({"type": "playback", "context_id": "c", "played_ms": 0})
    for number in itertools.count():
        flush_id = "f" * (128 if number % 50 else 60_000)
        await hostile.send(
            *[{"type": "flush", "context_id": "c", "flush_id": flush_id}] * (BATCH if number % 50 else 1)
        )


async def unread_pongs(hostile: HostileSocket) -> None:
    await hostile.send({"type": "session.start"})
    while True:
        await hostile.send(*[{"type": "ping", "id": "p" * 128}] * BATCH)


async def ping_frames(hostile: HostileSocket) -> None:
    while True:
        await hostile.write(*[Frame(Opcode.PING, b"p" * 125)] * BATCH)


async def never_reading(hostile: HostileSocket) -> None:
    await hostile.send({"type": "session.start", "audio": LOUD})
    await hostile.send({"type": "text", "context_id": "c", "text": SPEECH}, {"type": "end", "context_id": "c"})
    await hostile.wait_to_the_end()


async def abort_at_once(hostile: HostileSocket) -> None:
    await hostile.send({"type": "text", "context_id": "c", "text": SPEECH})
    await hostile.read_some(0.02)


async def resume_and_abort(hostile: HostileSocket) -> None:
    """Its own session, over and over, on this connection and on new ones; everything is wanted again."""
    await hostile.send({"type": "session.start", "audio": LOUD}, {"type": "text", "context_id": "c", "text": SPEECH})
    data = await hostile.read_some(0.5)
    start = data.find(b'"session_id":"') + 14
    session_id = data[start : data.find(b'"', start)].decode()
    resume = {"type": "session.resume", "session_id": session_id, "contexts": {"c": -1}}
    for _ in range(50):
        async with hostile_socket(f"{hostile.url}?resume={session_id}", hostile.end) as again:
            await again.send(resume)
            await again.read_some(0.05)


async def tiny_contexts(hostile: HostileSocket) -> None:
    for number in itertools.count():
        name = "n" * 100 + str(number)
        await hostile.send(
            {"type": "text", "context_id": name, "text": "Hello. "}, {"type": "cancel", "context_id": name}
        )


async def fragments_of_nothing(hostile: HostileSocket) -> None:
    await hostile.write(Frame(Opcode.TEXT, b"{", fin=False))
    while True:
        await hostile.write(*[Frame(Opcode.CONT, b"", fin=False)] * BATCH)


async def messages_without_end(hostile: HostileSocket) -> None:
    await hostile.write(Frame(Opcode.TEXT, b" " * 250_000, fin=False))
    await hostile.wait_to_the_end()


async def blanks(hostile: HostileSocket) -> None:
    for number in itertools.count():
        texts = [{"type": "text", "context_id": f"c{n % 16}", "text": " " * 1200} for n in range(16)]
        await hostile.send(*texts)
        if number % 16 == 15:
            await hostile.send({"type": "cancel"})


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        flushes_of_a_paused_context,
        unread_pongs,
        ping_frames,
        never_reading,
        abort_at_once,
        resume_and_abort,
        tiny_contexts,
        fragments_of_nothing,
        messages_without_end,
        blanks,
    )
}


# Small messages of other services' addresses, each without end and without reading an answer.
FLOODS: dict[str, tuple[str, ...]] = {
    "/v2/speak": (
        '{"type":"Speak","text":"a"}',
        '{"type":"Flush"}',
        '{"type":"Interrupt","playback_offset":{"value":1e300}}',
        '{"type":"Configure"}',
    ),
    "/v1/jambonz": ('{"type":"stream","text":"a"}', '{"type":"flush"}'),
    "/v1/tts": (
        '{"type":"input_transcript","transcript":"a","extra":{"add_timestamps":true}}',
        '{"type":"session.flush"}',
        '{"type":"session.create"}',
    ),
}


def flood(messages: tuple[str, ...]) -> Attack:
    """One message at a time over and over, and then the next one on a new connection: each has limits of its own."""
    turns = itertools.cycle([*((message,) for message in messages), messages])

    async def attack(hostile: HostileSocket) -> None:
        frames = [Frame(Opcode.TEXT, message.encode()) for message in next(turns)]
        while True:
            await hostile.write(*frames * BATCH)

    return attack


ATTACKS |= {path: flood(messages) for path, messages in FLOODS.items()}


async def attack_until(url: str, attack: Attack, end: float) -> int:
    """One hostile: it comes back whenever it is thrown out. Returns how often it connected."""
    num_connections = 0
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            async with hostile_socket(url, end) as hostile:
                num_connections += 1
                await attack(hostile)
        await asyncio.sleep(1 / MAX_CONNECTIONS_PER_S)
    return num_connections
