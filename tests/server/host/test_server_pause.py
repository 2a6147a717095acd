"""A pause ends after its time or when it is told to, and makes no task."""

from __future__ import annotations

import asyncio

from realtime_tts.server.host.pause import pause


async def test_a_pause_ends_after_its_time() -> None:
    woken = asyncio.Event()
    woken.set()  # before: that counts no more
    begun = asyncio.get_running_loop().time()
    await pause(0.05, woken)
    assert asyncio.get_running_loop().time() - begun >= 0.045


async def test_a_pause_ends_when_it_is_told_to_and_makes_no_task() -> None:
    woken, before = asyncio.Event(), len(asyncio.all_tasks())
    asyncio.get_running_loop().call_later(0.01, woken.set)
    pausing = asyncio.create_task(pause(3600, woken))
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before + 1
    await pausing
