"""Encoder threads: encoding never blocks the event loop, and the default thread pool stays free.

Jobs of one iteration of the loop go to the threads together, with jobs that could wait. Outcomes return together too:
all that exist when the loop reads them. So one wake-up of a thread or of the loop serves many patches.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from realtime_tts.audio import pipeline
from realtime_tts.contract.cores import usable_cores

S = TypeVar("S")
T = TypeVar("T")
_MOST_AT_ONCE = 8  # jobs that one thread takes, as other threads may be idle
_LEAST_AT_ONCE = 4  # jobs that one thread takes if that many wait; the last is delayed by a millisecond
_PATIENCE_S = 0.03  # longest time for which a job waits for others

_Settle = Callable[[], None]  # sets the outcome of a job in its future, on the loop
_Job = tuple[Callable[[], _Settle], Callable[[], bool], bool]  # function to run; function to cancel it; can wait


class Encoders:
    """Pool of encoder threads, bounded in number. A job takes about a millisecond, so the queue stays short while the
    processors keep up. Belongs to the event loop that first runs a job.

    Args:
        num_threads: 0: one for each processor, eight at most.
    """

    def __init__(self, num_threads: int = 0) -> None:
        self._num_threads = num_threads or min(8, usable_cores())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._new: list[_Job] = []  # jobs that are not handed over yet
        self._handing_over: asyncio.Handle | None = None  # call that hands them over
        self._is_urgent = False  # that call runs in the next iteration of the loop
        self._handed_over: queue.SimpleQueue[list[_Job] | None] = queue.SimpleQueue()
        self._outcomes: collections.deque[_Settle] = collections.deque()
        self._is_told = False  # the loop is notified of outcomes
        self._closed = False

    async def warm_up(self) -> None:
        """Load the codec libraries before the first speech needs them."""
        await self.run(pipeline.warm_up)

    def run(self, job: Callable[[], T], *, can_wait: bool = False) -> asyncio.Future[T]:
        """Run a job in a thread and return a future of its result. A job cancelled before its start does not run.

        Args:
            can_wait: the job may wait some 10 ms so that several jobs start together.
        """
        if self._loop is None:
            self._start()
        assert self._loop is not None
        answer: asyncio.Future[T] = self._loop.create_future()
        if self._closed:
            answer.cancel()
        else:
            self._new.append((partial(_done, job, answer), answer.cancel, can_wait))
            self._hand_over_soon(self._loop, can_wait and len(self._new) < _MOST_AT_ONCE)
        return answer

    def _hand_over_soon(self, loop: asyncio.AbstractEventLoop, can_wait: bool) -> None:
        if self._is_urgent or (can_wait and self._handing_over is not None):
            return
        if self._handing_over is not None:
            self._handing_over.cancel()
        self._is_urgent = not can_wait
        self._handing_over = (
            loop.call_later(_PATIENCE_S, self._hand_over) if can_wait else loop.call_soon(self._hand_over)
        )

    def close(self) -> None:
        """Cancel the jobs that have not begun, and end the threads."""
        self._closed = True
        waiting = self._new
        with contextlib.suppress(queue.Empty):
            while True:
                waiting = waiting + (self._handed_over.get_nowait() or [])
        for _, cancel, _ in waiting:
            cancel()
        self._new = []
        if self._handing_over is not None:
            self._handing_over.cancel()
        for _ in range(self._num_threads):
            self._handed_over.put(None)

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        for number in range(self._num_threads):
            threading.Thread(target=self._work, name=f"encode_{number}", daemon=True).start()

    def _hand_over(self) -> None:
        jobs, self._new = self._new, []
        self._handing_over, self._is_urgent = None, False
        size = max(_LEAST_AT_ONCE, min(_MOST_AT_ONCE, -(-len(jobs) // self._num_threads)))
        for start in range(0, len(jobs), size):
            self._handed_over.put(jobs[start : start + size])

    def _give_back(self) -> None:
        self._is_told = False  # before the outcomes are read: a thread that adds one later notifies the loop again
        while self._outcomes:
            self._outcomes.popleft()()

    # ---- in the threads ------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (jobs := self._handed_over.get()) is not None:
            jobs.reverse()
            while jobs:
                is_awaited = len(jobs) == 1 or not jobs[-1][2]  # else the loop is woken by a later job of these
                self._outcomes.append(jobs.pop()[0]())
                if is_awaited and not self._is_told:
                    self._is_told = True
                    self._tell()

    def _tell(self) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed, and no job is awaited
            self._loop.call_soon_threadsafe(self._give_back)


def _done(job: Callable[[], T], answer: asyncio.Future[T]) -> _Settle:
    """Run a job and return its outcome. Keeps no reference to the job, which may be the last owner of a codec's
    memory."""
    if answer.cancelled():
        return lambda: None
    try:
        return partial(_settle, answer, answer.set_result, job())
    except BaseException as error:
        return partial(_settle, answer, answer.set_exception, error)


def _settle(answer: asyncio.Future[T], settle: Callable[[S], None], outcome: S) -> None:
    if not answer.done():
        settle(outcome)
