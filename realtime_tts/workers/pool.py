"""Worker processes of one host, each with its supervisor: which can be reached, and where.

After repeated losses of a device's workers, its next worker is announced to clients only after it has been ready for a
while (`recovery`), unless there is no other worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from realtime_tts.contract import frames
from realtime_tts.contract.watch import watch
from realtime_tts.errors import RealtimeTTSError
from realtime_tts.workers.recovery import DeviceReport, DeviceState, Recovery
from realtime_tts.workers.socket_directory import clear_leftovers
from realtime_tts.workers.supervisor import Supervisor, WorkerSpec

logger = logging.getLogger(__name__)

_CONNECT_S = 10.0  # by then every gateway has connected to a worker that was announced

# Fields of `Stats` that only grow while a worker lives.
COUNTED = ("busy_ms", "gap_ms", "opening_hits", "draft_hits", *frames.TextCounts.__annotations__)


class Workers(Protocol):
    """Keeper of worker processes, as seen by a client of the workers.

    Attributes:
        names: names of all workers, running or not.
        num_restarts: respawns since the start, failed ones included; never falls.
        totals: totals by the names in `COUNTED`, over all workers, lost ones included, as last reported.
        devices: state of each device.
        is_unloaded: the model is unloaded, or is being loaded again.
        on_ready: called with a name and the socket at which that worker takes clients.
        on_lost: called when that worker is gone, with the error if it could not be started.
        on_failed: called when a worker is no longer supervised, by an internal error.
    """

    names: list[str]
    is_unloaded: bool
    on_ready: Callable[[str, str], None]
    on_lost: Callable[[str, RealtimeTTSError | None], None]
    on_failed: Callable[[str], None]

    @property
    def num_restarts(self) -> int: ...

    @property
    def totals(self) -> dict[str, float]: ...

    @property
    def devices(self) -> list[DeviceReport]: ...

    async def start(self) -> None:
        """Begin; changes of the workers are reported through the callbacks."""
        ...

    async def stop(self) -> None:
        """End the workers started here."""
        ...

    def load(self) -> None:
        """Begin to load the model if it is unloaded."""
        ...

    def note_use(self, is_used: bool, now: float) -> bool:
        """Unload the model after a time without use. Called regularly by the only gateway; return True if the model is
        being unloaded now."""
        ...


@dataclasses.dataclass(eq=False, slots=True)
class _Device:
    """Supervisor of one device, with the record of its workers.

    num_lost: number of lost workers, ready or not. name: name of the device. is_announced: the worker is ready, and
        clients know its socket. announcement: pending call that announces it. has_failed: the last worker never
        became ready. was_announced: set when a worker is announced.
    """

    supervisor: Supervisor
    recovery: Recovery = dataclasses.field(default_factory=Recovery)
    num_lost: int = 0
    name: str = ""
    is_announced: bool = False
    has_failed: bool = False
    announcement: asyncio.TimerHandle | None = None
    was_announced: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)


class WorkerPool:
    """Workers started as children of this process.

    Args:
        specs: one per device.
        unload_after_s: time in seconds without use after which the model is unloaded; 0: never.
    """

    def __init__(self, specs: Sequence[WorkerSpec], unload_after_s: float = 0.0) -> None:
        self.names = [spec.name for spec in specs]
        self.totals: dict[str, float] = dict.fromkeys(COUNTED, 0)
        self.is_unloaded, self._used_s = False, math.inf
        self._unload_after_s = unload_after_s
        self.on_ready: Callable[[str, str], None] = lambda name, path: None
        self.on_lost: Callable[[str, RealtimeTTSError | None], None] = lambda name, error: None
        self.on_failed: Callable[[str], None] = lambda name: None
        self._replacing: asyncio.Task[None] | None = None
        self._counted: dict[str, frames.Stats] = {}  # part of the totals that the running worker has contributed
        self._has_counted = asyncio.Event()
        self._devices = [self._device(spec) for spec in specs]

    def _device(self, spec: WorkerSpec) -> _Device:
        supervisor = Supervisor(
            spec,
            on_stats=lambda stats: self._count(spec.name, stats),
            on_ready=lambda: self._ready(device),
            on_lost=lambda: self._lost(device),
            on_failed=lambda: self.on_failed(spec.name),
        )
        device = _Device(supervisor)
        return device

    @property
    def supervisors(self) -> list[Supervisor]:
        return [device.supervisor for device in self._devices]

    @property
    def num_restarts(self) -> int:
        return sum(max(0, supervisor.num_starts - 1) for supervisor in self.supervisors)

    @property
    def all_have_failed(self) -> bool:
        """True if each worker has been lost at least once."""
        return all(device.num_lost for device in self._devices)

    @property
    def devices(self) -> list[DeviceReport]:
        now = asyncio.get_running_loop().time()
        return [
            DeviceReport(device.supervisor.spec.name, device.name, _state(device, now), device.num_lost)
            for device in self._devices
        ]

    async def start(self) -> None:
        """Remove what killed gateways have left behind, then spawn every worker."""
        try:
            await asyncio.to_thread(clear_leftovers)
        except OSError as error:  # the start goes on without it
            logger.warning("leftovers could not be cleared away: %s", error)
        for supervisor in self.supervisors:
            supervisor.start()

    async def stop(self) -> None:
        if self._replacing is not None:
            self._replacing.cancel()
            await asyncio.wait([self._replacing])
        for device in self._devices:
            _cancel_announcement(device)
        await asyncio.gather(*(supervisor.stop() for supervisor in self.supervisors))

    def _count(self, name: str, stats: frames.Stats) -> None:
        counted = self._counted.get(name, frames.Stats())
        for field in COUNTED:
            self.totals[field] += getattr(stats, field) - getattr(counted, field)
        self._counted[name] = stats
        self._has_counted.set()

    def load(self) -> None:
        self._used_s = math.inf  # a model that is loaded again before the next `note_use` would be unloaded by that
        for supervisor in self.supervisors:
            supervisor.load()

    def note_use(self, is_used: bool, now: float) -> bool:
        is_changing = self.is_unloaded or (self._replacing is not None and not self._replacing.done())
        if is_used:
            self.load()
        if is_used or is_changing or not all(device.is_announced for device in self._devices):
            self._used_s = math.inf
            return False
        self._used_s = min(self._used_s, now)
        if not self._unload_after_s or now - self._used_s < self._unload_after_s:
            return False
        logger.info("nothing has used the model for %.0f s: it is unloaded", now - self._used_s)
        self.is_unloaded = True
        for supervisor in self.supervisors:
            supervisor.unload()
        return True

    def replace_all(self) -> None:
        """Begin to replace the workers one by one. Each ends when its contexts are closed; the next one follows when
        all gateways have connected to its successor. No effect while a replacement is under way."""
        if self._replacing is None or self._replacing.done():
            self._replacing = watch(self._replace_all(), "replace workers", lambda: None)

    async def _replace_all(self) -> None:
        for device in self._devices:
            supervisor = device.supervisor
            if supervisor.ready is None:
                continue  # its worker is being restarted anyway
            logger.info("worker %s is being replaced", supervisor.spec.name)
            num_clients = self._num_clients(device)
            device.was_announced.clear()
            supervisor.leave()
            await device.was_announced.wait()
            await self._until_connected(device, num_clients)
        logger.info("all workers have been replaced")

    def _num_clients(self, device: _Device) -> int:
        """Return the number of gateways that are connected to the device's worker, as last reported."""
        return self._counted.get(device.supervisor.spec.name, frames.Stats()).num_clients

    async def _until_connected(self, device: _Device, num_clients: int) -> None:
        """Wait until so many gateways are connected to the device's worker, or until some of them must have ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CONNECT_S):
                while self._num_clients(device) < num_clients:
                    self._has_counted.clear()
                    await self._has_counted.wait()

    # ---- reports of the supervisors ---------------------------------------------------------------------------------

    def _ready(self, device: _Device) -> None:
        loop = asyncio.get_running_loop()
        assert device.supervisor.ready is not None
        device.name = device.supervisor.ready.device
        device.has_failed = False
        wait_s = device.recovery.announce_after_s(loop.time())
        if wait_s and any(other.is_announced for other in self._devices):
            logger.warning("worker %s must stay ready for %.0f s first", device.supervisor.spec.name, wait_s)
            device.announcement = loop.call_later(wait_s, self._announce, device)
        else:
            self._announce(device)

    def _announce(self, device: _Device) -> None:
        _cancel_announcement(device)
        device.is_announced = True
        device.was_announced.set()
        self.on_ready(device.supervisor.spec.name, device.supervisor.clients_path)
        self.is_unloaded = False

    def _lost(self, device: _Device) -> None:
        supervisor = device.supervisor
        self._counted.pop(supervisor.spec.name, None)
        was_ready = device.is_announced or device.announcement is not None
        _cancel_announcement(device)
        device.is_announced = False
        device.was_announced.clear()
        if not supervisor.is_leaving:
            self.is_unloaded = False  # the next worker starts by itself
            self.load()
            device.num_lost += 1
            device.has_failed = not was_ready
            if was_ready:
                device.recovery.lost(asyncio.get_running_loop().time())
        self.on_lost(supervisor.spec.name, supervisor.start_error)
        if not any(other.is_announced for other in self._devices):
            for other in self._devices:
                if other.announcement is not None:  # an untrusted worker is better than none
                    self._announce(other)


def _cancel_announcement(device: _Device) -> None:
    """Cancel the pending announcement of its worker to clients."""
    if device.announcement is not None:
        device.announcement.cancel()
        device.announcement = None


def _state(device: _Device, now: float) -> DeviceState:
    supervisor = device.supervisor
    if supervisor.ready is not None:
        if supervisor.is_leaving:
            return DeviceState.UNLOADED if supervisor.is_unloaded else DeviceState.LEAVING
        return DeviceState.SERVING if device.is_announced else DeviceState.RECOVERING
    if device.has_failed or device.recovery.is_failing(now):
        return DeviceState.FAILED
    if supervisor.is_unloaded:
        return DeviceState.STARTING if supervisor.is_loading else DeviceState.UNLOADED
    if device.num_lost:
        return DeviceState.RESTARTING
    return DeviceState.LEAVING if supervisor.num_starts > 1 else DeviceState.STARTING
