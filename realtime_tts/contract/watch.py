"""Supervision of long-lived tasks, so that none ends unnoticed, and waits for what happens seldom."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")
_LOOK_EVERY_S = 0.02


def watch(work: Coroutine[object, None, T], name: str, on_failed: Callable[[], None]) -> asyncio.Task[T]:
    """Run `work` as a task whose failure is reported: it is logged once, and `on_failed` is called.

    A return and a cancellation are not failures. The caller must keep the task: the loop holds only a weak reference.
    """

    def ended(task: asyncio.Task[T]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        logger.error("the task %r failed: %s at %s", name, type(error).__name__, stack_of(error))
        on_failed()

    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(ended)
    return task


async def until(condition: Callable[[], bool], timeout_s: float | None = None) -> None:
    """Return when a condition holds, which is looked at 50 times a second, or after `timeout_s`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - what is waited for is seldom, and has no event
                await asyncio.sleep(_LOOK_EVERY_S)


async def end_tasks(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks, and return when they have ended, however they do."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def stack_of(error: BaseException) -> str:
    """Return where an exception came from, innermost call first. Excludes its message, which may quote a user's
    text."""
    return " < ".join(
        f"{frame.name} ({frame.filename.rpartition('/')[2]}:{frame.lineno})"
        for frame in reversed(traceback.extract_tb(error.__traceback__))
    )
