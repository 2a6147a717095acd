"""Semaphore that shares its slots fairly among keys."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from realtime_tts.errors import Overloaded


class FairSemaphore:
    """Grants a free slot to the waiting key that holds the fewest slots, in order of arrival where these are equal.

    Args:
        num_slots: number of slots.
        of_one: maximum number of slots of one key.
        max_waiting, max_waiting_of_one: maximum number of waiting callers, in all and of one key. If more than
            `max_waiting` wait, the last caller of the key with the most waiting callers is refused.
        refusal: message of the error for a request that may not wait.
    """

    def __init__(self, num_slots: int, of_one: int, max_waiting: int, max_waiting_of_one: int, refusal: str) -> None:
        self._num_slots, self._of_one = num_slots, of_one
        self._max_waiting, self._max_waiting_of_one = max_waiting, max_waiting_of_one
        self._refusal = refusal
        self._taken: Counter[str] = Counter()
        self._waiting: dict[asyncio.Future[None], str] = {}  # in order of arrival

    @contextlib.asynccontextmanager
    async def place(self, key: str) -> AsyncIterator[None]:
        """Hold a slot, after waiting for this key's turn.

        Raises:
            Overloaded: too many callers wait already.
        """
        await self._enter(key)
        try:
            yield
        finally:
            self._leave(key)

    async def _enter(self, key: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = key
        self._let_in()
        if not turn.done() and Counter(self._waiting.values())[key] > self._max_waiting_of_one:
            self._put_out(turn)
        elif not turn.done() and len(self._waiting) > self._max_waiting:
            self._put_out(self._last_of_the_most())
        try:
            await turn
        except asyncio.CancelledError:
            is_put_out = turn.done() and not turn.cancelled() and turn.exception() is not None
            if self._waiting.pop(turn, None) is None and not is_put_out:  # it had just been given a slot
                self._leave(key)
            raise

    def _last_of_the_most(self) -> asyncio.Future[None]:
        """Return the last caller of the key with the most waiting callers."""
        counts = Counter(self._waiting.values())
        return max(reversed(self._waiting), key=lambda turn: counts[self._waiting[turn]])

    def _put_out(self, turn: asyncio.Future[None]) -> None:
        if not turn.done():  # else its waiter has been cancelled, and stops waiting when it runs
            del self._waiting[turn]
            turn.set_exception(Overloaded(self._refusal))

    def _leave(self, key: str) -> None:
        self._taken -= Counter([key])  # drops a key that holds none
        self._let_in()

    def _let_in(self) -> None:
        while self._taken.total() < self._num_slots:
            may_enter = [turn for turn, key in self._waiting.items() if self._taken[key] < self._of_one]
            if not may_enter:
                return
            turn = min(may_enter, key=lambda turn: self._taken[self._waiting[turn]])
            self._taken[self._waiting.pop(turn)] += 1
            if not turn.done():  # else its waiter has been cancelled, and leaves when it runs
                turn.set_result(None)
