"""The gateway process of a campaign and its worker, handled and measured from outside (Linux)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from realtime_tts.bench.server_process import free_port, is_ready
from realtime_tts.bench.usage import children, metrics

READY_S, ENDED_S = 180.0, 90.0
POLL_S = 0.1
_ROOT = Path(__file__).resolve().parents[2]
_TORCH_CACHE = "torchinductor_"
_STATUS = re.compile(r"^(RssAnon|Threads):\s+(\d+)", re.M)


@dataclass(frozen=True)
class Sample:
    """One process at one moment.

    kept_mib: what it says it keeps, right after it gave free memory back; None: it does not say.
    """

    at_s: float
    pid: int
    anonymous_mib: float
    num_fds: int
    num_threads: int
    kept_mib: float | None = None

    @property
    def settled_mib(self) -> float:
        """Memory in use, as far as known."""
        return self.anonymous_mib if self.kept_mib is None else self.kept_mib


def sample(pid: int, at_s: float, kept_mib: float | None = None) -> Sample | None:
    """Return a sample of a process; None if the process is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        num_fds = len(os.listdir(f"/proc/{pid}/fd"))
        fields = {name: int(value) for name, value in _STATUS.findall(status)}
        return Sample(at_s, pid, fields["RssAnon"] / 1024, num_fds, fields["Threads"], kept_mib)
    except (OSError, KeyError):  # gone, or a zombie, which has no memory
        return None


class ServerUnderTest:
    """One gateway after another on the same port, in a temporary directory of their own.

    Args:
        directory: where everything lies; short, since unix sockets lie in it.
        worker: options of the fake worker.
    """

    def __init__(
        self,
        directory: Path,
        *,
        fake: bool,
        settings: dict[str, Any] | None = None,
        worker: dict[str, object] | None = None,
    ) -> None:
        self.port = free_port()
        self.temporary = directory / "t"
        self.temporary.mkdir()
        self._log_path = directory / "server.log"
        options = {
            "fake": fake,
            "worker": worker or {},
            "settings": {"port": self.port, "log_level": "warning", **(settings or {})},
        }
        self._command = [sys.executable, "-m", "benchmarks.soak.server", json.dumps(options)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def stream_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/stream"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def worker_pid(self) -> int | None:
        """The running gateway's worker, if any."""
        return next(filter(self._is_worker, children(self.pid)), None)

    def living_workers(self) -> list[int]:
        """Return all of this campaign's workers that still run, with any parent."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._is_worker(pid)]

    def _is_worker(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return str(self.temporary).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False

    async def start(self) -> None:
        """Start a gateway and wait until it can speak. Raises as `until_ready`."""
        self._spawn()
        await self.until_ready()

    def _spawn(self) -> None:
        environment = {**os.environ, "TMPDIR": str(self.temporary)}
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=_ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    async def until_ready(self, other_than: int | None = None) -> None:
        """Wait until speech can be made, by a worker other than the named one.

        Raises:
            RuntimeError: the gateway ended instead, or it took too long.
        """
        end = time.monotonic() + READY_S
        while self.worker_pid in (None, other_than) or not await asyncio.to_thread(is_ready, self.port):
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"the gateway ended by itself:\n{self.log_tail()}")
            if time.monotonic() > end:
                raise RuntimeError(f"not ready after {READY_S:.0f} s:\n{self.log_tail()}")
            await asyncio.sleep(POLL_S)

    async def end(self, number: int) -> int:
        """Send a signal to the gateway and wait for its end. Return the exit status.

        Raises:
            subprocess.TimeoutExpired: it took too long.
        """
        assert self._process is not None
        self._process.send_signal(number)
        return await asyncio.to_thread(self._process.wait, ENDED_S)

    def samples(self, at_s: float) -> dict[str, Sample]:
        """Return samples of the gateway and its worker, without those that are gone."""
        found = {"gateway": sample(self.pid, at_s)}
        if (worker := self.worker_pid) is not None:
            kept_bytes = 0.0
            with contextlib.suppress(OSError):
                kept_bytes = metrics(self.stream_url).get("realtime_tts_engine_kept_bytes", 0.0)
            found["worker"] = sample(worker, at_s, kept_bytes / 2**20 or None)
        return {name: one for name, one in found.items() if one is not None}

    def held(self) -> dict[str, float]:
        """Return the census (`server.Census`), descriptors and threads of both processes, temporary files, workers with
        any parent.

        Raises:
            OSError: the gateway does not answer.
        """
        figures = metrics(self.stream_url).items()
        found = {name.removeprefix("soak_"): value for name, value in figures if name.startswith("soak_")}
        for name, one in self.samples(0.0).items():
            found |= {f"{name} descriptors": one.num_fds, f"{name} threads": one.num_threads}
        return {
            **found,
            "temporary files": len(self.temporary_files()),
            "worker processes": len(self.living_workers()),
        }

    def temporary_files(self) -> list[str]:
        return sorted(name for name in os.listdir(self.temporary) if not name.startswith(_TORCH_CACHE))

    @property
    def log(self) -> str:
        return self._log_path.read_text(errors="replace")

    def log_tail(self) -> str:
        return "\n".join(self.log.splitlines()[-20:])

    def destroy(self) -> None:
        """End all that is left, whatever state it is in. For the end of a campaign that was broken off, too."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pid in self.living_workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
