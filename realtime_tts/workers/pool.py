"""Worker processes of one host, each with its supervisor: which can be reached, and where.

After repeated losses of a device's workers, its next worker is announced to clients only after it has been ready for a
while (`recovery`), unless there is no other worker.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from collections.abc import Callable, Sequence

from realtime_tts.contract import frames
from realtime_tts.contract.watch import end_tasks, until, watch
from realtime_tts.errors import RealtimeTTSError
from realtime_tts.workers.recovery import DeviceReport
from realtime_tts.workers.socket_directory import clear_leftovers
from realtime_tts.workers.supervisor import Supervisor, WorkerSpec

logger = logging.getLogger(__name__)

_CONNECT_S = 10.0  # by then every gateway has connected to a worker that was announced

# Fields of `Stats` that only grow while a worker lives.
COUNTED = ("busy_ms", "gap_ms", "opening_hits", "draft_hits", *frames.TextCounts.__annotations__)


class Workers:
    """Keeper of worker processes, as seen by a client of the workers; this one has none.

    Attributes:
        names: names of all workers, running or not.
        totals: totals by the names in `COUNTED`, over all workers, lost ones included, as last reported.
        is_unloaded: the model is unloaded, or is being loaded again.
        on_ready: called with a name and the socket at which that worker takes clients.
        on_lost: called when that worker is gone.
        on_start_failed: called with the last worker's error when the start of each worker has failed, so that a server
            that has not served yet should end. Retries go on.
        on_failed: called when a worker is no longer supervised, by an internal error.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.totals: dict[str, float] = dict.fromkeys(COUNTED, 0)
        self.is_unloaded = False
        self.on_ready: Callable[[str, str], None] = lambda name, path: None
        self.on_lost: Callable[[str], None] = lambda name: None
        self.on_start_failed: Callable[[RealtimeTTSError], None] = lambda error: None
        self.on_failed: Callable[[str], None] = lambda name: None

    @property
    def num_restarts(self) -> int:
        """Number of respawns since the start, failed ones included; never falls."""
        return 0

    @property
    def devices(self) -> Sequence[DeviceReport]:
        """State of each device."""
        return ()

    async def start(self) -> None:
        """Begin; changes of the workers are reported through the callbacks."""

    async def stop(self) -> None:
        """End the workers started here."""

    def load(self) -> None:
        """Begin to load the model if it is unloaded."""

    def note_use(self, is_used: bool, now: float) -> None:
        """Unload the model after a time without use. Called regularly, by the only gateway or the host."""


