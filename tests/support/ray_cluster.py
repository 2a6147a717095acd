"""A Ray cluster of one node, and what `serve deploy` makes there of the shipped file: as an operator does it.

Ray has an environment of its own (`make test-ray`); RAY_PYTHON names its interpreter.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from realtime_tts.bench.server_process import free_port
from realtime_tts.bench.usage import descendants

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "deploy/ray/serve.yaml"
PATIENCE_S = 240.0  # of a test on a machine that has other things to do
_MARK = "FLEET_TEST"  # in the environment of all servers of a cluster


class RayCluster:
    """Started with `ray start`, without anything on it. The front will listen at `port`.

    Args:
        options: what is other than in the shipped file, by its names.
    """

    def __init__(self, options: Mapping[str, Any], num_cores: int = 8) -> None:
        self.port = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # Ray's sockets need a short path
        self._dashboard = f"http://127.0.0.1:{free_port()}"
        self._programs = Path(os.environ["RAY_PYTHON"]).parent
        self._mark = f"{_MARK}={self._directory.name}"
        settings = {**options.get("settings", {}), **dict([self._mark.split("=")])}
        self._options = {**options, "host": "127.0.0.1", "port": self.port, "settings": settings}
        path = os.pathsep.join(map(str, (ROOT, ROOT / "clients/python/src")))  # as if it were installed
        self._environment = {**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"}
        # Another cluster may run here, with the ports that Ray takes by itself.
        ports = {
            "port": free_port(),
            "dashboard-port": self._dashboard.rpartition(":")[2],
            "dashboard-agent-listen-port": free_port(),
            "ray-client-server-port": free_port(),
        }
        command = [str(self._programs / "ray"), "start", "--head", "--block"]
        command += [f"--temp-dir={self._directory}", f"--num-cpus={num_cores}", f"--object-store-memory={100 * 2**20}"]
        command += [f"--{name}={value}" for name, value in ports.items()]
        self._log = (self._directory / "start.log").open("w")
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, env=self._environment, cwd=ROOT
        )
        self.until(lambda: self._asked("/api/version") is not None)

    @property
    def stream_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/stream"

    def deploy(self, version: str) -> None:
        """The shipped file with this cluster's options; returns when it was sent."""
        config = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
        for application in config["applications"]:
            application["args"] |= self._options
            if "version" in application["args"]:
                application["args"]["version"] = version
        file = self._directory / "serve.yaml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        command = [str(self._programs / "serve"), "deploy", "-a", self._dashboard, str(file)]
        sent = subprocess.run(command, env=self._environment, cwd=ROOT, capture_output=True, text=True)
        assert sent.returncode == 0, sent.stdout + sent.stderr

    def states(self) -> dict[str, str]:
        """Application → its state, as Serve tells; none while it does not answer."""
        told = self._asked("/api/serve/applications/") or {}
        return {name: one["status"] for name, one in told.get("applications", {}).items()}

    def until_running(self, num_servers: int) -> None:
        """Both applications, with so many servers."""

        def is_so() -> bool:
            states = self.states()
            assert "DEPLOY_FAILED" not in states.values(), self._asked("/api/serve/applications/")
            return [*states.values()] == ["RUNNING"] * 2 and len(self.servers()) == num_servers

        self.until(is_so)

    def servers(self) -> dict[int, int]:
        """Running servers: process → that of its replica; for one left behind 1, or the process that takes orphans."""
        found = {}
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                keeper = int(process.name)
                arguments = (process / "cmdline").read_bytes().split(b"\0")
                if arguments[1:2] == [str(ROOT / "deploy/ray/keeper.py").encode()] and self._has_mark(process):
                    _, server, *_ = descendants([keeper])
                    found[server] = parent(keeper)
        return found

    def num_sessions(self, server: int) -> float:
        """As its figures tell; none while it starts."""
        environment = dict(
            pair.split("=", 1) for pair in Path(f"/proc/{server}/environ").read_text().split("\0") if "=" in pair
        )
        try:
            port = environment["REALTIME_TTS_METRICS_ADDRESS"].rpartition(":")[2]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as response:
                text = response.read().decode()
        except OSError:
            return 0.0
        return float(text.partition("\nrealtime_tts_sessions ")[2].split("\n")[0])

    def busiest(self) -> int:
        """The server with the most sessions."""
        return max(self.servers(), key=self.num_sessions)

    def until(self, is_so: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        end_s = time.monotonic() + timeout_s
        while not is_so():
            assert self._process.poll() is None, "Ray has ended: " + Path(self._log.name).read_text()
            assert time.monotonic() < end_s
            time.sleep(0.1)

    def close(self) -> None:
        pids = [*descendants([self._process.pid]), *self.servers()]
        self._process.terminate()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            for pid in pids:  # ours alone: all were started below it, or have its mark
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._log.close()
            shutil.rmtree(self._directory, ignore_errors=True)

    def _has_mark(self, process: Path) -> bool:
        return self._mark.encode() in (process / "environ").read_bytes().split(b"\0")

    def _asked(self, path: str) -> dict[str, Any] | None:
        """What the dashboard answers; None: nothing yet."""
        try:
            with urllib.request.urlopen(self._dashboard + path, timeout=20) as response:
                answer: dict[str, Any] = json.loads(response.read())
                return answer
        except OSError:
            return None


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
