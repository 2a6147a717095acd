"""A semaphore with few places admits every key, in turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from realtime_tts.errors import Overloaded
from realtime_tts.server.admission.fair_semaphore import FairSemaphore


class Visitors:
    """Tasks that enter a gate, stay until they are told to go, and note the order of their coming in."""

    def __init__(self, gate: FairSemaphore) -> None:
        self._gate = gate
        self.inside: list[str] = []
        self.came_in: list[str] = []
        self._cancels = ""
        self._tasks: dict[str, tuple[asyncio.Task[None], asyncio.Event]] = {}

    async def come(self, *names: str, and_cancel: str = "") -> None:
        """The first letter of a name is the key. `and_cancel`: another one, which runs only afterwards."""
        for name in names:
            leaves = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._visit(name, leaves)), leaves
            if and_cancel:
                self._tasks[and_cancel][0].cancel()
            await asyncio.sleep(0)

    async def _visit(self, name: str, leaves: asyncio.Event) -> None:
        async with self._gate.place(name[0]):
            self.inside.append(name)
            self.came_in.append(name)
            try:
                await leaves.wait()
            finally:
                self.inside.remove(name)
        if self._cancels:  # one that was admitted, and had no time to run since
            self._tasks[self._cancels][0].cancel()

    async def go(self, *names: str, and_cancel: str = "") -> None:
        self._cancels = and_cancel
        for name in names:
            task, leaves = self._tasks[name]
            leaves.set()
            await asyncio.wait([task])
            await asyncio.sleep(0)

    async def cancel(self, name: str) -> None:
        self._tasks[name][0].cancel()
        await asyncio.wait([self._tasks[name][0]])

    async def close(self) -> None:
        tasks = [task for task, _ in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def refused(self, name: str) -> Overloaded:
        with pytest.raises(Overloaded) as caught:
            async with self._gate.place(name[0]):
                pass
        return caught.value


@pytest_asyncio.fixture
async def visitors() -> AsyncIterator[Callable[..., Visitors]]:
    made: list[Visitors] = []

    def make(num_slots: int = 2, of_one: int = 2, max_waiting: int = 4, max_waiting_of_one: int = 3) -> Visitors:
        made.append(Visitors(FairSemaphore(num_slots, of_one, max_waiting, max_waiting_of_one, "later")))
        return made[-1]

    yield make
    for all_here in made:
        await all_here.close()


async def test_a_tenant_alone_has_all_its_slots_and_its_requests_come_in_order(
    visitors: Callable[..., Visitors],
) -> None:
    all_here = visitors()
    await all_here.come("a1", "a2", "a3", "a4")
    assert all_here.inside == ["a1", "a2"]
    await all_here.go("a2", "a1")
    assert all_here.came_in == ["a1", "a2", "a3", "a4"]


async def test_a_tenant_that_holds_less_goes_before_one_that_came_first(visitors: Callable[..., Visitors]) -> None:
    all_here = visitors()
    await all_here.come("a1", "a2", "a3", "b1")
    await all_here.go("a1")
    assert all_here.inside == ["a2", "b1"]
    await all_here.go("a2")
    assert all_here.inside == ["b1", "a3"]


async def test_a_slot_is_left_for_another_tenant(visitors: Callable[..., Visitors]) -> None:
    all_here = visitors(num_slots=4, of_one=3)
    await all_here.come("a1", "a2", "a3", "a4", "b1")
    assert all_here.inside == ["a1", "a2", "a3", "b1"]
    await all_here.go("b1")
    assert all_here.inside == ["a1", "a2", "a3"]
    await all_here.go("a1")
    assert all_here.inside == ["a2", "a3", "a4"]


async def test_a_request_that_finds_too_many_waiting_is_refused(visitors: Callable[..., Visitors]) -> None:
    all_here = visitors()
    await all_here.come("a1", "a2", "a3", "a4", "a5")
    assert (await all_here.refused("a6")).message == "later"  # as many of its key wait as may
    await all_here.come("b1", "c1")  # a5 waits no longer, since more of its key wait
    await all_here.refused("a7")  # as many wait as may
    await all_here.go("a1", "a2", "b1", "c1")
    assert all_here.inside == ["a3", "a4"]


async def test_two_tenants_cannot_fill_the_queue(visitors: Callable[..., Visitors]) -> None:
    all_here = visitors(num_slots=2, of_one=1, max_waiting=4, max_waiting_of_one=3)
    await all_here.come("a1", "b1", "a2", "a3", "a4", "b2")
    await all_here.come("c1")  # a4 waits no longer
    await all_here.refused("a5")
    await all_here.go("a1", "b1", "a2", "b2", "a3", "c1")
    assert all_here.came_in == ["a1", "b1", "a2", "b2", "a3", "c1"]


async def test_a_request_that_is_cancelled_as_it_is_refused_takes_no_slot(visitors: Callable[..., Visitors]) -> None:
    all_here = visitors(num_slots=1, of_one=1, max_waiting=2, max_waiting_of_one=2)
    await all_here.come("a1", "a2", "a3")
    await all_here.come("b1")
    await all_here.cancel("a3")  # before it has run
    assert all_here.inside == ["a1"]
    await all_here.go("a1", "a2")
    assert all_here.came_in == ["a1", "a2", "b1"]


async def test_a_cancelled_request_that_is_to_make_way_gives_back_no_slot(visitors: Callable[..., Visitors]) -> None:
    all_here = visitors(num_slots=1, of_one=1, max_waiting=2, max_waiting_of_one=2)
    await all_here.come("a1", "a2", "a3")
    await all_here.come("c1", and_cancel="a3")
    await asyncio.sleep(0)
    assert all_here.inside == ["a1"]
    await all_here.go("a1", "a2", "c1")
    assert all_here.came_in == ["a1", "a2", "c1"]


async def test_a_cancelled_request_leaves_no_gap(visitors: Callable[..., Visitors]) -> None:
    all_here = visitors()
    await all_here.come("a1", "a2", "b1", "b2", "c1")
    await all_here.cancel("b1")  # outside
    await all_here.cancel("a1")  # inside
    assert all_here.inside == ["a2", "b2"]
    await all_here.go("a2", "b2", "c1")
    await all_here.come("d1", "d2")
    assert all_here.inside == ["d1", "d2"]


async def test_a_request_that_is_cancelled_as_it_is_admitted_passes_its_slot_on(
    visitors: Callable[..., Visitors],
) -> None:
    all_here = visitors(num_slots=1, of_one=1)
    await all_here.come("a1", "b1", "c1")
    await all_here.go("a1", and_cancel="b1")
    assert all_here.came_in == ["a1", "c1"]
    assert all_here.inside == ["c1"]
