"""Connection of a session: a sequence of WebSockets, with sending and receiving."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from realtime_tts_client.errors import (
    ConnectionFailed,
    ConnectionLost,
    Forbidden,
    ProtocolError,
    RealtimeTTSError,
    Unauthorized,
    error_from_code,
)
from realtime_tts_client.events import Event
from realtime_tts_client.handshake import Endpoint
from realtime_tts_client.protocol import ClientProtocol

logger = logging.getLogger(__name__)

RESUME_WINDOW_S = 10.0  # if the server has not sent its own
FIRST_DELAY_S, MAX_DELAY_S = 0.1, 2.0
# A connection shorter than this counts as a failed attempt: the delays keep growing, and the time limit continues.
LASTING_S = 1.0
HIGH_MARK_FRAMES, LOW_MARK_FRAMES = 64, 16
_CLEAN_CODES = (1000, 1001)
_FATAL_CODES = (1002, 1003, 1007, 1008, 1009)


class Link:
    """Link that keeps a protocol connected until it is cancelled or reconnecting fails.

    Args:
        handle: receives each event; the socket is not read while it waits.
    """

    def __init__(
        self, endpoint: Endpoint, protocol: ClientProtocol, handle: Callable[[Event], Awaitable[None]]
    ) -> None:
        self.established = False  # the server has answered at least once
        self._endpoint = endpoint
        self._protocol = protocol
        self._handle = handle
        self._has_outgoing = asyncio.Event()
        self._can_send = asyncio.Event()
        self._can_send.set()
        self._lost_at: float | None = None
        self._num_attempts = 0

    def wake(self) -> None:
        """Wake the writer, as the protocol may have frames to send."""
        if self._protocol.num_outgoing:
            self._has_outgoing.set()
        if self._protocol.num_outgoing >= HIGH_MARK_FRAMES:
            self._can_send.clear()

    async def drain(self) -> None:
        """Wait while too many frames are queued."""
        await self._can_send.wait()

    async def run(self, websocket: ClientConnection) -> None:
        """Run from the first connection to the last.

        Raises:
            RealtimeTTSError: the reason why no further connection is made.
        """
        try:
            self._protocol.connection_made(resume=False)
            while True:
                code, reason = await self._serve(websocket)
                self._protocol.connection_lost()
                self._can_send.set()
                if code in _FATAL_CODES:
                    raise error_from_code(reason, f"the server closed the connection: {code} {reason}")
                if not self.established:
                    raise ConnectionFailed(f"the server closed the connection: {code} {reason}")
                resume = code not in _CLEAN_CODES
                websocket = await self._reconnect(self._protocol.session_id if resume else None)
                self._protocol.connection_made(resume=resume)
        finally:
            self._can_send.set()

    async def _serve(self, websocket: ClientConnection) -> tuple[int, str]:
        """Serve one connection until it ends. Return its close code and reason."""
        loop = asyncio.get_running_loop()
        writer = loop.create_task(self._write(websocket))
        writer.add_done_callback(lambda task: _abort_if_failed(task, websocket))
        unanswered: asyncio.TimerHandle | None = None
        if self.established:  # the first time, the opening call has its own timeout
            unanswered = loop.call_later(self._endpoint.open_timeout_s, websocket.transport.abort)
        made_at, is_answered = time.monotonic(), False
        self.wake()
        try:
            async for frame in websocket:
                is_answered = True
                if unanswered is not None:
                    unanswered.cancel()
                for event in self._protocol.receive(frame):
                    await self._handle(event)
                self.wake()
        except ConnectionClosed:
            pass
        except ProtocolError:
            await websocket.close(1002, "malformed frame")
            raise
        finally:
            if unanswered is not None:
                unanswered.cancel()
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            await websocket.close()
        if is_answered and time.monotonic() - made_at >= LASTING_S:
            self._lost_at, self._num_attempts = None, 0
        if not writer.cancelled():
            writer.result()  # raises the writer's error
        return websocket.close_code or 1006, websocket.close_reason or ""

    async def _write(self, websocket: ClientConnection) -> None:
        """Write frames until the connection ends. Raises other errors of sending."""
        while True:
            await self._has_outgoing.wait()
            frame = self._protocol.take_outgoing()
            if self._protocol.num_outgoing <= LOW_MARK_FRAMES:
                self._can_send.set()
            if frame is None:
                self._has_outgoing.clear()
                continue
            try:
                await websocket.send(frame)
            except ConnectionClosed:
                return  # the reader ends too, and the protocol resends unsent frames

    async def _reconnect(self, session_id: str | None) -> ClientConnection:
        """Reconnect, with growing, jittered delays, for as long as the server keeps the session.

        Raises:
            ConnectionLost: the time is over.
            Unauthorized, Forbidden: a retry would fail too.
        """
        window_s = float(self._protocol.limits.get("resume_window_s") or RESUME_WINDOW_S)
        self._lost_at = time.monotonic() if self._lost_at is None else self._lost_at
        while True:
            await asyncio.sleep(reconnect_delay_s(self._num_attempts))
            self._num_attempts += 1
            remaining_s = self._lost_at + window_s - time.monotonic()
            if remaining_s <= 0:
                raise ConnectionLost(f"the connection broke and could not be taken up again within {window_s:g} s")
            try:
                return await self._endpoint.open(remaining_s, session_id)
            except (Unauthorized, Forbidden):
                raise
            except RealtimeTTSError as error:
                logger.debug("reconnecting failed: %s", error.code)


def _abort_if_failed(writer: asyncio.Task[None], websocket: ClientConnection) -> None:
    """Abort the connection after a writer error, so that the reader ends and the error is raised."""
    if not writer.cancelled() and writer.exception() is not None:
        websocket.transport.abort()


def reconnect_delay_s(num_attempts: int) -> float:
    """Return 0 first, then a delay that doubles each time, with ± 50 % jitter so that clients spread out."""
    if num_attempts == 0:
        return 0.0
    delay_s = min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** (num_attempts - 1))
    return delay_s * random.uniform(0.5, 1.5)
