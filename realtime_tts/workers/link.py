"""Connection of one client to one worker, re-established for as long as the worker runs."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from realtime_tts.contract import frames
from realtime_tts.contract.watch import stack_of, watch
from realtime_tts.errors import RealtimeTTSError

if TYPE_CHECKING:
    from realtime_tts.workers.client import EngineClient
    from realtime_tts.workers.worker_view import WorkerView

logger = logging.getLogger(__name__)

_RETRY_S = 0.1
_LAST_READ_S = 1.0  # time for reading what an ended worker sent; exceeded only if the kernel hangs


class WorkerLink(asyncio.Protocol):
    """Connection to a worker. Connects at once; ends after `finish` or `drop`, when `task` is done.

    Every frame is passed on in the callback that received it, without a task in between.

    Args:
        path: path of the worker's socket for clients.
    """

    def __init__(self, path: str, worker: WorkerView, client: EngineClient) -> None:
        self._path, self._worker, self._client = path, worker, client
        self._transport: asyncio.Transport | None = None
        self._decoder = frames.Decoder()
        self._closed: asyncio.Future[None]  # of the present connection; has the exception that broke it
        self.is_ending = False
        self.task = watch(self._run(), "link to a worker", lambda: client.worker_failed(worker.name))

    def send(self, message: frames.Message) -> None:
        """Write a frame; it is dropped while there is no connection."""
        if self._transport is not None:
            self._transport.write(frames.encode(message))

    def finish(self) -> None:
        """Read the rest of what an ended worker has sent, and do not reconnect."""
        if not self.is_ending:
            self.is_ending = True
            asyncio.get_running_loop().call_later(_LAST_READ_S, self._abort)  # no effect if it is closed by then

    def drop(self) -> None:
        """Close the connection and do not reconnect."""
        self.is_ending = True
        self.task.cancel()
        self._disconnect()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.is_ending:
            self._decoder, self._closed = frames.Decoder(), loop.create_future()
            try:
                await loop.create_unix_connection(lambda: self, self._path)
                await self._closed
            except (OSError, RealtimeTTSError) as error:
                # The worker's supervisor warns if this end was not requested.
                logger.info("the connection to a worker broke: %s", type(error).__name__)
            except Exception as error:
                logger.error("a link failed: %s at %s", type(error).__name__, stack_of(error))
            self._disconnect()
            self._client.worker_lost(self._worker)
            if not self.is_ending:
                await asyncio.sleep(_RETRY_S)

    def _disconnect(self) -> None:
        self._abort()
        self._transport = None

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # ---- asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._closed.done():
            return
        try:
            for message in self._decoder.feed(data):
                self._client.receive(self._worker, message)
        except Exception as error:
            self.connection_lost(error)
            self._abort()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._closed.done():
            self._closed.set_exception(error) if error else self._closed.set_result(None)
