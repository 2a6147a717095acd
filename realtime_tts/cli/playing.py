"""Transfer of speech to its sink, without waiting for playback before the next audio is generated."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar

from realtime_tts.audio.provenance import Provenance
from realtime_tts.cli.checks import nothing_to_say
from realtime_tts.cli.progress import Progress
from realtime_tts.cli.sinks import Sink, open_sink

Speech: TypeAlias = AsyncGenerator["tuple[int, bytes]", None]  # sample rate in Hz, s16le mono PCM
T = TypeVar("T")


async def play(
    speech: Speech,
    output: str | None,
    output_format: str | None,
    progress: Progress,
    provenance: Provenance | None = None,
) -> None:
    """Write or play all of the speech. If cancelled, the audio so far is kept as a complete file.

    Raises:
        ConfigError: there was no speech, or the sink cannot be opened.
        OSError: a write failed.
    """
    progress.start()
    writer = SinkWriter(output, output_format, progress, provenance)
    try:
        async with contextlib.aclosing(speech) as pieces:
            async for rate_hz, pcm in pieces:
                progress.made(len(pcm) / 2 / rate_hz)
                await writer.write(rate_hz, pcm)
        await writer.finish()
    finally:
        await writer.abort()
    progress.done(output)


class SinkWriter:
    """Opens a sink at the first samples, and calls it in a separate thread, one call after the other."""

    def __init__(
        self, output: str | None, output_format: str | None, progress: Progress, provenance: Provenance | None = None
    ) -> None:
        self._output, self._format, self._progress, self._provenance = output, output_format, progress, provenance
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sink")
        self._sink: Sink | None = None
        self._writes: collections.deque[asyncio.Future[None]] = collections.deque()

    async def write(self, rate_hz: int, pcm: bytes) -> None:
        """Queue samples (s16le mono) without waiting for the write. Raises the errors of earlier writes."""
        if self._sink is None:
            self._sink = await self._run(lambda: open_sink(self._output, self._format, rate_hz, self._provenance))
        sink = self._sink

        def write() -> None:
            sink.write(pcm)
            self._progress.written(len(pcm) / 2 / rate_hz)

        self._writes.append(self._run(write))
        while self._writes and self._writes[0].done():
            await self._writes.popleft()

    async def finish(self) -> None:
        """Write or play the rest, and close the sink.

        Raises:
            ConfigError: nothing was written.
        """
        if self._sink is None:
            raise nothing_to_say()
        while self._writes:
            await self._writes.popleft()
        await self._run(self._sink.close)
        self._sink = None

    async def abort(self) -> None:
        """Stop at once; no effect after `finish`."""
        for write in self._writes:
            write.cancel()
        await asyncio.gather(*self._writes, return_exceptions=True)
        if self._sink is not None:
            await self._run(self._sink.abort)
        self._thread.shutdown(wait=False)

    def _run(self, job: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, job)
