"""What the process as a whole is told, so that the event loop is prompt and memory small."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import sys
from collections.abc import Awaitable, Callable

from realtime_tts.workers.heap import give_back, resident_bytes

_M_ARENA_MAX = -8  # of glibc's malloc.h
_MAX_ARENAS = 2
_TRIM_EVERY_S, _TRIM_EVERY_AT_MOST_S = 10.0, 80.0  # the longer, the more often there was nothing to be had
_WORTH_BYTES = 8 * 1024 * 1024


def limit_arenas() -> None:
    """Let threads share what codecs allocate. Call it before threads are started; elsewhere than on glibc, nothing.

    glibc gives each thread a heap of its own, eight for each core, and none ever gives back what another has freed:
    contexts that come and go, encoded by a pool of threads, cost a third more memory without this.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _MAX_ARENAS)


async def keep_heap_small(
    run: Callable[[Callable[[], None]], Awaitable[None]],
    size: Callable[[], int] = resident_bytes,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Give back what was freed, for ever; `run` has a job done in a thread, `size` is that of the process in bytes.

    glibc keeps it: a wave of clients that has passed would cost as much as its peak until the process ends.
    """
    low, wait_s = size(), _TRIM_EVERY_S
    while True:
        await sleep(wait_s)
        before = size()
        if before > low + _WORTH_BYTES:
            await run(_trim)
            was_worth = size() < before - _WORTH_BYTES
            wait_s = _TRIM_EVERY_S if was_worth else min(2 * wait_s, _TRIM_EVERY_AT_MOST_S)
        low = min(low, size())


def _trim() -> None:
    """Takes 10 to 30 ms, in which other threads may have to wait for memory: nothing to do often."""
    gc.collect()  # sessions that are over may hold each other
    give_back()


def settle_heap() -> None:
    """Leave all that was loaded out of garbage collections: a full one held everything up for 50 ms and more."""
    gc.collect()
    gc.freeze()


def unsettle_heap() -> None:
    gc.unfreeze()
