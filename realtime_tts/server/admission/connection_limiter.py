"""Accept client connections up to a limit, without a flood of logs when descriptors run out.

asyncio's own loop continues to accept after a failure, up to 2,048 times, and logs a traceback for each.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import time
from collections.abc import Callable, Collection
from typing import Protocol

from realtime_tts.server.logs import Throttle, log_event

# For descriptors other than client sockets: the workers' sockets and pipes, a restarted worker, files.
RESERVED_DESCRIPTORS = 64
_BACKLOG = 2048
_RETRY_S = 0.2
_MAX_REFUSALS = 16  # at a time, out of the reserve; beyond that a connection is closed without an answer
_REFUSAL_S = 1.0
_REFUSED_BYTES = 64 * 1024  # read of a refused request
_ANSWER_BODY = b'{"code":"overloaded","message":"all connections of this server are taken","retryable":true}'
_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s"
) % (len(_ANSWER_BODY), _ANSWER_BODY)


def max_connections(wanted: int) -> int:
    """Return how many connections this process can hold: `wanted`, or (0) all that its descriptor limit allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = 65_536 if soft == resource.RLIM_INFINITY else max(1, soft - RESERVED_DESCRIPTORS)
    return min(wanted, possible) if wanted else possible


class ConnectionSource(Protocol):
    """Source of client connections."""

    def start(self, admit: Callable[[socket.socket, bytes], None]) -> None:
        """Pass each connection to `admit`, with the bytes that were already read from it."""

    def close(self) -> None:
        """Accept no more connections; those already accepted continue."""


class ConnectionLimiter:
    """Connection limiter: gives each accepted connection a protocol, up to a maximum number.

    Args:
        make_protocol: makes the protocol of an accepted connection.
        connections: connections open now; the protocols add and remove themselves.
        max_connections: a connection beyond this number is answered with 503.
    """

    def __init__(
        self, make_protocol: Callable[[], asyncio.Protocol], connections: Collection[object], max_connections: int
    ) -> None:
        self._make_protocol = make_protocol
        self._connections, self._max_connections = connections, max_connections
        self._starting: dict[asyncio.Task[None], asyncio.Protocol] = {}  # not told of their transports yet
        self._refusals: set[asyncio.Task[None]] = set()
        self._throttle = Throttle()

    def admit(self, connection: socket.socket, received: bytes = b"") -> None:
        """Take ownership of a connection. `received`: the bytes already read from it."""
        if self.num_taken >= self._max_connections:
            self.refuse(connection)
            return
        connection.setblocking(False)
        protocol = self._make_protocol()
        task = asyncio.create_task(self._connect(connection, protocol, received), name="accept")
        self._starting[task] = protocol
        task.add_done_callback(self._starting.pop)

    def refuse(self, connection: socket.socket) -> None:
        """Answer a connection with 503, or close it if too many are being refused."""
        if count := self._throttle.take("connection_refused", time.monotonic()):
            limit = self._max_connections or None  # without one, no gateway takes connections now
            log_event("connection_refused", logging.WARNING, count=count, limit=limit)
        if len(self._refusals) >= _MAX_REFUSALS:
            connection.close()
            return
        connection.setblocking(False)
        task = asyncio.create_task(_refuse(connection), name="refuse")
        self._refusals.add(task)
        task.add_done_callback(self._refusals.discard)
        task.add_done_callback(lambda _: connection.close())

    def close(self) -> None:
        """Close the connections that are being refused."""
        for refusal in self._refusals:
            refusal.cancel()

    @property
    def num_taken(self) -> int:
        return len(self._connections) + sum(protocol not in self._connections for protocol in self._starting.values())

    async def _connect(self, connection: socket.socket, protocol: asyncio.Protocol, received: bytes) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, connection)
        except OSError:  # the peer has already disconnected
            connection.close()
        else:
            if received:
                protocol.data_received(received)


class Acceptor:
    """`ConnectionSource` over a listening socket, which the acceptor owns and closes."""

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
        """Accept one connection: the first request of each costs a millisecond or two, and audio is due in between."""
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # no descriptor or no memory: the peer waits in the backlog until there is one
            if count := self._throttle.take("accept_failed", time.monotonic()):
                fields = {"error": type(error).__name__, "errno": error.errno}
                log_event("accept_failed", logging.WARNING, count=count, **fields)
            self._loop.remove_reader(self._listener)
            self._retry = self._loop.call_later(_RETRY_S, self._resume)
            return
        self._admit(connection, b"")


async def _refuse(connection: socket.socket) -> None:
    """Answer after the first data: a peer that is still sending would see a reset instead of the answer."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_REFUSAL_S):
            if await loop.sock_recv(connection, _REFUSED_BYTES):
                await loop.sock_sendall(connection, _ANSWER)
