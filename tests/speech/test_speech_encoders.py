"""The threads that encode: what becomes of their jobs, and how often they are woken."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from realtime_tts.speech.encoders import Encoders


@pytest.fixture
async def encoders() -> AsyncIterator[Encoders]:
    made = Encoders(1)
    yield made
    made.close()


async def test_jobs_are_done_in_a_thread_in_their_order(encoders: Encoders) -> None:
    done: list[int] = []

    def job(number: int) -> tuple[int, int]:
        done.append(number)
        return number, threading.get_ident()

    answers = await asyncio.gather(*(encoders.run(lambda number=number: job(number)) for number in range(30)))  # type: ignore[misc]
    assert [number for number, _ in answers] == done == list(range(30))
    assert threading.get_ident() not in {ident for _, ident in answers}


async def test_what_a_job_raises_is_raised_where_it_is_awaited_and_the_next_is_done(encoders: Encoders) -> None:
    failing, fine = encoders.run(lambda: 1 // 0), encoders.run(lambda: 2)
    with pytest.raises(ZeroDivisionError):
        await failing
    assert await fine == 2


async def test_a_job_that_is_cancelled_before_its_turn_is_not_begun(encoders: Encoders) -> None:
    held, begun = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        held.wait(20)

    first = encoders.run(hold)
    while not begun.is_set():
        await asyncio.sleep(0.001)
    ran: list[int] = []
    second, third = encoders.run(lambda: ran.append(2)), encoders.run(lambda: ran.append(3))
    await asyncio.sleep(0)  # they are handed over
    second.cancel()
    held.set()
    await asyncio.gather(first, third)
    assert ran == [3]


async def test_closing_cancels_what_has_not_begun_and_what_comes_later() -> None:
    others = set(threading.enumerate())
    encoders = Encoders(1)
    held, begun = threading.Event(), threading.Event()
    running = encoders.run(lambda: (begun.set(), held.wait(20)))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    handed_over = encoders.run(lambda: None)
    await asyncio.sleep(0)
    new = encoders.run(lambda: None)
    encoders.close()
    assert handed_over.cancelled()
    assert new.cancelled()
    assert encoders.run(lambda: None).cancelled()
    held.set()
    assert await running
    while any(thread.name == "encode_0" for thread in {*threading.enumerate()} - others):  # it ends by itself
        await asyncio.sleep(0.001)


async def test_a_job_is_free_once_it_is_done(encoders: Encoders) -> None:
    class Codec:
        def encode(self) -> int:
            return 1

    codec = Codec()
    gone = weakref.ref(codec)
    assert await encoders.run(codec.encode) == 1
    gc.disable()
    try:
        del codec
        assert gone() is None  # no thread that waits for its next job holds the last one
    finally:
        gc.enable()


async def test_jobs_that_can_wait_go_with_the_next_that_cannot(encoders: Encoders) -> None:
    await encoders.run(lambda: None)
    done: list[int] = []
    patient = [encoders.run(lambda number=number: done.append(number), can_wait=True) for number in range(3)]  # type: ignore[misc]
    for _ in range(3):
        await asyncio.sleep(0)
    assert encoders._handed_over.empty()
    assert len(encoders._new) == 3
    urgent = encoders.run(lambda: done.append(3))
    await asyncio.gather(*patient, urgent)
    assert done == [0, 1, 2, 3]


async def test_a_job_that_can_wait_is_done_though_no_other_comes(encoders: Encoders) -> None:
    assert await encoders.run(lambda: 1, can_wait=True) == 1
    assert await encoders.run(lambda: 2, can_wait=True) == 2


async def test_enough_jobs_that_can_wait_do_not(encoders: Encoders, monkeypatch: pytest.MonkeyPatch) -> None:
    await encoders.run(lambda: None)
    queue = CountingQueue(encoders._handed_over)
    monkeypatch.setattr(encoders, "_handed_over", queue)
    monkeypatch.setattr("realtime_tts.speech.encoders._PATIENCE_S", 1e6)
    answers = [encoders.run(lambda number=number: number, can_wait=True) for number in range(9)]  # type: ignore[misc]
    assert await asyncio.gather(*answers) == list(range(9))
    assert queue.sizes == [8, 1]


async def test_closing_cancels_what_waits_for_others() -> None:
    encoders = Encoders(1)
    waiting = encoders.run(lambda: None, can_wait=True)
    encoders.close()
    assert waiting.cancelled()


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class CountingQueue:
    """Passes on what is put, and notes how many jobs came at a time."""

    def __init__(self, passed_to: Any) -> None:
        self.sizes: list[int] = []
        self.get, self.get_nowait, self._put = passed_to.get, passed_to.get_nowait, passed_to.put

    def put(self, jobs: list[Any] | None) -> None:
        self.sizes += [] if jobs is None else [len(jobs)]
        self._put(jobs)


async def test_the_jobs_of_one_turn_are_handed_over_together_and_the_loop_is_told_once_for_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoders = Encoders(2)
    await encoders.run(lambda: None)
    queue = CountingQueue(encoders._handed_over)
    monkeypatch.setattr(encoders, "_handed_over", queue)
    told: list[None] = []
    tell = encoders._tell
    monkeypatch.setattr(encoders, "_tell", lambda: (told.append(None), tell()))
    answers = [encoders.run(lambda: None) for _ in range(12)]
    await asyncio.sleep(0)
    assert queue.sizes == [6, 6]
    wait_for(lambda: len(encoders._outcomes) == len(answers))  # and the loop is busy meanwhile
    assert len(told) <= 2  # two threads may look at the same moment
    await asyncio.gather(*answers)
    encoders.close()
