"""The process as a whole: memory that was freed is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from realtime_tts.server.host import heap

MIB = 1024 * 1024
Trims = list[tuple[float, float]]


async def trims(sizes_mib: list[float], in_use_mib: float) -> Trims:
    """When and at which size of the process memory is given back; the sizes are those at each look."""
    found: Trims = []
    sizes = iter(sizes_mib)
    now, mib = 0.0, next(sizes)

    async def sleep(seconds: float) -> None:
        nonlocal now, mib
        now += seconds
        try:
            mib = next(sizes)
        except StopIteration:
            raise asyncio.CancelledError from None

    async def run(job: Callable[[], None]) -> None:
        nonlocal mib
        found.append((now, mib))
        mib = in_use_mib

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heap, "resident_bytes", lambda: round(mib * MIB))
        patch.setattr(heap, "asyncio", SimpleNamespace(sleep=sleep))
        with pytest.raises(asyncio.CancelledError):
            await heap.keep_heap_small(run)
    return found


async def test_memory_is_given_back_once_it_has_grown() -> None:
    assert await trims([100, 105, 107, 109, 100, 108, 130], 100) == [(30, 109), (60, 130)]


async def test_what_is_less_than_before_counts_from_there() -> None:
    assert await trims([150, 101, 106, 110], 101) == [(30, 110)]


async def test_while_it_is_in_use_it_is_tried_less_and_less_often() -> None:
    assert [at for at, _ in await trims([100] + [150] * 7, 149)] == [10, 30, 70, 150, 230, 310, 390]


async def test_trimming_is_harmless() -> None:
    heap._trim()
    assert heap.resident_bytes() >= 0
