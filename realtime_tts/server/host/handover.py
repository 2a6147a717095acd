"""Transfer of connections between the processes of a host, with the bytes read so far.

Each gateway has a datagram socket for each of its ports. One datagram is one connection: its descriptor, and the bytes
that its new owner processes as if it had read them itself. The host process has the listening socket and distributes
new connections to the gateways. A handshake whose address names a session to resume is handed, unanswered, to the
gateway that has this session.
When a process dies, the kernel closes the connections queued in its socket: their clients see a lost connection.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
from collections.abc import Callable

_MAX_HEAD_BYTES = 64 * 1024  # more than `request_parser` accepts for a handshake


class ConnectionReceiver:
    """`ConnectionSource` for connections that other processes of the host hand over.

    Raises (at construction):
        OSError: the socket cannot be created at this path.
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
        """Take one connection; the event loop has other work in between, as with `Acceptor`."""
        with contextlib.suppress(BlockingIOError, InterruptedError):
            data, descriptors, _, _ = socket.recv_fds(self._socket, _MAX_HEAD_BYTES, 1)
            if descriptors:  # else this process had no free descriptor for it
                self._admit(socket.socket(fileno=descriptors[0]), data[1:])


def hand_over(path: str, connection: int, received: bytes = b"") -> bool:
    """Hand a connection, by its descriptor, to the process with this socket. Return False if its queue is full.

    The descriptor stays open here; the caller closes it.

    Raises:
        OSError: the process has ended.
    """
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection]))]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            sender.sendmsg([b"\0" + received], rights, 0, path)
        except BlockingIOError:
            return False
    return True
