"""Results of one engine request, as an async iterator."""

from __future__ import annotations

import asyncio

from realtime_tts.contract import frames


class RequestStream:
    """Results of one request: `Audio` frames, then exactly one `Done` or `Failed`.

    Bounded: if more than `client.MAX_BUFFERED_BYTES` are unread, the request fails (`slow_consumer`).
    """

    def __init__(self, request_id: str, context_id: str) -> None:
        self.request_id, self.context_id = request_id, context_id
        self.buffered_bytes = 0
        self._messages: asyncio.Queue[frames.Message] = asyncio.Queue()
        self._read_all = False

    def __aiter__(self) -> RequestStream:
        return self

    async def __anext__(self) -> frames.Message:
        if self._read_all:
            raise StopAsyncIteration
        message = await self._messages.get()
        self.buffered_bytes -= len(message.payload)
        self._read_all = isinstance(message, (frames.Done, frames.Failed))
        return message

    def put(self, message: frames.Message) -> None:
        """Add a message. Called by the client only."""
        self.buffered_bytes += len(message.payload)
        self._messages.put_nowait(message)

    def drop_audio(self) -> None:
        """Drop what has not been read, for a cancel."""
        while not self._messages.empty():
            self._messages.get_nowait()
        self.buffered_bytes = 0
