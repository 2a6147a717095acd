"""Turns through a LiveKit TTS plugin, whosever it is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from livekit.agents import APIConnectOptions, tts
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT

ONCE = APIConnectOptions(max_retry=0, timeout=10)
TOKEN_EVERY_S = 0.01


@dataclass
class Heard:
    """What came out of one turn."""

    events: list[tts.SynthesizedAudio] = field(default_factory=list)

    @property
    def pcm(self) -> bytes:
        return b"".join(bytes(event.frame.data) for event in self.events)

    @property
    def seconds(self) -> float:
        return sum(event.frame.duration for event in self.events)

    @property
    def words(self) -> list[str]:
        pieces = [piece for event in self.events for piece in event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])]
        return [str(piece) for piece in pieces]


@contextlib.asynccontextmanager
async def plugin(make: type[Any], **options: Any) -> AsyncIterator[Any]:
    """A plugin outside of a job, where it must be given its HTTP session."""
    async with aiohttp.ClientSession() as session:
        made = make(http_session=session, **options)
        try:
            yield made
        finally:
            await made.aclose()


async def whole(made: tts.TTS, text: str) -> Heard:
    """Without streaming."""
    async with made.synthesize(text, conn_options=ONCE) as stream:
        return Heard([event async for event in stream])


async def speak(made: tts.TTS, tokens: Iterable[str], every_s: float = 0.0) -> Heard:
    """A turn of tokens, as a language model gives them."""
    async with made.stream(conn_options=ONCE) as stream:

        async def write() -> None:
            for token in tokens:
                stream.push_text(token)
                await asyncio.sleep(every_s)
            stream.end_input()

        _, events = await asyncio.gather(write(), _all(stream))
    return Heard(events)


async def stall(made: tts.TTS, before: str, after: str, seconds: float) -> Heard:
    """A turn whose text stops for a while."""
    async with made.stream(conn_options=ONCE) as stream:

        async def write() -> None:
            stream.push_text(before)
            await asyncio.sleep(seconds)
            stream.push_text(after)
            stream.end_input()

        _, events = await asyncio.gather(write(), _all(stream))
    return Heard(events)


@contextlib.asynccontextmanager
async def interrupted(made: tts.TTS, text: str, ended: bool) -> AsyncIterator[None]:
    """Inside, a turn is being heard: its text still comes, or it has `ended`. With the exit it is broken off."""
    stream = made.stream(conn_options=ONCE)
    for token in text.split(" "):
        stream.push_text(token + " ")
    if ended:
        stream.end_input()
    await anext(aiter(stream))
    yield
    if not ended:
        stream.push_text("and some more ")
    await stream.aclose()


async def _all(stream: Any) -> list[tts.SynthesizedAudio]:
    return [event async for event in stream]
