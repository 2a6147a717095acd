"""How much of a gateway the making of voices may take, and what it has just made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from realtime_tts.errors import Overloaded
from realtime_tts.server.schemas import RecordingRemark

_AT_ONCE, _MAX_WAITING = 2, 8


class VoiceMaking:
    """Bounds what making voices takes of a gateway: uploads are large, and each costs seconds of two processes.

    The same recordings often come again while a voice for a while is made of them, with each sentence: which these are
    is remembered by their hash, for as long as there is a voice of them.
    """

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._num_here = 0
        self._made: dict[str, tuple[str, Sequence[RecordingRemark]]] = {}  # by the hash: voice id, remarks

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

    def remember(self, content: str, voice_id: str, remarks: Sequence[RecordingRemark]) -> None:
        """`content`: hash of all that a voice was made of."""
        self._made[content] = voice_id, remarks

    def made_of(self, content: str) -> tuple[str, Sequence[RecordingRemark]] | None:
        return self._made.get(content)

    def forget(self, voice_id: str) -> None:
        for content in [content for content, (made, _) in self._made.items() if made == voice_id]:
            del self._made[content]
