"""The one session with the server that all streams of a `TTS` share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from realtime_tts_client import Session


class SharedSession:
    """Session that opens on first use and again after it was closed. The client itself resumes broken connections.

    Contexts of one session share its connection without blocking each other, so no connection pool is needed, and
    a cancelled stream costs no connection. (LiveKit's `ConnectionPool` is for protocols that allow one speech at a
    time.)
    """

    def __init__(self, connect: Callable[[float], Session]) -> None:
        self._connect = connect
        self._session: Session | None = None
        self._opening = asyncio.Lock()

    @property
    def model(self) -> str | None:
        """Name of the server's model, once it has been requested."""
        return self._session.model if self._session is not None else None

    @property
    def is_open(self) -> bool:
        return self._session is not None and not self._session.closed

    async def get(self, timeout_s: float) -> Session:
        """Return the open session. Raises RealtimeTTSError: none is open and none can be opened."""
        async with self._opening:
            if self._session is not None and not self._session.closed:
                return self._session
            await self._close()
            session = self._connect(timeout_s)
            await session.__aenter__()
            self._session = session
            return session

    async def aclose(self) -> None:
        async with self._opening:
            await self._close()

    async def _close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
