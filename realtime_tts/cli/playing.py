"""Transfer of speech to its sink, without waiting for playback before the next audio is generated; its progress."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import click

from realtime_tts.cli.checks import nothing_to_say
from realtime_tts.cli.sinks import Sink
from realtime_tts.contract.watch import end_tasks
from realtime_tts.text.skipped import describe_skipped


class Progress:
    """One line on stderr during speech, and a summary at the end.

    Args:
        output: where the speech goes, as in `open_sink`.

    Attributes:
        skipped: start and end of parts of the text that are not spoken; the summary reports them.
    """

    def __init__(self, output: str | None, shown: bool, summary: bool) -> None:
        self._output, self._shown, self._summary = output, shown, summary
        self.skipped: list[tuple[int, int]] = []
        self._begun = time.monotonic()
        self._first_s: float | None = None
        self._loaded_s: float | None = None
        self._made_s = self._written_s = 0.0

    def note(self, text: str) -> None:
        if self._shown:
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)

    def start(self) -> None:
        """Start the clock."""
        self._begun = time.monotonic()

    def loaded(self) -> None:
        """Restart the clock, which measured the loading of a model."""
        self._loaded_s = time.monotonic() - self._begun
        self.start()

    def made(self, duration_s: float) -> None:
        """Add speech that was generated, in seconds."""
        if self._first_s is None:
            self._first_s = time.monotonic() - self._begun
        self._made_s += duration_s
        self.note(f"{self._made_s:6.1f} s of speech")

    def written(self, duration_s: float) -> None:
        """Add speech that was written to the file or the speaker, in seconds."""
        self._written_s += duration_s

    def done(self) -> None:
        if self.skipped:
            self._summarise(f"Note: {describe_skipped(self.skipped)}")
        took_s = time.monotonic() - self._begun
        first_ms = 1000 * (self._first_s or 0.0)
        target = f" → {self._output}" if self._output not in (None, "-") else ""
        self._summarise(f"{self._made_s:.1f} s of speech in {took_s:.1f} s, the first after {first_ms:.0f} ms{target}")
        if self._loaded_s is not None:
            self._summarise(f"Loaded in {self._loaded_s:.1f} s; a running server answers at once: --url")

    def interrupted(self) -> None:
        if self._output is None:
            self._summarise("Interrupted.")
        elif self._written_s == 0:
            self._summarise("Interrupted before there was speech; nothing was written.")
        else:
            where = "were written" if self._output == "-" else f"are kept in {self._output}"
            self._summarise(f"Interrupted: {self._written_s:.1f} s of speech {where}.")

    def _summarise(self, text: str) -> None:
        if self._summary:
            self.note("")
            click.echo(text, err=True)


Speech: TypeAlias = AsyncGenerator["tuple[int, bytes]", None]  # sample rate in Hz, s16le mono PCM


async def play(speech: Speech, open_sink: Callable[[int], Sink], progress: Progress) -> None:
    """Write or play all of the speech. If cancelled, the audio so far is kept as a complete file.

    Args:
        open_sink: returns the sink for a sample rate in Hz.

    Raises:
        ConfigError: there was no speech, or the sink cannot be opened or written.
        BrokenPipeError: nothing reads the pipe any more.
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
                    sink = await loop.run_in_executor(thread, open_sink, rate_hz)
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
        await end_tasks(*writes)
        if sink is not None:
            await loop.run_in_executor(thread, sink.abort)
        thread.shutdown(wait=False)
    progress.done()
