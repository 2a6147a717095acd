"""Work that runs once for all clients that request it at the same time."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from realtime_tts.server.http.middleware import Turns
from realtime_tts.server.http.problems import until_gone

T = TypeVar("T")


@dataclasses.dataclass(slots=True)
class _Job(Generic[T]):
    task: asyncio.Task[T]
    num_clients: int = 0


class SharedJobs(Generic[T]):
    """Jobs by name. A job is cancelled when its last client disconnects."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job[T]] = {}
        self._turns = Turns()

    async def result(self, name: str, work: Callable[[], Coroutine[None, None, T]], receive: Receive) -> T:
        """Return the result of the job of this name; start it with `work` if it is not running.

        Args:
            receive: ASGI receive of the client's request, whose body was read.

        Raises:
            ClientDisconnect: the client has disconnected. Exceptions of `work` are raised too.
        """
        job = self._jobs.get(name)
        if job is None:
            job = self._jobs[name] = _Job(asyncio.create_task(work(), name="shared work"))
            job.task.add_done_callback(lambda _: self._jobs.pop(name, None))
        job.num_clients += 1
        leaving = asyncio.create_task(until_gone(receive), name="watch client")
        try:
            await asyncio.wait([job.task, leaving], return_when=asyncio.FIRST_COMPLETED)
            await self._turns.next()
            if not job.task.done():
                raise ClientDisconnect
            return job.task.result()
        finally:
            leaving.cancel()
            job.num_clients -= 1
            if not job.num_clients and self._jobs.get(name) is job:
                del self._jobs[name]
                job.task.cancel()
