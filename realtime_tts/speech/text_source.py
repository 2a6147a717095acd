"""Text as callers pass it (a string, an iterable, an async iterable), read piece by piece while it is spoken."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from realtime_tts.speech.speaker import Speaker
from realtime_tts.text.pause_planner import PausePlanner

TextLike: TypeAlias = str | Iterable[str | None] | AsyncIterable[str | None]  # None: a delta without text, as LLMs send
_PIECES_AHEAD = 64  # that a blocking iterable is read ahead of the planner


class TextSource:
    """Reader of a text: `next` returns the next piece with text, and None at the end; a time-out loses nothing.

    A plain iterable may block (an LLM client's stream), so a thread of its own reads it.

    Attributes:
        is_whole: all of the text is there from the start.
        whole_text: it, or nothing if it is not whole.

    Raises:
        TypeError: neither text nor something to iterate over.
    """

    def __init__(self, text: TextLike) -> None:
        pieces: AsyncIterator[object]
        self.is_whole = isinstance(text, (str, list, tuple))
        pieces_there = [text] if isinstance(text, str) else text if isinstance(text, (list, tuple)) else []
        self.whole_text = "".join(piece for piece in pieces_there if isinstance(piece, str))
        if isinstance(text, (str, list, tuple)):
            pieces = _whole([text] if isinstance(text, str) else text)
        elif isinstance(text, (bytes, bytearray, memoryview)):
            raise _no_text(text)
        elif isinstance(text, AsyncIterable):
            pieces = aiter(text)
        elif isinstance(text, Iterable):
            pieces = _threaded(text)
        else:
            raise _no_text(text)
        self._pieces = pieces
        self._pending: asyncio.Future[str | None] | None = None

    async def next(self, wait_s: float | None) -> str | None:
        """Raises TimeoutError after `wait_s` seconds without a piece, TypeError for a piece that is no text,
        and whatever the iterable raises."""
        if self._pending is None:
            self._pending = asyncio.ensure_future(self._advance())
        done, _ = await asyncio.wait([self._pending], timeout=wait_s)
        if not done:
            raise TimeoutError
        piece, self._pending = self._pending.result(), None
        return piece

    async def _advance(self) -> str | None:
        async for piece in self._pieces:
            if piece is not None and not isinstance(piece, str):
                raise _no_text(piece)
            if piece:
                return piece
        return None

    async def close(self) -> None:
        """Stop reading."""
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.gather(self._pending, return_exceptions=True)
        close = getattr(self._pieces, "aclose", None)
        if close is not None:
            await close()


def _no_text(value: object) -> TypeError:
    return TypeError(f"text must be str, or yield str or None, not {type(value).__name__}")


async def speak_text(source: TextSource, planner: PausePlanner, speaker: Speaker) -> None:
    """Plan a text as it comes and hand its segments to a speaker, not far ahead of what the engine takes.

    Of a live planner's segments, those that are given again are extended.

    What the text or the engine raises, the speaker's reader gets after the speech before it.
    """
    clock = asyncio.get_running_loop().time
    delta: str | None = ""
    num_segments = 0
    try:
        while delta is not None:
            deadline_s = planner.next_deadline()
            try:
                delta = await source.next(None if deadline_s is None else max(0.0, deadline_s - clock()))
            except TimeoutError:
                segments = planner.tick(clock())
            else:
                segments = planner.end(clock()) if delta is None else planner.push(delta, clock())
            for segment in segments:
                if segment.index < num_segments:
                    speaker.extend(segment)
                else:
                    speaker.add(segment)
                    num_segments += 1
            await speaker.drain()
        speaker.end()
    except Exception as error:
        speaker.end(error)
    finally:
        await source.close()


async def _whole(pieces: Iterable[object]) -> AsyncIterator[object]:
    for piece in pieces:
        yield piece


async def _threaded(pieces: Iterable[object]) -> AsyncIterator[object]:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[object] = asyncio.Queue()
    room = threading.Semaphore(_PIECES_AHEAD)
    stopped = threading.Event()

    def put(item: object) -> None:
        if not stopped.is_set() and not loop.is_closed():
            loop.call_soon_threadsafe(arrived.put_nowait, item)

    def read() -> None:
        try:
            for piece in pieces:
                room.acquire()
                if stopped.is_set():
                    return
                put(piece)
            put(_Ended(None))
        except BaseException as error:
            put(_Ended(error))

    threading.Thread(target=read, name="text", daemon=True).start()
    try:
        while not isinstance(item := await arrived.get(), _Ended):
            room.release()
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        room.release()


@dataclass(frozen=True)
class _Ended:
    """After the last piece; `error` is what the iterable raised."""

    error: BaseException | None
