"""Process-wide settings of memory allocation and garbage collection, for short pauses and little memory."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import sys
from collections.abc import Awaitable, Callable

from realtime_tts.contract.heap import give_back, resident_bytes

_M_ARENA_MAX = -8  # from glibc's malloc.h
_MAX_ARENAS = 2
_TRIM_EVERY_S, _TRIM_EVERY_AT_MOST_S = 10.0, 80.0  # doubled after each trim that freed little
_WORTH_BYTES = 8 * 1024 * 1024


def limit_arenas() -> None:
    """Limit the heaps of malloc to two. Call it before threads are started. No effect without glibc.

    glibc gives threads separate heaps, up to eight for each core, and none returns memory that another thread has
    freed. Without the limit, contexts that a pool of threads encodes take a third more memory.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _MAX_ARENAS)


async def keep_heap_small(run: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
    """Return freed memory to the system regularly, until cancelled.

    glibc keeps freed memory: after a load peak, the process would keep the memory of the peak until it ends.

    Args:
        run: runs a function in a thread.
    """
    low, wait_s = resident_bytes(), _TRIM_EVERY_S
    while True:
        await asyncio.sleep(wait_s)
        before = resident_bytes()
        if before > low + _WORTH_BYTES:
            await run(_trim)
            was_worth = resident_bytes() < before - _WORTH_BYTES
            wait_s = _TRIM_EVERY_S if was_worth else min(2 * wait_s, _TRIM_EVERY_AT_MOST_S)
        low = min(low, resident_bytes())


def _trim() -> None:
    """Collect garbage and return free memory. Takes 10 to 30 ms, in which allocations of other threads may block."""
    gc.collect()  # closed sessions may be in reference cycles
    give_back()


def settle_heap() -> None:
    """Exclude all objects so far from garbage collection: a full collection blocked the process for 50 ms or more."""
    gc.collect()
    gc.freeze()
