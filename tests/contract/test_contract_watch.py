"""A task that fails is heard of, once."""

from __future__ import annotations

import asyncio

import pytest

from realtime_tts.contract.watch import watch


async def test_a_failure_is_logged_once_with_its_stack_but_not_its_message(caplog: pytest.LogCaptureFixture) -> None:
    failed = asyncio.Event()

    async def break_down() -> None:
        raise KeyError("what a user sent")

    watch(break_down(), "important", failed.set)
    await failed.wait()
    (record,) = caplog.records
    assert "important" in record.getMessage()
    assert "KeyError" in record.getMessage()
    assert "break_down" in record.getMessage()
    assert "what a user sent" not in caplog.text


async def test_an_end_that_was_meant_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[str] = []

    async def work(gate: asyncio.Event) -> int:
        await gate.wait()
        return 5

    gate = asyncio.Event()
    finished = watch(work(gate), "finished", lambda: failures.append("finished"))
    cancelled = watch(work(gate), "cancelled", lambda: failures.append("cancelled"))
    await asyncio.sleep(0)
    cancelled.cancel()
    gate.set()
    assert await finished == 5
    await asyncio.wait([cancelled])
    assert not failures
    assert not caplog.records
