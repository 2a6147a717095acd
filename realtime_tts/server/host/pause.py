"""A pause that an event ends early."""

from __future__ import annotations

import asyncio


async def pause(seconds: float, woken: asyncio.Event) -> None:
    """Sleep for `seconds`, or until `woken` is set after the call. `woken` is cleared first, and set on return.

    Unlike `asyncio.wait_for`, it creates no task.
    """
    woken.clear()
    timer = asyncio.get_running_loop().call_later(seconds, woken.set)
    try:
        await woken.wait()
    finally:
        timer.cancel()
