"""Start of a server as a child process, and its figures from outside."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from realtime_tts.bench.usage import children, get_text
from realtime_tts.errors import EngineStartError


@dataclass(frozen=True)
class RunningServer:
    """One `realtime-tts serve` process, ready to speak."""

    port: int
    pid: int
    ready_s: float  # process start → /readyz answers 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def stream_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/stream"

    def get(self, path: str) -> str:
        return get_text(self.url, path)

    @property
    def worker_pids(self) -> list[int]:
        """Its child processes (Linux)."""
        return children(self.pid)


def free_port() -> int:
    """Return a port of no socket, below those that systems give to sockets without one: such a socket may be opened
    before the port is used."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def is_ready(port: int) -> bool:
    try:
        get_text(f"http://127.0.0.1:{port}", "/readyz")
    except OSError:
        return False
    return True


def wait_until_ready(port: int, timeout_s: float = 60.0, process: subprocess.Popen[bytes] | None = None) -> None:
    """Block until /readyz says yes.

    Raises:
        EngineStartError: it did not in time, or the process has ended.
    """
    end = time.monotonic() + timeout_s
    while not is_ready(port):
        if process is not None and process.poll() is not None:
            raise EngineStartError(f"the server ended with status {process.returncode}")
        if time.monotonic() > end:
            raise EngineStartError(f"the server was not ready after {timeout_s:g} s")
        time.sleep(0.01)


@contextlib.contextmanager
def running_server(*arguments: str, timeout_s: float = 300.0) -> Iterator[RunningServer]:
    """Start `realtime-tts serve` on a free port with more flags, yield when it is ready, stop it afterwards.

    Raises:
        EngineStartError: as `wait_until_ready`, with the last line that the server wrote.
    """
    port = free_port()
    command = [sys.executable, "-m", "realtime_tts", "serve", f"--port={port}", "--log-level=error", *arguments]
    null = subprocess.DEVNULL
    with tempfile.TemporaryDirectory(prefix="server-") as temporary:
        said = Path(temporary) / "said"
        start = time.perf_counter()
        with said.open("wb") as errors:
            process = subprocess.Popen(command, stdout=null, stderr=errors, env={**os.environ, "TMPDIR": temporary})
        try:
            try:
                wait_until_ready(port, timeout_s, process)
            except EngineStartError as error:
                last = (
                    said.read_text(encoding="utf-8", errors="replace")
                    .strip()
                    .rpartition("\n")[2]
                    .removeprefix("Error: ")
                )
                raise EngineStartError(f"{error.message}: {last}" if last else error.message) from None
            yield RunningServer(port, process.pid, time.perf_counter() - start)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        left_over = [name for name in os.listdir(temporary) if name.startswith("realtime-tts")]
    if left_over:
        raise RuntimeError(f"the server left {left_over} in its temporary directory")
