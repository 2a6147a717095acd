"""The engine's thread."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from collections.abc import Callable
from typing import Any


class JobThread:
    """Does one job after the other. What libraries set up for a thread when it first needs it (a team of OpenMP's,
    handles of CUDA's) is there for all that come later.

    Unlike an executor's it is a daemon: no exit of the process waits for a job that hangs.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[concurrent.futures.Future[Any], Callable[[], Any]] | None]
        self._jobs = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, job: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        """What the job returns or raises."""
        answer: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._jobs.put((answer, job))
        return answer

    def close(self) -> None:
        """End it, after the jobs that it has."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (taken := self._jobs.get()) is not None:
            answer, job = taken
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(job())
            except BaseException as error:
                answer.set_exception(error)
            del taken, answer, job  # an engine is in them
