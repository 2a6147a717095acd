"""Wyoming server for Home Assistant: events over TCP, spoken by a realtime-tts server.

Text is spoken while it is still being written. A connection has one speech at a time; to close it stops the speech.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any, cast

import aiohttp
from realtime_tts_client import AudioFormat, Context, RealtimeTTSError, Session, connect
from realtime_tts_client.handshake import stream_url
from realtime_tts_client.voices import voices_url
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.server import AsyncEventHandler, AsyncServer
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped

RATE_HZ = 24_000
_MAX_PART_BYTES = 256 * 1024  # of an event: the longest text and more
SLOW_READER_S = 10.0  # as the server's own limit for a peer that reads nothing
_MADE_BY = Attribution("realtime-tts", "")
_FORMAT = {"rate": RATE_HZ, "width": 2, "channels": 1}
_logger = logging.getLogger(__name__)


class _BoundedReader:
    """Reader of a connection, without parts of events that are too large: they would be collected in memory."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.readline, self.feed_eof = reader.readline, reader.feed_eof

    async def readexactly(self, num_bytes: int) -> bytes:
        if num_bytes > _MAX_PART_BYTES:
            raise ValueError(f"a part of an event has at most {_MAX_PART_BYTES} bytes, got {num_bytes}")
        return await self._reader.readexactly(num_bytes)


class SpeechHandler(AsyncEventHandler):
    """One connection of a client.

    Args:
        url, api_key: the realtime-tts server, in any form that `connect` takes, and its key, or None.
    """

    def __init__(self, reader: Any, writer: asyncio.StreamWriter, *, url: str, api_key: str | None) -> None:
        super().__init__(cast(asyncio.StreamReader, _BoundedReader(reader)), writer)
        self._url, self._api_key = url, api_key
        self._context: Context | None = None  # takes text
        self._playing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve the connection until it is closed, or carries what is no event."""
        with contextlib.suppress(ConnectionError, EOFError, KeyError, RecursionError, TypeError, ValueError):
            await super().run()
        self.writer.transport.abort()  # what is left in its buffer has no reader

    async def write_event(self, event: Event) -> None:
        """Write an event. A connection that accepts no data for `SLOW_READER_S` is closed, which ends its speech."""
        try:
            async with asyncio.timeout(SLOW_READER_S):
                await super().write_event(event)
        except TimeoutError:
            _logger.info("slow_consumer: a client accepted no data for %g s; its connection is closed", SLOW_READER_S)
            self.writer.transport.abort()
            raise ConnectionResetError("the client does not read") from None

    async def handle_event(self, event: Event) -> bool:
        try:
            await self._handle(event)
        except RealtimeTTSError as error:
            await self._refuse(error.code, str(error))
        except aiohttp.ClientError as error:
            await self._refuse("connection_failed", f"the realtime-tts server does not list its voices: {error}")
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            await self._refuse("invalid_message", f"{event.type} lacks a field, or has one of another type: {error}")
        return True

    async def _handle(self, event: Event) -> None:
        if Describe.is_type(event.type):
            await self.write_event((await self._describe()).event())
        elif SynthesizeStart.is_type(event.type):
            await self._begin(event.data, is_streamed=True)
        elif SynthesizeChunk.is_type(event.type) and self._context is not None:
            await self._context.send(SynthesizeChunk.from_event(event).text)
        elif SynthesizeStop.is_type(event.type) and self._context is not None:
            await self._end()
        elif Synthesize.is_type(event.type) and self._context is None:  # else a copy of streamed text
            if not isinstance(text := Synthesize.from_event(event).text, str):
                raise TypeError("text is no string")
            context = await self._begin(event.data, is_streamed=False)
            try:
                await context.send(text)
            finally:
                await self._end()

    async def _begin(self, data: Mapping[str, Any], is_streamed: bool) -> Context:
        """Open a context, after the one before it was spoken."""
        if self._playing is not None:
            await self._end()
            await self._playing
        voice = data.get("voice") or {}
        params = {"language": voice["language"]} if voice.get("language") else {}
        params |= {"text_type": data["text_format"]} if data.get("text_format") else {}
        audio = AudioFormat("pcm_s16le", RATE_HZ)
        session = await connect(self._url, api_key=self._api_key, playback="consumed").__aenter__()
        try:
            self._context = context = session.speak(voice=voice.get("name"), audio=audio, params=params)
        except BaseException:
            await session.close()
            raise
        self._playing = asyncio.create_task(self._play(session, context, is_streamed))
        await asyncio.sleep(0)  # a task that is cancelled before its first step would not close the session
        return context

    async def _end(self) -> None:
        if (context := self._context) is not None:
            self._context = None
            try:
                await context.end()
            except RealtimeTTSError as error:  # the last piece was refused
                await self._refuse(error.code, str(error))

    async def _play(self, session: Session, context: Context, is_streamed: bool) -> None:
        """Send the audio of a speech, then close its session."""
        try:
            await self.write_event(AudioStart(**_FORMAT).event())
            async for packet in context:
                await self.write_event(AudioChunk(audio=packet.payload, **_FORMAT).event())
        except RealtimeTTSError as error:
            await self._refuse(error.code, str(error))
        finally:
            self._context = None if self._context is context else self._context
            await asyncio.shield(session.close())  # `disconnect` may cancel this task while it closes
        await self.write_event(AudioStop().event())
        if is_streamed:
            await self.write_event(SynthesizeStopped().event())

    async def _refuse(self, code: str, text: str) -> None:
        await self.write_event(Error(text=text, code=code).event())

    async def _describe(self) -> Info:
        headers = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        address = voices_url(stream_url(self._url))
        async with aiohttp.ClientSession(raise_for_status=True) as http, http.get(address, headers=headers) as answer:
            listed = (await answer.json())["voices"]
        voices = [
            TtsVoice(each["name"], _MADE_BY, True, each["description"], None, [each["language"] or "en"])
            for each in listed
        ]
        return Info(tts=[TtsProgram("realtime-tts", _MADE_BY, True, "realtime-tts", None, voices, True)])

    async def disconnect(self) -> None:
        if self._playing is not None:
            self._playing.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await self._playing


def main() -> None:
    options = argparse.ArgumentParser(description="Wyoming server for Home Assistant, spoken by realtime-tts.")
    options.add_argument("--uri", default="tcp://127.0.0.1:10200", help="where Home Assistant connects")
    options.add_argument("--tts-url", default=os.environ.get("REALTIME_TTS_URL", "ws://localhost:8000"))
    chosen = options.parse_args()
    api_key = os.environ.get("REALTIME_TTS_API_KEY")
    try:
        connect(chosen.tts_url, api_key=api_key)  # checks both, before any client's speech fails
    except ValueError as error:
        sys.exit(str(error))
    make = functools.partial(SpeechHandler, url=chosen.tts_url, api_key=api_key)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    _logger.info("listening on %s, speech by %s", chosen.uri, chosen.tts_url)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(AsyncServer.from_uri(chosen.uri).run(make))


if __name__ == "__main__":
    main()
