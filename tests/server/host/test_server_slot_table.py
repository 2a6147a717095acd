"""The host grants slots under the limits of all its gateways, whose reports arrive late."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_tts.errors import WireError
from realtime_tts.server.admission.slots import Grant, SlotCounts, SlotRequest
from realtime_tts.server.host.messages import Charge, Report, SlotAnswer, encode, read
from realtime_tts.server.host.slot_table import SlotTable

NUM_GATEWAYS = 4
ROOM = 10


def asked(tenant: str = "a", token: str = "", max_of_token: int = 0) -> SlotRequest:
    return SlotRequest(tenant, token, max_of_token, ROOM)


def used(num_answers: int = 0, **sessions: int) -> tuple[SlotCounts, int]:
    return SlotCounts(sessions=Counter(sessions)), num_answers


@pytest.fixture
def table() -> SlotTable:
    return SlotTable(NUM_GATEWAYS, lambda tenant, held, num_slots: num_slots)


def take(table: SlotTable, index: int, request: SlotRequest) -> Grant:
    return table.answer(index, request).grant


def test_each_sees_the_sum_of_the_others(table: SlotTable) -> None:
    table.report(1, *used(a=3, b=1))
    table.report(2, *used(a=2, c=4))
    assert table.others(0) == SlotCounts(sessions=Counter(a=5, b=1, c=4))
    assert table.others(1) == SlotCounts(sessions=Counter(a=2, c=4))
    table.report(1, *used(b=1))  # fewer than before
    assert table.others(0) == SlotCounts(sessions=Counter(a=2, b=1, c=4))


def test_a_granted_slot_counts_until_a_report_includes_it(table: SlotTable) -> None:
    table.report(1, *used(a=ROOM - 1))
    assert take(table, 0, asked()) is Grant.FREE
    assert take(table, 2, asked()) is Grant.HOST_FULL
    table.report(0, *used(num_answers=0))  # sent before the answer arrived
    assert take(table, 2, asked()) is Grant.HOST_FULL
    table.report(0, *used(num_answers=1, a=1))
    assert take(table, 2, asked()) is Grant.HOST_FULL
    table.report(0, *used(num_answers=1))  # its client has left
    assert take(table, 2, asked()) is Grant.FREE


def test_the_slots_of_a_gateway_end_with_it(table: SlotTable) -> None:
    table.report(1, *used(a=ROOM - 1))
    assert take(table, 1, asked()) is Grant.FREE
    table.clear(1)
    assert table.others(0) == SlotCounts()
    assert take(table, 1, asked()) is Grant.FREE
    table.report(1, *used(num_answers=0))
    assert table.others(0) == SlotCounts(waiting=Counter(a=1)), "answers are counted anew"


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_there_are_never_more_sessions_than_slots_however_late_reports_are(seed: int) -> None:
    """Messages of a gateway arrive in order, each after any time."""
    rng = random.Random(seed)
    table = SlotTable(NUM_GATEWAYS, lambda tenant, held, num_slots: num_slots)
    held, num_answers = [0] * NUM_GATEWAYS, [0] * NUM_GATEWAYS
    to_host = [deque[tuple[SlotCounts, int] | SlotRequest]() for _ in held]
    to_gateway = [deque[SlotAnswer]() for _ in held]
    for _ in range(400):
        index = rng.randrange(NUM_GATEWAYS)
        step = rng.randrange(4)
        if step == 0:
            to_host[index] += [used(num_answers[index], a=held[index]), asked()]
        elif step == 1 and held[index]:
            held[index] -= 1
        elif step == 2 and to_host[index]:
            message = to_host[index].popleft()
            if isinstance(message, tuple):
                table.report(index, *message)
            else:
                to_gateway[index].append(table.answer(index, message))
        elif step == 3 and to_gateway[index]:
            num_answers[index] += 1
            held[index] += to_gateway[index].popleft().grant is Grant.FREE
        assert sum(held) <= ROOM


async def test_messages_pass_between_processes() -> None:
    reader = asyncio.StreamReader()
    message = Report(3, 2, SlotCounts(Counter(a=2), Counter(a=1), tokens=Counter(t=3)), 7, [Charge("a", "t", 5, 6)])
    for sent in (message, asked(), SlotAnswer(Grant.FREE)):
        reader.feed_data(encode(sent))
        assert await read(reader) == sent
    reader.feed_data(b"\0\0\0\1\0")
    with pytest.raises(WireError):
        await read(reader)
    reader.feed_eof()
    assert await read(reader) is None
