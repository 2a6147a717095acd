"""The process as a whole: memory that was freed is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from realtime_tts.server import interpreter

MIB = 1024 * 1024


async def trims(sizes_mib: list[float], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """At which sizes of the process memory is given back; each time it falls to 100 MiB."""
    found: list[float] = []
    at = iter(sizes_mib)
    now = {"mib": next(at)}

    async def sleep(seconds: float) -> None:
        try:
            now["mib"] = next(at)
        except StopIteration:
            raise asyncio.CancelledError from None

    async def run(job: Callable[[], None]) -> None:
        found.append(now["mib"])
        now["mib"] = 100.0

    monkeypatch.setattr(interpreter.asyncio, "sleep", sleep)
    monkeypatch.setattr(interpreter, "_resident_bytes", lambda: round(now["mib"] * MIB))
    with pytest.raises(asyncio.CancelledError):
        await interpreter.keep_heap_small(run)
    return found


async def test_memory_is_given_back_once_it_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await trims([100, 105, 107, 109, 100, 108, 130], monkeypatch) == [109, 130]


async def test_what_is_less_than_before_counts_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await trims([150, 101, 106, 110], monkeypatch) == [110]
