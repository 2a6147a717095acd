"""HAProxy before the replicas: servers are added and removed while it runs, without a restart.

The number of connections is limited by the process's open files (`ulimit -n`), two for each socket.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from deploy.ray.directory import Entry

_START_S = 10.0
_MAX_SAID_CHARS = 2000
_BACKENDS = ("hosts", "sticky")
_CONFIGURATION = """\
global
    stats socket {control} mode 600 level admin
    hard-stop-after {drain_s}s

defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    timeout tunnel 60s  # an open socket is pinged every 10 s
    timeout http-request 10s
    option redispatch 1
    retries 3
    # A handshake that one refuses since it is full, or drains, is asked of the next.
    retry-on conn-failure empty-response 503
    option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host localhost
    http-check expect status 200
    default-server check inter 500ms fall 2 rise 1 init-addr none
    # What it says itself has the form of the servers' own problems.
    http-error status 502 {lost}
    http-error status 503 {no_host}
    http-error status 504 {lost}

frontend speech
    bind {host}:{port}{tls}
    http-request deny deny_status 404 if {{ path,url_dec -m reg ^/metrics/?$ }}
    # A client that adds ?sticky=<any value> to the address reaches the same host again.
    use_backend sticky if {{ url_param(sticky) -m found }}
    default_backend hosts

backend hosts
    balance leastconn
    server-template host 1-{num_slots} 127.0.0.1:1 disabled

backend sticky
    balance url_param sticky
    hash-type consistent
    server-template host 1-{num_slots} 127.0.0.1:1 disabled
"""


def _answer(code: str, message: str) -> str:
    problem = json.dumps({"code": code, "message": message, "retryable": True})
    return f"content-type application/json string '{problem}' hdr Retry-After 1"


class Front:
    """One HAProxy process.

    Args:
        program: the HAProxy binary. certificate: a PEM file with key and chain; "": no TLS here.
    """

    def __init__(self, program: str, host: str, port: int, num_slots: int, certificate: str, drain_s: float) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="front-")
        self._control = Path(self._directory.name) / "control"
        self._slots: dict[int, tuple[str, int]] = {}  # slots in use
        configuration = Path(self._directory.name) / "haproxy.cfg"
        configuration.write_text(
            _CONFIGURATION.format(
                lost=_answer("engine_lost", "the server was lost"),
                no_host=_answer("overloaded", "no server is ready"),
                control=self._control,
                host=host,
                port=port,
                num_slots=num_slots,
                drain_s=round(drain_s),
                tls=f" ssl crt {certificate}" if certificate else "",
            )
        )
        self._says = Path(self._directory.name) / "says"
        with self._says.open("wb") as says:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "USR1", "--", program, "-db", "-f", str(configuration)], stderr=says
            )
        end_s = time.monotonic() + _START_S
        while not self._control.exists():
            self.check()
            if time.monotonic() > end_s:
                raise RuntimeError("HAProxy did not start")
            time.sleep(0.02)

    def check(self) -> None:
        """Check the process. Raises RuntimeError: it has ended."""
        if (status := self._process.poll()) is not None:
            says = self._says.read_text(errors="replace").strip()[-_MAX_SAID_CHARS:]
            raise RuntimeError(f"HAProxy ended with status {status}: {says}")

    def follow(self, entries: Iterable[Entry]) -> None:
        """Set the servers. Open sockets to a removed server stay open."""
        wanted = {entry.slot: (entry.host, entry.port) for entry in entries}
        for slot in self._slots.keys() - wanted.keys():
            self._set(slot, "state drain")
            del self._slots[slot]
        for slot, (host, port) in wanted.items():
            if self._slots.get(slot) != (host, port):
                self._set(slot, f"addr {host} port {port}")
                self._set(slot, "state ready")
                self._slots[slot] = (host, port)

    def close(self) -> None:
        """Accept no new connection; end when all sockets have ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(10)  # SIGUSR1
        self._directory.cleanup()

    def _set(self, slot: int, what: str) -> None:
        """Set a server's address or state. Raises OSError: HAProxy does not answer. RuntimeError: it refuses."""
        for backend in _BACKENDS:
            self._tell(f"set server {backend}/host{slot} {what}")

    def _tell(self, command: str) -> None:
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(2.0)
            control.connect(str(self._control))
            control.sendall(f"{command}\n".encode())
            answer = b""
            while part := control.recv(4096):
                answer += part
        # The answer to a changed address is a text, to a changed state empty.
        if answer.strip() and not (" addr " in command and b"changed" in answer):
            raise RuntimeError(f"HAProxy does not {command}: {answer.decode().strip()}")
