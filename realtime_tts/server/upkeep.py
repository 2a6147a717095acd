"""Tasks that run as long as a gateway: lateness probes, use of the model, and changes by other processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

from realtime_tts.errors import InternalError
from realtime_tts.server.admission.lateness import IDLE_PROBE_EVERY_S, PROBE_EVERY_S, Pace
from realtime_tts.server.host.pause import pause
from realtime_tts.server.logs import log_crash, log_event

if TYPE_CHECKING:
    from realtime_tts.server.gateway import Gateway

_FOLLOW_EVERY_S = 2.0


async def probe_lateness(gateway: Gateway) -> None:
    """Measure lateness, which sets the pace of admission."""
    loop, lateness = asyncio.get_running_loop(), gateway.admission.lateness
    while True:
        due = loop.time() + PROBE_EVERY_S
        await asyncio.sleep(PROBE_EVERY_S)
        await gateway.encoders.run(lambda: None)
        pace = lateness.pace
        lateness.observe(loop.time() - due, loop.time())
        gateway.metrics.lateness.set(lateness.typical_s)
        gateway.metrics.late.set(lateness.pace is Pace.LATE)
        if lateness.pace is not pace:
            # Under load the pace may change between LATE and CAREFUL many times.
            level = logging.INFO if Pace.FREE in (pace, lateness.pace) else logging.DEBUG
            log_event("pace", level, is_now=lateness.pace.value, late_ms=1000 * lateness.typical_s)
        if lateness.is_calm and gateway.admission.is_idle:
            await pause(IDLE_PROBE_EVERY_S, gateway.admission.client_came)


async def follow_voices(gateway: Gateway) -> None:
    """Apply changes that other processes make in the voices directory, and remove expired temporary voices."""
    is_readable, stale = True, gateway.peers.voices_stale
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stale.wait(), _FOLLOW_EVERY_S)
        stale.clear()
        try:
            await gateway.voices.refresh()
            in_use = {voice for owner in gateway.admission.slots.owners for voice in owner.voices}
            await gateway.voices.expire(in_use, time.time())
        except InternalError as error:
            if is_readable:  # log once, not at every attempt
                log_crash("voices_unreadable", error.__cause__ or error, reason=error.message)
            is_readable = False
        else:
            if not is_readable:
                log_event("voices_readable")
            is_readable = True


async def watch_use(gateway: Gateway) -> None:
    """Unload an unused model, if no host process does."""
    while True:
        await asyncio.sleep(_FOLLOW_EVERY_S)
        gateway.engine.keeper.note_use(not gateway.admission.is_idle, asyncio.get_running_loop().time())


async def follow_adapters(gateway: Gateway) -> None:
    """Load and unload the adapters that peers load and unload."""
    while True:
        await gateway.adapters.follow(*await gateway.peers.adapter_changes.get())
