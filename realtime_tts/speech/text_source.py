"""Reader of a text as callers pass it (a string, an iterable, an async iterable), piece by piece during speech."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from realtime_tts.contract.watch import end_tasks
from realtime_tts.speech.speaker import Speaker
from realtime_tts.text.markup import checking
from realtime_tts.text.planner import Planner, Planning, Segment

TextLike: TypeAlias = str | Iterable[str | None] | AsyncIterable[str | None]  # None: a delta without text, as LLMs send
# An HTTP answer's headers name the parts of the text that cannot be spoken, and leave with the first audio. So, of
# such a text, this many characters are planned before, in about 50 ms. OpenAI accepts no longer texts.
PLANNED_AHEAD_CHARS = 4096
_PIECE_CHARS = 64  # of text to plan before other tasks get their turn: 1 ms of work, in Chinese 2
_PIECES_AHEAD = 64  # pieces of a blocking iterable that are read ahead of the planner


class TextSource:
    """Reader of a text: `has_next` waits for the next piece with text, or the end, and `take` returns it.

    A plain iterable may block (an LLM client's stream), so it is read in a separate thread.

    Attributes:
        is_whole: the whole text is known from the start.
        whole_text: the text if it is whole, else "".

    Raises:
        TypeError: neither text nor something to iterate over.
    """

    def __init__(self, text: TextLike) -> None:
        whole = [text] if isinstance(text, str) else text if isinstance(text, (list, tuple)) else None
        self.is_whole = whole is not None
        self.whole_text = "".join(piece for piece in whole or () if isinstance(piece, str))
        self._pieces: AsyncIterator[object]
        if whole is not None:
            self._pieces = _whole(whole)
        elif isinstance(text, AsyncIterable):
            self._pieces = aiter(text)
        elif isinstance(text, Iterable) and not isinstance(text, (bytes, bytearray, memoryview)):
            self._pieces = _threaded(text)
        else:
            raise _no_text(text)
        self._pending: asyncio.Future[str | _Ended | None] | None = None

    async def has_next(self, wait_s: float | None) -> bool:
        """Wait until `take` can be called. Return False if that takes longer than `wait_s` seconds."""
        if self._pending is None:
            self._pending = asyncio.ensure_future(self._advance())
        done, _ = await asyncio.wait([self._pending], timeout=wait_s)
        return bool(done)

    def take(self) -> str | None:
        """Return the next piece with text; None at the end. Call it after `has_next` has returned True.

        Raises:
            TypeError: a piece is neither str nor None. RuntimeError: the iterable was cancelled.
            BaseException: the exception of the iterable, SystemExit included.
        """
        assert self._pending is not None
        pending, self._pending = self._pending, None
        if pending.cancelled():
            raise RuntimeError("the iteration of the text was cancelled")
        piece = pending.result()
        if isinstance(piece, _Ended):
            assert piece.error is not None
            raise piece.error
        return piece

    async def _advance(self) -> str | _Ended | None:
        try:
            async for piece in self._pieces:
                if piece is not None and not isinstance(piece, str):
                    raise _no_text(piece)
                if piece:
                    return piece
        except (KeyboardInterrupt, SystemExit) as error:  # raised in this task, it would end the event loop
            return _Ended(error)
        return None

    async def close(self) -> None:
        """Stop reading."""
        if self._pending is not None:
            await end_tasks(self._pending)
        close = getattr(self._pieces, "aclose", None)
        if close is not None:
            await close()


def _no_text(value: object) -> TypeError:
    return TypeError(f"text must be str, or yield str or None, not {type(value).__name__}")


async def check_whole(text: str, text_type: str) -> None:
    """Check the markup of a whole text. Raises BadSSML: the text is malformed SSML."""
    for _ in checking(text, text_type):
        await asyncio.sleep(0)


async def speak_text(
    source: TextSource,
    planner: Planner,
    speaker: Speaker,
    is_begun: asyncio.Event | None = None,
    on_segment: Callable[[Segment], None] = lambda segment: None,
) -> None:
    """Plan a text as it arrives and pass its segments to a speaker, a few ahead of the engine. Other tasks run while a
    long piece is planned.

    A segment that a live planner returns again extends the one before.

    With `is_begun`, the first `PLANNED_AHEAD_CHARS` are planned without waiting for the engine; then it is set.

    `on_segment` is called before each segment. Exceptions of it, the text, planning and the engine are raised to the
    speaker's reader, after the speech before them.
    """
    clock = asyncio.get_running_loop().time
    begun = is_begun or asyncio.Event()
    if is_begun is None:
        begun.set()
    delta: str | None = ""
    num_segments = 0
    try:
        while delta is not None:
            deadline_s = planner.next_deadline()
            if await source.has_next(None if deadline_s is None else max(0.0, deadline_s - clock())):
                delta = source.take()
                work = _work(delta, planner, clock())
            else:
                work = iter([planner.ticking(clock())])
            for stretches in work:
                for segments in stretches:
                    for segment in segments:
                        on_segment(segment)
                        if segment.index < num_segments:
                            speaker.extend(segment)
                        else:
                            speaker.add(segment)
                            num_segments += 1
                    if segments and segments[-1].end >= PLANNED_AHEAD_CHARS:
                        begun.set()
                    if begun.is_set():
                        await speaker.drain()
                    await asyncio.sleep(0)  # a stretch takes a millisecond
                await asyncio.sleep(0)  # most pieces of a text complete no segment
        speaker.end()
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        speaker.end(error)
    finally:
        begun.set()
        await source.close()


@contextlib.asynccontextmanager
async def speaking(speaker: Speaker, work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Context in which `work`, a call of `speak_text`, runs. After it, the task and the speaker have ended."""
    feeder = asyncio.create_task(work, name="plan speech")
    try:
        yield
    finally:
        speaker.close()  # first, so that no more speech is generated
        await end_tasks(feeder)


def _work(delta: str | None, planner: Planner, now: float) -> Iterator[Planning]:
    """Yield the steps of planning a piece of text or its end. The segments do not depend on the division."""
    for start in range(0, len(delta or ""), _PIECE_CHARS):
        yield planner.pushing((delta or "")[start : start + _PIECE_CHARS], now)
    if delta is None:
        yield planner.ending(now)


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
    """Mark after the last piece. `error`: the exception of the iterable."""

    error: BaseException | None
