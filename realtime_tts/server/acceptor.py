"""Takes connections from where they come: so many and no more, and quietly when descriptors run out.

asyncio's own loop goes on accepting at a failure, up to 2,048 times, and logs a traceback for each.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import time
from collections.abc import Callable, Collection
from typing import Protocol

from realtime_tts.server.logs import Throttle, log_event

logger = logging.getLogger(__name__)

# For what is not a client's socket: the workers' sockets and pipes, a worker that is started anew, files.
RESERVED_DESCRIPTORS = 64
_BACKLOG = 2048
_BATCH = 4  # taken at a stretch: the first request of each costs a millisecond, and audio is due in between
_RETRY_S = 0.2
_MAX_REFUSALS = 16  # at a time, out of the reserve; beyond that a connection is closed without an answer
_REFUSAL_S = 1.0
_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s"
)
_ANSWER_BODY = b'{"code":"overloaded","message":"all connections of this server are taken","retryable":true}'


def max_connections(wanted: int) -> int:
    """How many connections this process can hold: `wanted`, or (0) all that its limit of descriptors allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = 65_536 if soft == resource.RLIM_INFINITY else max(1, soft - RESERVED_DESCRIPTORS)
    return min(wanted, possible) if wanted else possible


class Door(Protocol):
    """Where connections of clients come from."""

    def start(self, admit: Callable[[socket.socket, bytes], None]) -> None:
        """Give each to `admit`, with what was read of it already."""
        ...

    def close(self) -> None:
        """Take no more; those that were taken go on."""
        ...


class Doorman:
    """Gives connections to protocols: so many and no more.

    Args:
        make_protocol: for a connection that is taken; one with a method `replay` can be given what was read before.
        connections: those that are open now; the protocols enter and leave it themselves.
        max_connections: beyond them a connection gets a 503.
    """

    def __init__(
        self,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        connections: Collection[object],
        max_connections: int,
    ) -> None:
        self._make_protocol = make_protocol
        self._connections, self._max_connections = connections, max_connections
        self._loop = asyncio.get_running_loop()
        self._starting: dict[asyncio.Task[None], asyncio.BaseProtocol] = {}  # not told of their transports yet
        self._refusals: set[_Refusal] = set()
        self._throttle = Throttle()

    def admit(self, connection: socket.socket, received: bytes = b"") -> None:
        """Take a connection; it is ours from now on."""
        connection.setblocking(False)
        if self.num_taken < self._max_connections:
            protocol = self._make_protocol()
            if received:
                protocol.replay(received)  # type: ignore[attr-defined]
            self._give(connection, protocol)
        else:
            self.refuse(connection)

    def refuse(self, connection: socket.socket) -> None:
        """Tell that there is no place."""
        if count := self._throttle.take("connection_refused", time.monotonic()):
            log_event(logger, logging.WARNING, "connection_refused", count=count, limit=self._max_connections)
        if len(self._refusals) < _MAX_REFUSALS:
            self._give(connection, _Refusal(self._refusals))
        else:
            connection.close()

    def close(self) -> None:
        """Let those go who are being refused."""
        for refusal in list(self._refusals):
            refusal.abort()

    @property
    def num_taken(self) -> int:
        starting = [protocol for protocol in self._starting.values() if not isinstance(protocol, _Refusal)]
        return len(self._connections) + sum(protocol not in self._connections for protocol in starting)

    def _give(self, connection: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        task = self._loop.create_task(self._connect(connection, protocol), name="accept")
        self._starting[task] = protocol
        task.add_done_callback(self._starting.pop)

    async def _connect(self, connection: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, connection)
        except OSError:  # the peer is gone again
            connection.close()


class Acceptor:
    """A door that is a listening socket, which is ours from now on."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._admit: Callable[[socket.socket, bytes], None]
        self._retry: asyncio.TimerHandle | None = None
        self._throttle = Throttle()

    def start(self, admit: Callable[[socket.socket, bytes], None]) -> None:
        self._admit, self._loop = admit, asyncio.get_running_loop()
        self._listener.setblocking(False)
        self._listener.listen(_BACKLOG)
        self._resume()

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        if self._listener.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_BATCH):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor or no memory: the peer waits in the backlog until there is one
                if count := self._throttle.take("accept_failed", time.monotonic()):
                    fields = {"error": type(error).__name__, "errno": error.errno}
                    log_event(logger, logging.WARNING, "accept_failed", count=count, **fields)
                self._loop.remove_reader(self._listener)
                self._retry = self._loop.call_later(_RETRY_S, self._resume)
                return
            self._admit(connection, b"")


class _Refusal(asyncio.Protocol):
    """A connection that there is no place for: it is told so when it has asked, since a peer that is still sending
    would find its connection reset instead of the answer."""

    def __init__(self, refusals: set[_Refusal]) -> None:
        self._refusals = refusals
        self._refusals.add(self)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(_REFUSAL_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(_ANSWER % (len(_ANSWER_BODY), _ANSWER_BODY))
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._refusals.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
