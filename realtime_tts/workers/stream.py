"""What one request to the engine yields, as an async iterator."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable

from realtime_tts.workers import frames


class RequestStream:
    """What one request yields: `Audio` frames, then exactly one `Done` or `Failed`.

    Bounded: a reader that leaves more than `max_buffered_bytes` unread loses the request (`slow_consumer`).
    """

    def __init__(self, request_id: str, context_id: str, cancel: Callable[[str], None]) -> None:
        self.request_id, self.context_id = request_id, context_id
        self.buffered_bytes = 0
        self.ended = False  # the terminal message has been put
        self._cancel = cancel
        self._messages: collections.deque[frames.Message] = collections.deque()
        self._awaited: asyncio.Future[None] | None = None  # by the reader
        self._read_all = False

    def __aiter__(self) -> RequestStream:
        return self

    async def __anext__(self) -> frames.Message:
        if self._read_all:
            raise StopAsyncIteration
        while not self._messages:
            self._awaited = asyncio.get_running_loop().create_future()
            await self._awaited
        message = self._messages.popleft()
        self.buffered_bytes -= len(message.payload)
        self._read_all = isinstance(message, (frames.Done, frames.Failed))
        return message

    async def aclose(self) -> None:
        """Cancel the request unless it has ended; later reads end at once."""
        if not self.ended:
            self._cancel(self.request_id)
        self._messages.clear()
        self.buffered_bytes = 0
        self._read_all = True

    def put(self, message: frames.Message) -> None:
        """Called by the client only."""
        self.ended = isinstance(message, (frames.Done, frames.Failed))
        self.buffered_bytes += len(message.payload)
        self._messages.append(message)
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    def drop_audio(self) -> None:
        """Forget what has not been read, as a cancel demands."""
        self._messages.clear()
        self.buffered_bytes = 0
