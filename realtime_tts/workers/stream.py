"""Results of one engine request, as an async iterator."""

from __future__ import annotations

import asyncio
import collections

from realtime_tts.contract import frames


class RequestStream:
    """Results of one request: `Audio` frames, then exactly one `Done` or `Failed`.

    Bounded: if more than `client.MAX_BUFFERED_BYTES` are unread, the request fails (`slow_consumer`).
    """

    def __init__(self, request_id: str, context_id: str) -> None:
        self.request_id, self.context_id = request_id, context_id
        self.buffered_bytes = 0
        self._messages: collections.deque[frames.Message] = collections.deque()
        self._awaited: asyncio.Future[None] | None = None  # the reader's wait
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

    def put(self, message: frames.Message) -> None:
        """Add a message. Called by the client only."""
        self.buffered_bytes += len(message.payload)
        self._messages.append(message)
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    def drop_audio(self) -> None:
        """Drop what has not been read, for a cancel."""
        self._messages.clear()
        self.buffered_bytes = 0
