"""Adapters that the workers should have, and those that each worker has loaded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

from realtime_tts.contract import frames
from realtime_tts.errors import AdapterExists, AdapterNotFound, EngineLost, error_from_code

logger = logging.getLogger(__name__)

Send = Callable[[frames.Message], None]
_Answer: TypeAlias = "asyncio.Future[frames.AdapterAdded | frames.AdapterFailed]"


class AdapterLoads:
    """Adapter loads of one client on its workers, which are keyed by name. Belongs to the event loop."""

    def __init__(self) -> None:
        self._wanted: dict[str, frames.AddAdapter] = {}  # for every worker, future ones included
        self._workers: dict[str, Send] = {}  # that are ready
        self._answers: dict[tuple[str, str], _Answer] = {}  # by worker and adapter; cancelled if none will come
        self._loading: set[str] = set()  # adapters whose callers wait for the answers

    async def load(self, message: frames.AddAdapter) -> frames.AdapterAdded:
        """Load an adapter on all ready workers and on all later ones. If cancelled, the load is undone.

        Raises:
            AdapterExists: the name is taken. AdapterError and subclasses: a worker could not load it; none keeps it.
            AdapterNotFound: it was unloaded meanwhile. EngineLost: every worker was lost meanwhile.
        """
        name = message.name
        if name in self._wanted:
            raise AdapterExists(f"there is an adapter {name!r} already", field="adapter")
        self._wanted[name] = message
        self._loading.add(name)
        for worker in self._workers:
            self._send(worker, message)
        try:
            while pending := [answer for answer in self._answers_about(name) if not answer.done()]:
                await asyncio.wait(pending)
        except asyncio.CancelledError:
            self.unload(name)
            raise
        finally:
            self._loading.discard(name)
        if self._wanted.get(name) is not message:
            raise AdapterNotFound("the adapter was unloaded while it was being loaded")
        answers = [answer.result() for answer in self._answers_about(name)]
        added = [answer for answer in answers if isinstance(answer, frames.AdapterAdded)]
        failed = [answer for answer in answers if isinstance(answer, frames.AdapterFailed)]
        if added and not failed:
            return added[0]
        self.unload(name)
        if failed:
            raise error_from_code(failed[0].code, failed[0].message)
        raise EngineLost("the engine worker was lost while it loaded an adapter")

    def unload(self, name: str, everywhere: bool = False) -> None:
        """Unload an adapter on every worker; `everywhere`: for other clients too. Unknown names are ignored."""
        if self._wanted.pop(name, None) is None:
            return
        for worker, send in self._workers.items():
            self._drop_answer(worker, name)
            send(frames.RemoveAdapter(name, everywhere))

    def check(self, name: str) -> None:
        """Check that an adapter was requested. Raises AdapterNotFound: it was not."""
        if name not in self._wanted:
            raise AdapterNotFound(f"the adapter {name!r} is not loaded", field="adapter")

    def has(self, worker: str, name: str) -> bool:
        """Return True if a worker has loaded the adapter."""
        answer = self._answers.get((worker, name))
        return answer is not None and answer.done() and isinstance(answer.result(), frames.AdapterAdded)

    def worker_ready(self, worker: str, send: Send) -> None:
        """Send all adapters to a worker that is new or restarted."""
        self._workers[worker] = send
        for message in self._wanted.values():
            self._send(worker, message)

    def is_loading(self, worker: str) -> bool:
        """Return True if a worker has not answered about each adapter yet."""
        return any(known == worker and not answer.done() for (known, _), answer in self._answers.items())

    def worker_lost(self, worker: str) -> None:
        self._workers.pop(worker, None)
        for name in self._wanted:
            self._drop_answer(worker, name)

    def take(self, worker: str, message: frames.AdapterAdded | frames.AdapterFailed) -> None:
        """Process a worker's answer to a load."""
        answer = self._answers.get((worker, message.name))
        if answer is None or answer.done():
            return  # the adapter was unloaded meanwhile
        answer.set_result(message)
        if isinstance(message, frames.AdapterFailed) and message.name not in self._loading:
            logger.error("worker %s could not load the adapter %s: %s", worker, message.name, message.message)

    def _send(self, worker: str, message: frames.AddAdapter) -> None:
        self._answers[worker, message.name] = asyncio.get_running_loop().create_future()
        self._workers[worker](message)

    def _drop_answer(self, worker: str, name: str) -> None:
        if answer := self._answers.pop((worker, name), None):
            answer.cancel()

    def _answers_about(self, name: str) -> list[_Answer]:
        return [answer for (_, known), answer in self._answers.items() if known == name]
