"""Encoder threads: encoding never blocks the event loop, and the default thread pool stays free.

What comes to be encoded in one turn of the loop is handed over together, with what could wait for it, and so are the
packets that have been made by the time that the loop looks: a thread is woken for many patches, and so is the loop.
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
_MOST_AT_ONCE = 8  # jobs that one thread takes: others may be idle by then
_LEAST_AT_ONCE = 4  # where there are so many: the last of them waits a millisecond
_PATIENCE_S = 0.03  # so long a job waits for others that can wait

_Settle = Callable[[], None]  # gives the outcome of a job to its future, on the loop
_Job = tuple[Callable[[], _Settle], Callable[[], bool], bool]  # what a thread runs; what cancels the future; can wait


class Encoders:
    """Pool of encoder threads, bounded in number. A job takes about a millisecond, so the queue stays short while the
    processors keep up. Belongs to the event loop that first runs a job.

    Args:
        num_threads: 0: one for each processor, eight at most.
    """

    def __init__(self, num_threads: int = 0) -> None:
        self._num_threads = num_threads or min(8, usable_cores())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._new: list[_Job] = []  # not handed over yet
        self._handing_over: asyncio.Handle | None = None  # that will be
        self._is_urgent = False  # with the next turn of the loop
        self._handed_over: queue.SimpleQueue[list[_Job] | None] = queue.SimpleQueue()
        self._outcomes: collections.deque[_Settle] = collections.deque()
        self._is_told = False  # the loop will look at the outcomes
        self._closed = False

    async def warm_up(self) -> None:
        """Load the codec libraries before the first listener waits for them."""
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
    """Run a job and return its outcome. Afterwards nothing refers to the job, which may be the last owner of a codec's
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
