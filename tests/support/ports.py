"""Ports for servers of tests that may run without the package's environment."""

from __future__ import annotations

import contextlib
import random
import socket

# Below those that systems give to sockets without a port: such a socket may be opened before the port is used.
PORTS = 20_000, 32_000


def free_port() -> int:
    while True:
        port = random.randrange(*PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
