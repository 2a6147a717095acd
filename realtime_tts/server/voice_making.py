"""How much of a gateway the making of voices may take."""

from __future__ import annotations

import asyncio

from realtime_tts.errors import Overloaded

_AT_ONCE, _MAX_WAITING = 2, 8


class VoiceMaking:
    """Bounds what making voices takes of a gateway: uploads are large, and each costs seconds of two processes."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._num_here = 0

    async def __aenter__(self) -> None:
        """Raises:
        Overloaded: too many wait already.
        """
        if self._num_here >= _AT_ONCE + _MAX_WAITING:
            raise Overloaded("many voices are being made; try again in a moment")
        self._num_here += 1
        try:
            await self._turns.acquire()
        except BaseException:
            self._num_here -= 1
            raise

    async def __aexit__(self, *exc_info: object) -> None:
        self._turns.release()
        self._num_here -= 1
