"""The connection under a session: one WebSocket after the other, what is sent on it, and what comes."""

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

RESUME_WINDOW_S = 10.0  # where the server has not told its own
FIRST_DELAY_S, MAX_DELAY_S = 0.1, 2.0
# A connection that does not last so long has healed nothing: delays go on growing, and the time runs on.
LASTING_S = 1.0
HIGH_MARK_FRAMES, LOW_MARK_FRAMES = 64, 16
_CLEAN_CODES = (1000, 1001)
_FATAL_CODES = (1002, 1003, 1007, 1008, 1009)


class Link:
    """Keeps a protocol connected until it is cancelled or cannot be.

    Args:
        handle: takes each event; the socket is not read on while it waits.
    """

    def __init__(
        self, endpoint: Endpoint, protocol: ClientProtocol, handle: Callable[[Event], Awaitable[None]]
    ) -> None:
        self.established = False  # the server has answered once
        self._endpoint = endpoint
        self._protocol = protocol
        self._handle = handle
        self._has_outgoing = asyncio.Event()
        self._can_send = asyncio.Event()
        self._can_send.set()
        self._lost_at: float | None = None
        self._num_attempts = 0

    def wake(self) -> None:
        """The protocol may have something to send."""
        if self._protocol.num_outgoing:
            self._has_outgoing.set()
        if self._protocol.num_outgoing >= HIGH_MARK_FRAMES:
            self._can_send.clear()

    async def drain(self) -> None:
        """Waits while too much waits to be sent."""
        await self._can_send.wait()

    async def run(self, websocket: ClientConnection) -> None:
        """From the first connection to the last.

        Raises:
            RealtimeTTSError: why there is no further one.
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
                websocket = await self._reconnect()
                self._protocol.connection_made(resume=code not in _CLEAN_CODES)
        finally:
            self._can_send.set()

    async def _serve(self, websocket: ClientConnection) -> tuple[int, str]:
        """Until the connection ends: its close code and reason."""
        loop = asyncio.get_running_loop()
        writer = loop.create_task(self._write(websocket))
        writer.add_done_callback(lambda task: _abort_if_failed(task, websocket))
        unanswered: asyncio.TimerHandle | None = None
        if self.established:  # the first time, whoever opens the session watches
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
            writer.result()  # it raises what could not be sent
        return websocket.close_code or 1006, websocket.close_reason or ""

    async def _write(self, websocket: ClientConnection) -> None:
        """Until the connection ends, or for good if something cannot be written."""
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
                return  # the reader notices too, and what was not sent is known to the protocol

    async def _reconnect(self) -> ClientConnection:
        """A new connection, tried with growing, jittered delays for as long as the server keeps the session.

        Raises:
            ConnectionLost: it took too long.
            Unauthorized, Forbidden: trying again is of no use.
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
                return await self._endpoint.open(remaining_s)
            except (Unauthorized, Forbidden):
                raise
            except RealtimeTTSError as error:
                logger.debug("reconnecting failed: %s", error.code)


def _abort_if_failed(writer: asyncio.Task[None], websocket: ClientConnection) -> None:
    """So that the reader ends, and what could not be written is told."""
    if not writer.cancelled() and writer.exception() is not None:
        websocket.transport.abort()


def reconnect_delay_s(num_attempts: int) -> float:
    """At once, then twice as long each time, spread by half so that clients of a server do not come back as one."""
    if num_attempts == 0:
        return 0.0
    delay_s = min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** (num_attempts - 1))
    return delay_s * random.uniform(0.5, 1.5)
