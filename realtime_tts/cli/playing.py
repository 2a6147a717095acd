"""Transfer of speech to its sink, without waiting for playback before the next audio is generated."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from realtime_tts.audio.provenance import Provenance
from realtime_tts.cli.checks import nothing_to_say
from realtime_tts.cli.progress import Progress
from realtime_tts.cli.sinks import Sink, open_sink

Speech: TypeAlias = AsyncGenerator["tuple[int, bytes]", None]  # sample rate in Hz, s16le mono PCM


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
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, thread_name_prefix="sink")  # one call of the sink after the other
    sink: Sink | None = None
    writes: list[asyncio.Future[None]] = []

    def write(sink: Sink, rate_hz: int, pcm: bytes) -> None:
        sink.write(pcm)
        progress.written(len(pcm) / 2 / rate_hz)

    try:
        async with contextlib.aclosing(speech) as pieces:
            async for rate_hz, pcm in pieces:
                progress.made(len(pcm) / 2 / rate_hz)
                if sink is None:
                    sink = await loop.run_in_executor(thread, open_sink, output, output_format, rate_hz, provenance)
                writes.append(loop.run_in_executor(thread, write, sink, rate_hz, pcm))
                while writes and writes[0].done():
                    await writes.pop(0)
        if sink is None:
            raise nothing_to_say()
        while writes:
            await writes.pop(0)
        await loop.run_in_executor(thread, sink.close)
        sink = None
    finally:
        for pending in writes:
            pending.cancel()
        await asyncio.gather(*writes, return_exceptions=True)
        if sink is not None:
            await loop.run_in_executor(thread, sink.abort)
        thread.shutdown(wait=False)
    progress.done(output)
