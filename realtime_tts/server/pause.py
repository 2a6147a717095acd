"""A pause that an event ends early."""

from __future__ import annotations

import asyncio


async def pause(seconds: float, woken: asyncio.Event) -> None:
    """Sleep for so long, or until `woken` is set from now on. It may be set when this returns, whatever ended it.

    `asyncio.wait_for` does the same with a task for each wait.
    """
    woken.clear()
    timer = asyncio.get_running_loop().call_later(seconds, woken.set)
    try:
        await woken.wait()
    finally:
        timer.cancel()
