"""Turns of the event loop, shared among keys."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Gives one waiting caller its turn in each second iteration of the event loop, so that what has begun goes on in
    between: the keys in turn, each key's callers in order of arrival."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # the next key first
        self._is_giving = False

    async def wait(self, key: str) -> None:
        """Return when this caller's turn has come, in a later iteration."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        if not self._is_giving:
            self._is_giving = True
            loop.call_soon(self._give)
        await turn

    def _give(self) -> None:
        while self._waiting:
            key = next(iter(self._waiting))
            callers = self._waiting.pop(key)
            turn = callers.popleft()
            if callers:
                self._waiting[key] = callers
            if not turn.done():  # else its caller was cancelled
                turn.set_result(None)
                loop = turn.get_loop()
                loop.call_soon(loop.call_soon, self._give)
                return
        self._is_giving = False
