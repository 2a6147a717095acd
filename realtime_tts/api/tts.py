"""Speech in three lines: ``tts = TTS()``, ``for chunk in tts.generate("Hello"): …``. `AsyncTTS` is for asyncio."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import dataclasses
import functools
import inspect
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Concatenate, ParamSpec, TypeVar

from realtime_tts.api.async_tts import AsyncTTS
from realtime_tts.api.request import taking
from realtime_tts.contract.watch import end_tasks
from realtime_tts.errors import EngineClosed, InvalidRequest

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[AsyncTTS, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[TTS, P], Generator[T, None, None]]:
    """Return the same method as a blocking generator."""

    @functools.wraps(method)
    def call(self: TTS, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        return self._iterate(method(self._tts, *args, **kwargs))

    # The signature shows the parameters but no return type, which would be an async generator.
    signature = inspect.signature(method).replace(return_annotation=inspect.Signature.empty)
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__doc__ = f"Same as `{method.__qualname__}`."
    call.__module__, call.__qualname__ = __name__, f"TTS.{method.__name__}"
    return call


def _waiting(method: Callable[Concatenate[AsyncTTS, P], Awaitable[T]]) -> Callable[Concatenate[TTS, P], T]:
    """Return the same method as a blocking one."""

    @functools.wraps(method)
    def call(self: TTS, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait(lambda: method(self._tts, *args, **kwargs))

    return call


_open: weakref.WeakSet[TTS] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close what the program did not close: after this point no thread runs that could do it."""
    for tts in list(_open):
        tts.close()


class TTS:
    """Blocking variant of `AsyncTTS` with the same arguments; loads the model when constructed. May be shared between
    threads."""

    @taking(AsyncTTS)
    def __init__(self, tts: AsyncTTS) -> None:
        self._tts = tts
        self._closed = False
        self._lock = threading.Lock()  # no call is given to the loop once it is being closed
        self._iterated: dict[AsyncGenerator[object, None], asyncio.Task[object] | None] = {}  # and their last steps
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="realtime-tts", daemon=True)
        self._thread.start()
        _open.add(self)
        try:
            self._wait(self._tts.start)
        except BaseException:
            self.close()
            raise

    @property
    def sample_rate(self) -> int:
        """Sample rate of the chunks, Hz."""
        return self._tts.sample_rate

    @property
    def device(self) -> str:
        """Same as `AsyncTTS.device`."""
        return self._tts.device

    @property
    def word_times(self) -> str:
        """Same as `AsyncTTS.word_times`."""
        return self._tts.word_times

    @property
    def voices(self) -> list[str]:
        """Same as `AsyncTTS.voices`."""
        return self._tts.voices

    add_voice = _waiting(AsyncTTS.add_voice)

    def remove_voice(self, name: str) -> None:
        """Same as `AsyncTTS.remove_voice`."""

        async def remove() -> None:
            self._tts.remove_voice(name)

        self._wait(remove)

    generate = _blocking(AsyncTTS.generate)
    generate_timed = _blocking(AsyncTTS.generate_timed)

    def _iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        self._iterated[items] = None

        async def step() -> T:
            self._iterated[items] = asyncio.current_task()
            return await anext(items)

        async def end() -> None:
            if (last := self._iterated[items]) is not None:
                await end_tasks(last)  # a signal's handler may have raised during it
            await items.aclose()
            del self._iterated[items]

        try:
            while True:
                try:
                    item = self._wait(step)
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if self._is_own_thread:
                del self._iterated[items]  # then asyncio closes it
            else:
                with contextlib.suppress(EngineClosed):
                    self._wait(end)

    def close(self) -> None:
        """End the workers; generations running in other threads end with EngineClosed. Idempotent."""
        if self._is_own_thread:
            threading.Thread(target=self.close, name="realtime-tts close").start()
            return
        if not self._thread.is_alive():  # closed, or in a process that was forked after the start
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def _is_own_thread(self) -> bool:
        """True in the loop's thread, which must not wait for itself: the garbage collector may run there, and ends
        what the program has dropped."""
        return threading.current_thread() is self._thread

    async def _shut_down(self) -> None:
        """Close, and answer every call that waits for the loop before it stops."""
        await self._tts.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for items in list(self._iterated):
            await items.aclose()

    def __enter__(self) -> TTS:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            with contextlib.suppress(Exception):
                self.close()

    def _wait(self, start: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine on the loop and wait for its result.

        Raises:
            EngineClosed: closed before or during the call, or started in another process.
            InvalidRequest: called in the thread that runs the model, which would wait for itself.
        """
        if self._is_own_thread:
            raise InvalidRequest("a TTS cannot be called from its own `on_skipped` or asynchronous text")
        if not self._closed and not self._thread.is_alive():
            raise EngineClosed("this TTS was started before the fork of this process; start one in each process")
        with self._lock:
            if self._closed:
                raise EngineClosed("this TTS was closed")
            future = asyncio.run_coroutine_threadsafe(_run(start), self._loop)
        try:
            outcome = future.result()
        except concurrent.futures.CancelledError:
            raise EngineClosed("this TTS was closed") from None
        except BaseException:  # of the call, which has ended; or a signal's: Ctrl-C, the program's own handler
            future.cancel()
            raise
        if isinstance(outcome, _Exit):
            raise outcome.error
        return outcome


@dataclasses.dataclass(frozen=True)
class _Exit:
    error: BaseException


async def _run(start: Callable[[], Awaitable[T]]) -> T | _Exit:
    try:
        return await start()
    except (KeyboardInterrupt, SystemExit) as error:  # raised in a task, it would end the event loop
        return _Exit(error)
