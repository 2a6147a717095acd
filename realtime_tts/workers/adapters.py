"""Adapters that the workers should have, and those that each worker has loaded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from realtime_tts.contract import frames
from realtime_tts.contract.watch import until
from realtime_tts.errors import AdapterExists, AdapterNotFound, EngineLost, error_from_code
from realtime_tts.workers.worker_view import WorkerView

logger = logging.getLogger(__name__)


class AdapterLoads:
    """Adapter loads of one client on its workers. Each worker's answers are in `WorkerView.adapters`. Belongs to the
    event loop.

    Attributes:
        loaded: adapters by name.
        on_settled: called when a load has ended on a worker: by its answer, or because the adapter was unloaded.
    """

    def __init__(self, workers: Sequence[WorkerView]) -> None:
        self.loaded: dict[str, frames.AdapterAdded] = {}
        self.on_settled: Callable[[], None] = lambda: None
        self._workers = workers
        self._wanted: dict[str, frames.AddAdapter] = {}  # for every worker, future ones included

    async def load(self, message: frames.AddAdapter) -> frames.AdapterAdded:
        """Load an adapter on all ready workers and on all later ones. If cancelled, the load is undone.

        Raises:
            AdapterExists: the name is taken. AdapterError and subclasses: a worker could not load it; none keeps it.
            AdapterNotFound: it was unloaded meanwhile. EngineLost: no worker is ready, or every one was lost meanwhile.
        """
        name = message.name
        if name in self._wanted:
            raise AdapterExists(f"there is an adapter {name!r} already", field="name")
        self._wanted[name] = message
        for worker in self._workers:
            _send(worker, message)
        try:
            await until(lambda: self._wanted.get(name) is not message or None not in self._answers(name))
        except asyncio.CancelledError:
            self.unload(name)
            raise
        if self._wanted.get(name) is not message:
            raise AdapterNotFound("the adapter was unloaded while it was being loaded")
        answers = self._answers(name)
        added = [answer for answer in answers if isinstance(answer, frames.AdapterAdded)]
        failed = [answer for answer in answers if isinstance(answer, frames.AdapterFailed)]
        if added and not failed:
            self.loaded[name] = added[0]
            return added[0]
        self.unload(name)
        if failed:
            raise error_from_code(failed[0].code, failed[0].message)
        raise EngineLost("no engine worker is ready, or it was lost while it loaded an adapter")

    def unload(self, name: str, everywhere: bool = False) -> None:
        """Unload an adapter on every worker; `everywhere`: for other clients too. Unknown names are ignored."""
        self.loaded.pop(name, None)
        if self._wanted.pop(name, None) is not None:
            for worker in self._workers:
                worker.adapters.pop(name, None)
                worker.send(frames.RemoveAdapter(name, everywhere))
            self.on_settled()

    def check(self, name: str) -> None:
        """Check that an adapter was requested. Raises AdapterNotFound: it was not."""
        if name not in self._wanted:
            raise AdapterNotFound(f"the adapter {name!r} is not loaded", field="adapter")

    def worker_ready(self, worker: WorkerView) -> None:
        """Send all adapters to a worker that is new or restarted."""
        for message in self._wanted.values():
            _send(worker, message)

    def take(self, worker: WorkerView, message: frames.AdapterAdded | frames.AdapterFailed) -> None:
        """Process a worker's answer to a load."""
        if worker.adapters.get(message.name, message) is not None:
            return  # the adapter was unloaded meanwhile
        worker.adapters[message.name] = message
        self.on_settled()
        if isinstance(message, frames.AdapterFailed) and message.name in self.loaded:  # else `load` raises it
            logger.error("worker %s could not load the adapter %s: %s", worker.name, message.name, message.message)

    def _answers(self, name: str) -> list[frames.AdapterAdded | frames.AdapterFailed | None]:
        return [worker.adapters[name] for worker in self._workers if name in worker.adapters]


def _send(worker: WorkerView, message: frames.AddAdapter) -> None:
    if worker.ready is not None:
        worker.adapters[message.name] = None
        worker.send(message)