class WorkerPool(Workers):
    """Workers started as children of this process.

    Args:
        specs: one per device.
        unload_after_s: time in seconds without use after which the model is unloaded; 0: never.

    Attributes:
        announced: supervisors whose worker is ready and announced to clients.
    """

    def __init__(self, specs: Sequence[WorkerSpec], unload_after_s: float = 0.0) -> None:
        super().__init__([spec.name for spec in specs])
        self._unload_after_s, self._used_s = unload_after_s, math.inf
        self._replacing: asyncio.Task[None] | None = None
        self.announced: set[Supervisor] = set()
        self._announcements: dict[Supervisor, asyncio.TimerHandle] = {}  # of ready workers that are not announced yet
        self.supervisors = [Supervisor(spec, self) for spec in specs]
        self._start_failed: set[Supervisor] = set()
        self._revision = ""  # of a model on the hub, once a worker is ready; all others read the same files

    @property
    def num_restarts(self) -> int:
        return sum(max(0, supervisor.num_starts - 1) for supervisor in self.supervisors)

    @property
    def devices(self) -> list[DeviceReport]:
        now = asyncio.get_running_loop().time()
        return [
            DeviceReport(each.spec.name, each.device, each.state(each in self.announced, now), each.num_lost)
            for each in self.supervisors
        ]

    async def start(self) -> None:
        """Remove leftovers of killed gateways, then spawn every worker."""
        try:
            await asyncio.to_thread(clear_leftovers)
        except OSError as error:  # the start goes on without it
            logger.warning("leftovers of killed gateways could not be removed: %s", error)
        for supervisor in self.supervisors:
            supervisor.start()

    async def stop(self) -> None:
        if self._replacing is not None:
            await end_tasks(self._replacing)
        for supervisor in list(self._announcements):
            self._cancel_announcement(supervisor)
        await asyncio.gather(*(supervisor.stop() for supervisor in self.supervisors))

    def count(self, supervisor: Supervisor, stats: frames.Stats) -> None:
        """Take a heartbeat, before it replaces the last one."""
        for field in COUNTED:
            self.totals[field] += getattr(stats, field) - getattr(supervisor.stats, field)

    def load(self) -> None:
        self._used_s = math.inf  # a model that is loaded again before the next `note_use` would be unloaded by that
        for supervisor in self.supervisors:
            supervisor.load()

    def note_use(self, is_used: bool, now: float) -> None:
        is_changing = self.is_unloaded or (self._replacing is not None and not self._replacing.done())
        if is_used:
            self.load()
        if is_used or is_changing or len(self.announced) < len(self.supervisors):
            self._used_s = math.inf
            return
        self._used_s = min(self._used_s, now)
        if self._unload_after_s and now - self._used_s >= self._unload_after_s:
            logger.info("nothing has used the model for %.0f s: it is unloaded", now - self._used_s)
            self.is_unloaded = True
            for supervisor in self.supervisors:
                supervisor.unload()

    def replace_all(self) -> None:
        """Begin to replace the workers one by one. Each ends when its contexts are closed; the next one follows when
        all gateways have connected to its successor. No effect while a replacement is under way."""
        if self._replacing is None or self._replacing.done():
            self._replacing = watch(self._replace_all(), "replace workers", lambda: None)

    async def _replace_all(self) -> None:
        for supervisor in self.supervisors:
            if supervisor.ready is not None:  # else its worker is being restarted anyway
                await self._replace(supervisor)
        logger.info("all workers have been replaced")

    async def _replace(self, supervisor: Supervisor) -> None:
        """Replace a worker; return when as many gateways are connected to its successor, or some must have ended."""
        logger.info("worker %s is being replaced", supervisor.spec.name)
        num_clients, num_starts = supervisor.stats.num_clients, supervisor.num_starts
        supervisor.leave()
        await until(lambda: supervisor.num_starts > num_starts and supervisor in self.announced)
        await until(lambda: supervisor.stats.num_clients >= num_clients, _CONNECT_S)

    # ---- reports of the supervisors ---------------------------------------------------------------------------------

    def ready(self, supervisor: Supervisor) -> None:
        """Note that a worker is ready (again) and takes clients at `clients_path`."""
        loop = asyncio.get_running_loop()
        wait_s = supervisor.recovery.announce_after_s(loop.time())
        self._start_failed.discard(supervisor)
        assert supervisor.ready is not None
        if not self._revision:
            self._pin_revision(supervisor.ready.revision)
        if supervisor.ready.revision != self._revision:
            logger.warning("worker %s has loaded another revision of the model", supervisor.spec.name)
            supervisor.leave()
        elif wait_s and self.announced:
            logger.warning("worker %s must stay ready for %.0f s first", supervisor.spec.name, wait_s)
            self._announcements[supervisor] = loop.call_later(wait_s, self._announce, supervisor)
        else:
            self._announce(supervisor)

    def _pin_revision(self, revision: str) -> None:
        """Let all workers that start from now on read these files of a hub model: the hub may have others by then."""
        self._revision = revision
        for supervisor in self.supervisors:
            options = dataclasses.replace(supervisor.spec.options, revision=revision)
            supervisor.spec = dataclasses.replace(supervisor.spec, options=options)

    def _announce(self, supervisor: Supervisor) -> None:
        self._cancel_announcement(supervisor)
        self.announced.add(supervisor)
        self.on_ready(supervisor.spec.name, supervisor.clients_path)
        self.is_unloaded = False

    def _cancel_announcement(self, supervisor: Supervisor) -> None:
        if announcement := self._announcements.pop(supervisor, None):
            announcement.cancel()

    def lost(self, supervisor: Supervisor) -> None:
        """Note that a worker is gone or given up, ready or not; once per start, before the respawn."""
        self._cancel_announcement(supervisor)
        self.announced.discard(supervisor)
        if not supervisor.stats.leaving:
            self.is_unloaded = False  # the next worker starts by itself
            self.load()
        self.on_lost(supervisor.spec.name)
        if not self.announced:
            for other in list(self._announcements):  # an untrusted worker is better than none
                self._announce(other)

    def start_failed(self, supervisor: Supervisor, error: RealtimeTTSError) -> None:
        """Note that a worker should not be waited for at the start of a server."""
        self._start_failed.add(supervisor)
        if len(self._start_failed) == len(self.supervisors):
            self.on_start_failed(error)
