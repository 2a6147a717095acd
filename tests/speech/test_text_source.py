"""`TextSource`: whatever yields text, read no faster than it is wanted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from realtime_tts.speech.text_source import TextSource


async def test_a_time_out_of_the_text_loses_nothing() -> None:
    def slow() -> Iterator[str]:
        yield "a"
        time.sleep(0.2)
        yield "b"

    source = TextSource(slow())
    pieces: list[str] = []
    num_timeouts = 0
    while True:
        if not await source.has_next(0.05):
            num_timeouts += 1
        elif (piece := source.take()) is not None:
            pieces.append(piece)
        else:
            break
    await source.close()
    assert pieces == ["a", "b"]
    assert num_timeouts > 0


async def test_an_endless_text_is_read_only_a_little_ahead() -> None:
    num_read = 0

    def endless() -> Iterator[str]:
        nonlocal num_read
        while True:
            num_read += 1
            yield "x"

    source = TextSource(endless())
    assert await source.has_next(5)
    await asyncio.sleep(0.1)
    await source.close()
    assert num_read < 100
