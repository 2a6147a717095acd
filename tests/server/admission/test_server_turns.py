from __future__ import annotations

import asyncio
import itertools

from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.server.admission.turns import Turns


async def order_of(keys: list[str], cancelled: frozenset[int] = frozenset()) -> list[tuple[int, int]]:
    """Let a caller of each key wait; return the numbers of those that had a turn, each with its loop iteration."""
    turns, served, iteration = Turns(), [], 0

    async def caller(number: int, key: str) -> None:
        await turns.wait(key)
        served.append((number, iteration))

    callers = [asyncio.ensure_future(caller(number, key)) for number, key in enumerate(keys)]
    await asyncio.sleep(0)  # all wait now
    for number in cancelled:
        callers[number].cancel()
    for iteration in range(3 * len(keys) + 3):  # noqa: B007 - callers read it
        await asyncio.sleep(0)
    assert all(each.done() for each in callers)
    return served


class TestTurns:
    async def test_a_key_with_many_callers_delays_another_by_one_turn(self) -> None:
        served = await order_of(["many"] * 100 + ["one"])
        assert [number for number, _ in served][:3] == [0, 100, 1]

    async def test_one_caller_has_its_turn_in_each_second_iteration(self) -> None:
        iterations = [iteration for _, iteration in await order_of(["many"] * 20 + ["one"])]
        assert all(after - before == 2 for before, after in itertools.pairwise(iterations))

    async def test_a_caller_after_all_were_served_has_its_turn(self) -> None:
        turns = Turns()
        for _ in range(3):
            await asyncio.wait_for(turns.wait("key"), 10)

    @given(st.text("abc", max_size=12))
    def test_keys_alternate(self, keys: str) -> None:
        served = [number for number, _ in asyncio.run(order_of([*keys]))]
        assert sorted(served) == [*range(len(keys))]
        for key in set(keys):  # its callers in order of arrival
            mine = [number for number in served if keys[number] == key]
            assert mine == sorted(mine)
        for place, number in enumerate(served):  # no key has two turns while another one waits
            waiting = {keys[other] for other in served[place:]}
            following = served[place + 1 : place + len(waiting)]
            assert keys[number] not in {keys[other] for other in following}

    @given(st.text("abc", min_size=1, max_size=12), st.data())
    def test_a_cancelled_caller_takes_no_turn_from_others(self, keys: str, data: st.DataObject) -> None:
        cancelled = data.draw(st.frozensets(st.sampled_from(range(len(keys)))))
        served = {number for number, _ in asyncio.run(order_of([*keys], cancelled))}
        assert served >= {*range(len(keys))} - cancelled
