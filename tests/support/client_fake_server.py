"""A realtime-tts server that does what a test's script says, over real sockets.

The script is a coroutine per connection; it reads the client's frames and writes what it likes. `Voice` is a script
that behaves: it speaks each context as a ramp, so that any lost or doubled sample shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import numpy as np
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

HEADER = struct.Struct(">BBHIIQ")
AUDIO = {"codec": "pcm_s16le", "sample_rate": 8000, "frame_ms": 20}
FRAME_SAMPLES = 160
LIMITS = {"resume_window_s": 60.0, "max_lead_s": 3.0}  # a busy machine may delay a reconnect


class Connection:
    """One accepted socket, seen from the server."""

    def __init__(self, socket: ServerConnection, index: int) -> None:
        self.socket = socket
        self.index = index
        self.received: list[dict[str, Any]] = []

    async def read(self, kind: str | None = None) -> dict[str, Any]:
        """The next message, or the next of that type."""
        while True:
            message = json.loads(await self.socket.recv())
            self.received.append(message)
            if kind is None or message["type"] == kind:
                return message

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def audio(self, sequence: int, frame: int, number: int = 1) -> None:
        """Packet `frame` of the ramp."""
        await self.socket.send(HEADER.pack(1, 1, 0, number, sequence, frame * FRAME_SAMPLES) + ramp(frame).tobytes())

    async def begin(self, session_id: str = "s1", **limits: float) -> dict[str, Any]:
        """Answers `session.start`."""
        start = await self.read("session.start")
        await self.started(session_id, **limits)
        return start

    async def started(self, session_id: str = "s1", **limits: float) -> None:
        about = {"session_id": session_id, "model": "m", "voice": "v", "audio": AUDIO, "params": {}}
        await self.send("session.started", **about, limits=LIMITS | limits)

    async def accept(self, context_id: str, number: int = 1) -> None:
        await self.send(
            "context.started", context_id=context_id, sequence=0, number=number, voice="v", seed=7, audio=AUDIO
        )

    async def done(self, context_id: str, sequence: int, num_frames: int = 0, characters: int = 0) -> None:
        audio_ms = num_frames * 20
        await self.send(
            "context.done",
            context_id=context_id,
            sequence=sequence,
            audio_ms=audio_ms,
            characters=characters,
            ttfa_ms=None,
        )

    async def cancelled(self, context_id: str, sequence: int, text: str = "", played_ms: float = 0.0) -> None:
        heard = {"played_ms": played_ms, "spoken_text": text, "spoken_chars": len(text)}
        await self.send("context.cancelled", context_id=context_id, sequence=sequence, **heard)

    async def cut(self) -> None:
        """As if the cable were pulled and the kernel told us: no close frame."""
        self.socket.transport.abort()
        await self.socket.wait_closed()

    async def until_closed(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self.read()


def ramp(frame: int) -> np.ndarray:
    return np.arange(frame * FRAME_SAMPLES, (frame + 1) * FRAME_SAMPLES).astype("<i2")


Script = Callable[[Connection], Awaitable[None]]


@contextlib.asynccontextmanager
async def scripted(*scripts: Script) -> AsyncIterator[tuple[str, list[Connection]]]:
    """Serves `scripts[i]` to connection i (the last one to all further ones). Yields the address and the connections.

    An exception in a script fails the test.
    """
    connections: list[Connection] = []
    failures: list[BaseException] = []

    async def handle(socket: ServerConnection) -> None:
        connection = Connection(socket, len(connections))
        connections.append(connection)
        try:
            await scripts[min(connection.index, len(scripts) - 1)](connection)
            await connection.until_closed()
        except ConnectionClosed:
            pass
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            failures.append(error)

    async with serve(handle, "127.0.0.1", 0, compression=None, close_timeout=1) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"ws://127.0.0.1:{port}", connections
    if failures:
        raise failures[0]


class Voice:
    """A well-behaved server: contexts are spoken as ramps of `num_frames` packets when they end.

    It keeps sessions over connections, resumes them, and cuts the connection when it has sent as many packets as
    `cuts` says, one after the other.
    """

    def __init__(self, num_frames: int = 20, cuts: tuple[int, ...] = ()) -> None:
        self.num_frames = num_frames
        self.cuts = list(cuts)
        self.texts: dict[str, str] = {}
        self.ended: set[str] = set()
        self.numbers: dict[str, int] = {}
        self.cancelled: set[str] = set()
        self.num_resumes = 0

    async def __call__(self, connection: Connection) -> None:
        while True:
            await self.handle(connection, await connection.read())

    async def handle(self, connection: Connection, message: dict[str, Any]) -> None:
        kind, context_id = message["type"], message.get("context_id", "")
        if kind == "session.start":
            await connection.started()
        elif kind == "session.resume":
            await self.resume(connection, message)
        elif kind == "text":
            if context_id not in self.texts:
                self.texts[context_id] = ""
                self.numbers[context_id] = len(self.numbers) + 1
                await connection.accept(context_id, self.numbers[context_id])
            self.texts[context_id] += message["text"]
        elif kind == "end":
            self.ended.add(context_id)
            await self.speak(connection, context_id, 0)
        elif kind == "cancel":
            self.cancelled.add(context_id)
            heard = {"played_ms": 1.0, "spoken_text": "", "spoken_chars": 0}
            await connection.send("cancel.acknowledged", context_id=context_id, state="done", **heard)

        elif kind == "hold":
            heard = {"played_ms": message["played_ms"], "spoken_text": "", "spoken_chars": 0, "timeout_s": 30}
            await connection.send("context.held", context_id=context_id, **heard)
        elif kind == "release":
            await connection.send("context.released", context_id=context_id, from_ms=0.0)

    async def speak(self, connection: Connection, context_id: str, last_sequence: int) -> None:
        for frame in range(last_sequence, self.num_frames):
            await connection.audio(frame + 1, frame, self.numbers[context_id])
            if self.cuts:
                self.cuts[0] -= 1
                if self.cuts[0] <= 0:
                    self.cuts.pop(0)
                    await asyncio.sleep(0.02)
                    await connection.cut()
        length = len(self.texts[context_id])
        await connection.done(context_id, self.num_frames + 1, self.num_frames, length)

    async def resume(self, connection: Connection, message: dict[str, Any]) -> None:
        self.num_resumes += 1
        found = [
            {
                "context_id": context_id,
                "state": "open" if context_id in self.texts else "unknown",
                "number": self.numbers.get(context_id, 0),
                "received_chars": len(self.texts.get(context_id, "")),
                "ended": context_id in self.ended,
                "num_flushes": 0,
            }
            for context_id in message["contexts"]
        ]
        await connection.send("session.resumed", session_id="s1", contexts=found)
        for context_id, last in message["contexts"].items():
            if context_id in self.texts and last < 0:
                await connection.accept(context_id, self.numbers[context_id])
            if context_id in self.ended:
                await self.speak(connection, context_id, max(last, 0))
