"""A daemon thread for the engine."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from collections.abc import Callable
from typing import Any


class JobThread:
    """Runs one job after the other on one thread. State that libraries set up per thread on first use (OpenMP's team,
    CUDA's handles) is therefore ready for all later jobs.

    Unlike an executor's thread it is a daemon: the exit of the process does not wait for a job that hangs.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[concurrent.futures.Future[Any], Callable[[], Any]] | None]
        self._jobs = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, job: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        """Queue a job. Return a future for its result or exception."""
        answer: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._jobs.put((answer, job))
        return answer

    def close(self) -> None:
        """End the thread after the jobs that are queued."""
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
            del taken, answer, job  # they may reference an engine
