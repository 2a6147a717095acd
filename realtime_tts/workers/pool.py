"""The worker processes of one host, each under its supervisor: who can be reached, and where."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from realtime_tts.errors import RealtimeTTSError
from realtime_tts.workers import frames
from realtime_tts.workers.socket_directory import clear_leftovers
from realtime_tts.workers.supervisor import Supervisor, SupervisorConfig, WorkerSpec

logger = logging.getLogger(__name__)

# Fields of `Stats` that only grow while a worker lives.
COUNTED = (
    "extensions",
    "extended_positions",
    "text_waits",
    "ends_cut",
    "ends_continued",
    "babbles",
    "skips",
    "repeats",
)


class Workers(Protocol):
    """Whoever keeps worker processes alive, seen by a client of theirs.

    Attributes:
        names: of all workers, whether they live or not.
        num_restarts: respawns since the start, those that failed included; never falls.
        totals: by the names in `COUNTED`, over all workers, lost ones included, as far as they have told.
        on_ready: called with a name and the socket at which that worker takes clients.
        on_lost: that worker is gone; why it could not be started, if so.
        on_failed: one is not supervised any more, by a fault of ours.
    """

    names: list[str]
    on_ready: Callable[[str, str], None]
    on_lost: Callable[[str, RealtimeTTSError | None], None]
    on_failed: Callable[[str], None]

    @property
    def num_restarts(self) -> int: ...

    @property
    def totals(self) -> dict[str, int]: ...

    async def start(self) -> None:
        """Begin; what becomes of the workers is told by the callbacks."""
        ...

    async def stop(self, drain_s: float) -> None:
        """Let what runs end within so many seconds, then end the workers that are ours."""
        ...


class WorkerPool:
    """Workers that are this process's children.

    Args:
        specs: one per device.
    """

    def __init__(self, specs: Sequence[WorkerSpec], config: SupervisorConfig | None = None) -> None:
        self.names = [spec.name for spec in specs]
        self.totals = dict.fromkeys(COUNTED, 0)
        self.on_ready: Callable[[str, str], None] = lambda name, path: None
        self.on_lost: Callable[[str, RealtimeTTSError | None], None] = lambda name, error: None
        self.on_failed: Callable[[str], None] = lambda name: None
        self._were_lost: set[str] = set()
        self._counted: dict[str, frames.Stats] = {}  # in the totals already, of each worker that lives
        self.supervisors = [self._supervisor(spec, config or SupervisorConfig()) for spec in specs]

    def _supervisor(self, spec: WorkerSpec, config: SupervisorConfig) -> Supervisor:
        supervisor = Supervisor(
            spec,
            config,
            on_stats=lambda stats: self._count(spec.name, stats),
            on_ready=lambda: self.on_ready(spec.name, supervisor.clients_path),
            on_lost=lambda: self._lost(supervisor),
            on_failed=lambda: self.on_failed(spec.name),
        )
        return supervisor

    @property
    def num_restarts(self) -> int:
        return sum(max(0, supervisor.num_starts - 1) for supervisor in self.supervisors)

    @property
    def all_have_failed(self) -> bool:
        """Each worker has been lost, at least once."""
        return len(self._were_lost) == len(self.names)

    async def start(self) -> None:
        """Clear away what killed gateways have left, then spawn every worker."""
        try:
            await asyncio.to_thread(clear_leftovers)
        except OSError as error:  # no reason not to start
            logger.warning("leftovers could not be cleared away: %s", error)
        for supervisor in self.supervisors:
            supervisor.start()

    async def stop(self, drain_s: float) -> None:
        await asyncio.gather(*(supervisor.stop(drain_s) for supervisor in self.supervisors))

    def _count(self, name: str, stats: frames.Stats) -> None:
        counted = self._counted.get(name, frames.Stats())
        for field in COUNTED:
            self.totals[field] += getattr(stats, field) - getattr(counted, field)
        self._counted[name] = stats

    def _lost(self, supervisor: Supervisor) -> None:
        self._counted.pop(supervisor.spec.name, None)
        self._were_lost.add(supervisor.spec.name)
        self.on_lost(supervisor.spec.name, supervisor.start_error)
