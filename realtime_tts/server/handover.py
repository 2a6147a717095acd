"""Connections that go from one process of a host to another, with what was read of them so far.

Each gateway has a datagram socket for each of its doors. One datagram is one connection: its descriptor, and the bytes
that its new owner is to take as if it had read them itself. The listener is at the host process, which so deals new
connections out to whom it likes; and a client that comes back is given to the gateway that has its session.
What lies in the socket of a process that dies is closed by the kernel: its client finds the connection lost.
"""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections.abc import Callable

MAX_HANDED_BYTES = 128 * 1024  # of what was read; fits the kernel's limit for a datagram
_DESCRIPTOR_BYTES = array.array("i").itemsize
_BATCH = 4  # taken at a stretch, as by `acceptor`


class Inbox:
    """A door at which other processes of the host put connections down.

    Raises (at construction):
        OSError: no socket can be made at this path.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(path)
        self._admit: Callable[[socket.socket, bytes], None]

    def start(self, admit: Callable[[socket.socket, bytes], None]) -> None:
        self._admit = admit
        asyncio.get_running_loop().add_reader(self._socket, self._take)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            os.unlink(self._path)

    def _take(self) -> None:
        for _ in range(_BATCH):
            try:
                received, connection = _receive(self._socket)
            except (BlockingIOError, InterruptedError):
                return
            if connection is not None:
                self._admit(connection, received)


def _receive(sock: socket.socket) -> tuple[bytes, socket.socket | None]:
    data, ancillary, _, _ = sock.recvmsg(MAX_HANDED_BYTES + 1, socket.CMSG_SPACE(_DESCRIPTOR_BYTES))
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            (descriptor,) = array.array("i", content[:_DESCRIPTOR_BYTES])
            return data[1:], socket.socket(fileno=descriptor)
    return b"", None  # there was no descriptor left for it


class Outbox:
    """Puts connections down at other processes' doors."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def give(self, path: str, connection: int, received: bytes = b"") -> bool:
        """Hand a connection, by its descriptor, to the process with this door; False: its queue is full just now.

        The descriptor stays open here, and is the caller's to close.

        Raises:
            OSError: there is no such process any more; ValueError: too much was read.
        """
        if len(received) > MAX_HANDED_BYTES:
            raise ValueError("more was read of the connection than can be handed over")
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection]))]
        try:
            self._socket.sendmsg([b"\0" + received], rights, 0, path)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()
