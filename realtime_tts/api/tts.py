"""Speech in three lines: ``tts = TTS()``, ``for chunk in tts.generate("Hello"): …``. `AsyncTTS` is for asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from realtime_tts.api.async_tts import AsyncTTS, Chunk

__all__ = ["TTS", "AsyncTTS", "Chunk"]

T = TypeVar("T")


class TTS:
    """`AsyncTTS` for blocking code; loads when made. Arguments as there. May be shared between threads."""

    def __init__(self, model: str = "starter-voice", device: str | Sequence[str] = "auto", **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="realtime-tts", daemon=True)
        self._thread.start()
        self._closed = False
        try:
            self._tts = self._wait(_make(model, device, options))
        except BaseException:
            self._stop_loop()
            raise

    @property
    def sample_rate(self) -> int:
        """Of the chunks, Hz."""
        return self._tts.sample_rate

    @property
    def voices(self) -> list[str]:
        """As `AsyncTTS.voices`."""
        return self._tts.voices

    def add_voice(self, name: str, **recordings: Any) -> None:
        """As `AsyncTTS.add_voice`."""
        self._wait(self._tts.add_voice(name, **recordings))

    def remove_voice(self, name: str) -> None:
        """As `AsyncTTS.remove_voice`."""
        self._loop.call_soon_threadsafe(self._tts.remove_voice, name)

    def generate(self, text: str | Iterable[str], **options: Any) -> Iterator[Chunk]:
        """As `AsyncTTS.generate`; breaking out of the loop cancels at once."""
        chunks = self._tts.generate(text, **options)
        try:
            while True:
                try:
                    chunk: Chunk = self._wait(anext(chunks))  # type: ignore[arg-type]
                except StopAsyncIteration:
                    return
                yield chunk
        finally:
            if not self._closed:
                self._wait(chunks.aclose())  # type: ignore[attr-defined]

    def close(self) -> None:
        """End the workers. Idempotent."""
        if not self._closed:
            self._wait(self._tts.close())
            self._stop_loop()

    def __enter__(self) -> TTS:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and hasattr(self, "_tts"):
            with contextlib.suppress(Exception):
                self.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(_run(work), self._loop)
        try:
            return future.result()
        except (KeyboardInterrupt, concurrent.futures.CancelledError):
            future.cancel()
            raise

    def _stop_loop(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _run(work: Coroutine[Any, Any, T]) -> T:
    """An async generator's step is awaitable, but no coroutine, as `run_coroutine_threadsafe` demands."""
    return await work


async def _make(model: str, device: str | Sequence[str], options: dict[str, Any]) -> AsyncTTS:
    tts = AsyncTTS(model, device, **options)
    await tts.start()
    return tts
