"""Tasks that run as long as a gateway: lateness probes, freed memory, and changes by other processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

from realtime_tts.contract.watch import end_tasks, watch
from realtime_tts.errors import InternalError
from realtime_tts.server.admission.lateness import IDLE_PROBE_EVERY_S, PROBE_EVERY_S, Pace
from realtime_tts.server.host.heap import keep_heap_small
from realtime_tts.server.host.pause import pause
from realtime_tts.server.logs import log_crash, log_event

if TYPE_CHECKING:
    from realtime_tts.server.gateway import Gateway

_FOLLOW_EVERY_S = 2.0


class Upkeep:
    """Tasks of one gateway, which fails if a task ends with an exception."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway, self._admission, self._adapters = gateway, gateway.admission, gateway.adapters
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks that need no engine."""
        self._tasks += [
            watch(self._probe_lateness(), "probe lateness", self._gateway.fail),
            watch(keep_heap_small(self._gateway.encoders.run), "keep heap small", self._gateway.fail),
        ]

    async def follow(self) -> None:
        """Load the adapters that peers have loaded so far, and follow all later changes of adapters and voices."""
        changes = self._gateway.peers.adapter_changes
        while not changes.empty():
            await self._adapters.follow(*changes.get_nowait())
        self._tasks += [
            watch(self._follow_adapters(), "follow adapters", self._gateway.fail),
            watch(self.follow_voices(), "follow voices", self._gateway.fail),
            watch(self._watch_use(), "watch use", self._gateway.fail),
        ]

    async def stop(self) -> None:
        await end_tasks(*self._tasks)

    # ---- tasks ---------------------------------------------------------------------------------------------------

    async def _probe_lateness(self) -> None:
        loop, lateness = asyncio.get_running_loop(), self._admission.lateness
        while True:
            due = loop.time() + PROBE_EVERY_S
            await asyncio.sleep(PROBE_EVERY_S)
            await self._gateway.encoders.run(lambda: None)
            pace = lateness.pace
            lateness.observe(loop.time() - due, loop.time())
            self._gateway.metrics.lateness.set(lateness.typical_s)
            self._gateway.metrics.late.set(lateness.pace is Pace.LATE)
            if lateness.pace is not pace:
                # Under load the pace may change between LATE and CAREFUL many times.
                level = logging.INFO if Pace.FREE in (pace, lateness.pace) else logging.DEBUG
                log_event("pace", level, is_now=lateness.pace.value, late_ms=1000 * lateness.typical_s)
            if lateness.is_calm and self._admission.is_idle:
                await pause(IDLE_PROBE_EVERY_S, self._admission.client_came)

    async def follow_voices(self) -> None:
        """Apply changes that other processes make in the voices directory, and remove expired temporary voices."""
        is_readable, stale = True, self._gateway.peers.voices_stale
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stale.wait(), _FOLLOW_EVERY_S)
            stale.clear()
            try:
                await self._gateway.voices.refresh()
                in_use = {voice for owner in self._admission.slots.owners for voice in owner.voices}
                await self._gateway.voices.expire(in_use, time.time())
            except InternalError as error:
                if is_readable:  # log once, not at every attempt
                    log_crash("voices_unreadable", error)
                is_readable = False
            else:
                if not is_readable:
                    log_event("voices_readable")
                is_readable = True

    async def _watch_use(self) -> None:
        """Unload an unused model, if no host process does."""
        while True:
            await asyncio.sleep(_FOLLOW_EVERY_S)
            self._gateway.engine.keeper.note_use(not self._admission.is_idle, asyncio.get_running_loop().time())

    async def _follow_adapters(self) -> None:
        while True:
            await self._adapters.follow(*await self._gateway.peers.adapter_changes.get())
