"""Caller of the Realtime server with OpenAI's own client: sends audio as a microphone does, and keeps what comes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from bot_serving import listening
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter
from realtime_server.connection import Connection, Parts
from realtime_server.ear import IsSpeech, Samples
from realtime_server.models import ScriptedModel
from realtime_server.server import Server

RATE_HZ = 24_000
SILENCE = np.zeros(RATE_HZ // 10, np.int16)
SERVER_EVENT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)


def sound(duration_ms: int) -> npt.NDArray[np.int16]:
    """Return noise that `by_loudness` takes for speech."""
    samples = np.random.default_rng(1).normal(0, 6_000, RATE_HZ * duration_ms // 1000)
    return samples.clip(-32_768, 32_767).astype(np.int16)


def by_loudness() -> IsSpeech:
    return lambda window: float(np.sqrt(np.mean(window**2)) > 0.05)


class Parrot:
    """Recogniser that hears `heard` one after the other; the last one again and again."""

    def __init__(self, *heard: str) -> None:
        self.heard = list(heard)
        self.num_samples: list[int] = []

    async def recognise(self, samples: Samples, language: str | None) -> str:
        self.num_samples.append(len(samples))
        return self.heard.pop(0) if len(self.heard) > 1 else self.heard[0]


class Caller:
    """One session. Each event that comes is checked by OpenAI's model of it, and kept in `events` as plain fields."""

    def __init__(self, connection: AsyncRealtimeConnection, server: Server) -> None:
        self.connection, self.server = connection, server
        self.events: list[dict[str, Any]] = []
        self.is_over = False

    async def receive(self) -> None:
        with contextlib.suppress(Exception):  # the connection's end
            while True:
                raw = await self.connection.recv_bytes()
                SERVER_EVENT.validate_json(raw)
                self.events.append(SERVER_EVENT.validate_json(raw).to_dict())
        self.is_over = True

    @property
    def own(self) -> Connection:
        """The server's side."""
        return next(iter(self.server.connections))

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    def kinds(self) -> list[str]:
        """Return the types of the events, repeated ones once."""
        found = [event["type"] for event in self.events]
        return [kind for before, kind in zip(["", *found], found, strict=False) if kind != before]

    async def next(self, kind: str, number: int = 1) -> dict[str, Any]:
        """Return the event of a type with that number, once it has come."""
        await until(lambda: len(self.all(kind)) >= number or self.is_over)
        assert len(self.all(kind)) >= number, self.kinds()
        return self.all(kind)[number - 1]

    async def send(self, kind: str, **fields: Any) -> None:
        await self.connection.send({"type": kind, **fields})  # type: ignore[misc,arg-type]

    async def say(self, *parts: npt.NDArray[np.int16]) -> None:
        """Send audio as fast as it goes, in pieces of 100 ms."""
        samples = np.concatenate(parts)
        for start in range(0, len(samples), RATE_HZ // 10):
            piece = samples[start : start + RATE_HZ // 10].tobytes()
            await self.send("input_audio_buffer.append", audio=base64.b64encode(piece).decode())

    async def update(self, **session: Any) -> None:
        number = len(self.all("session.updated")) + 1
        await self.send("session.update", session={"type": "realtime", **session})
        await self.next("session.updated", number)

    @property
    def audio(self) -> bytes:
        return b"".join(base64.b64decode(event["delta"]) for event in self.all("response.output_audio.delta"))

    @property
    def transcript(self) -> str:
        return "".join(event["delta"] for event in self.all("response.output_audio_transcript.delta"))


async def until(condition: Callable[[], Any]) -> None:
    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(poll(), 90)


@contextlib.asynccontextmanager
async def serving(
    tts_url: str,
    *heard: str,
    key: str | None = None,
    allowed_origins: Iterable[str] = (),
    max_calls: int = 20,
    **parts: Any,
) -> AsyncIterator[tuple[str, Server]]:
    """Serve; yield the address of the API, and the server."""
    parts = {"model": ScriptedModel(100.0), "recogniser": Parrot(*heard), "silero": by_loudness, **parts}
    server = Server(tts_url, Parts(**parts), key=key, allowed_origins=allowed_origins, max_calls=max_calls)
    async with listening(server.application()) as host:
        yield f"ws://{host}/v1", server


@contextlib.asynccontextmanager
async def calling(url: str, server: Server, key: str = "any") -> AsyncIterator[Caller]:
    client = AsyncOpenAI(api_key=key, websocket_base_url=url)
    async with client.realtime.connect(model="voice") as connection:
        caller = Caller(connection, server)
        task = asyncio.create_task(caller.receive())
        try:
            await caller.next("session.created")
            yield caller
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    await client.close()
