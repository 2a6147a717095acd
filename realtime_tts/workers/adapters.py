"""Adapters that the workers should have, and those that each worker has loaded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from realtime_tts.contract import frames
from realtime_tts.errors import AdapterExists, AdapterNotFound, EngineLost, RealtimeTTSError, error_from_code

logger = logging.getLogger(__name__)

Send = Callable[[frames.Message], None]
Answer = TypeVar("Answer")


def settle(waiting: asyncio.Future[Answer] | None, outcome: Answer | RealtimeTTSError) -> bool:
    """Set the result of a waiting call. Return False if there is none; a cancelled one may still be registered."""
    if waiting is None or waiting.done():
        return False
    if isinstance(outcome, RealtimeTTSError):
        waiting.set_exception(outcome)
    else:
        waiting.set_result(outcome)
    return True


class AdapterLoads:
    """Adapter loads of one client on its workers, which are keyed by name. Belongs to the event loop."""

    def __init__(self) -> None:
        self._wanted: dict[str, frames.AddAdapter] = {}  # for every worker, future ones included
        self._loaded: dict[str, set[str]] = {}  # by worker
        self._unanswered: dict[str, set[str]] = {}  # by worker, of those that it was sent when it became ready
        self._waiting: dict[tuple[str, str], asyncio.Future[frames.AdapterAdded]] = {}  # by worker and adapter

    async def load(self, message: frames.AddAdapter, workers: Mapping[str, Send]) -> frames.AdapterAdded:
        """Load an adapter on all ready workers and on all later ones. If cancelled, the load is undone.

        Raises:
            AdapterExists: the name is taken. AdapterError and subclasses: a worker could not load it; none keeps it.
            AdapterNotFound: it was unloaded meanwhile. EngineLost: every worker was lost meanwhile.
        """
        name = message.name
        if name in self._wanted:
            raise AdapterExists(f"there is an adapter {name!r} already", field="adapter")
        self._wanted[name] = message
        loop = asyncio.get_running_loop()
        waiting = {worker: loop.create_future() for worker in workers}
        self._waiting |= {(worker, name): answer for worker, answer in waiting.items()}
        for send in workers.values():
            send(message)
        try:
            answers = await asyncio.gather(*waiting.values(), return_exceptions=True)
        except asyncio.CancelledError:
            self.unload(name, workers)
            raise
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        added = [answer for answer in answers if isinstance(answer, frames.AdapterAdded)]
        refusal = next((error for error in errors if not isinstance(error, EngineLost)), None)
        if refusal is None and added:
            return added[0]
        self.unload(name, workers)
        raise refusal or EngineLost("the engine worker was lost while it loaded an adapter")

    def unload(self, name: str, workers: Mapping[str, Send], everywhere: bool = False) -> None:
        """Unload an adapter on every worker; `everywhere`: for other clients too. Unknown names are ignored."""
        if self._wanted.pop(name, None) is None:
            return
        for worker, send in workers.items():
            settle(
                self._waiting.pop((worker, name), None),
                AdapterNotFound("the adapter was unloaded while it was being loaded"),
            )
            self._loaded.get(worker, set()).discard(name)
            send(frames.RemoveAdapter(name, everywhere))

    def check(self, name: str) -> None:
        """Check that an adapter was requested. Raises AdapterNotFound: it was not."""
        if name not in self._wanted:
            raise AdapterNotFound(f"the adapter {name!r} is not loaded", field="adapter")

    def has(self, worker: str, name: str) -> bool:
        """Return True if a worker has loaded the adapter."""
        return name in self._loaded.get(worker, ())

    def worker_ready(self, worker: str, send: Send) -> None:
        """Send all adapters to a worker that is new or restarted."""
        self._loaded[worker], self._unanswered[worker] = set(), set(self._wanted)
        for message in self._wanted.values():
            send(message)

    def is_loading(self, worker: str) -> bool:
        """Return True if a worker has not loaded all adapters yet that it was sent when it became ready."""
        return bool(self._unanswered.get(worker))

    def worker_lost(self, worker: str) -> None:
        self._loaded.pop(worker, None)
        self._unanswered.pop(worker, None)
        for known, name in list(self._waiting):
            if known == worker:
                settle(self._waiting.pop((worker, name), None), EngineLost("the engine worker was lost"))

    def take(self, worker: str, message: frames.AdapterAdded | frames.AdapterFailed) -> None:
        """Process a worker's answer to a load."""
        name = message.name
        self._unanswered.get(worker, set()).discard(name)
        if isinstance(message, frames.AdapterFailed):
            if (
                not settle(self._waiting.pop((worker, name), None), error_from_code(message.code, message.message))
                and name in self._wanted
            ):
                logger.error("worker %s could not load the adapter %s: %s", worker, name, message.message)
        elif name in self._wanted and worker in self._loaded:
            self._loaded[worker].add(name)
            settle(self._waiting.pop((worker, name), None), message)
