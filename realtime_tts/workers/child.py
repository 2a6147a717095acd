"""Child processes that somebody keeps: watched from several sides at once, and ended whatever state they are in."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any

Process = asyncio.subprocess.Process


async def until_one_ends(*parts: Coroutine[Any, Any, object]) -> None:
    """Run all as tasks until the first ends, and cancel the others. Raises what ended it."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def signal_child(process: Process, number: signal.Signals) -> None:
    """To one that has ended: nothing."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


async def end_child(process: Process, number: signal.Signals = signal.SIGKILL, patience_s: float | None = None) -> int:
    """Signal it, and kill what is still there `patience_s` later. Returns its exit status once it is gone."""
    signal_child(process, number)
    try:
        return await asyncio.wait_for(process.wait(), patience_s)
    except asyncio.TimeoutError:
        signal_child(process, signal.SIGKILL)
        return await process.wait()
