"""`deploy.ray` on one machine: two replicas under load while one is added, lost, and all are started anew.

Ray has an environment of its own (`make test-ray`); RAY_PYTHON names its interpreter.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proxy_harness import free_port

from realtime_tts.bench.arrivals import Arrival
from realtime_tts.bench.server_load import ServerLoad, Target
from realtime_tts.bench.usage import descendants

ROOT = Path(__file__).resolve().parents[2]
SERVE_FAKE = ROOT / "tests/support/serve_fake.py"
SLOTS = 8  # of a replica
LISTENERS = 8
DRAIN_S = 30.0
RETRYABLE = {"overloaded", "draining", "engine_lost", "connection_lost"}
pytestmark = [pytest.mark.slow, pytest.mark.skipif("RAY_PYTHON" not in os.environ, reason="needs RAY_PYTHON")]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def num_sessions(gateway: int) -> float:
    """As its metrics tell; none while it starts."""
    environment = Path(f"/proc/{gateway}/environ").read_bytes().decode().split("\0")
    [port] = [setting.partition("=")[2] for setting in environment if setting.startswith("REALTIME_TTS_PORT=")]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            text = response.read().decode()
    except OSError:
        return 0.0
    return float(text.partition("\nrealtime_tts_sessions ")[2].split("\n")[0])


class Cluster:
    """Ray with the application, as a process; what it started is found below it."""

    def __init__(self, temporary: Path) -> None:
        self.port = free_port()
        worker = {"max_streams": SLOTS, "chars_per_patch": 4}
        options = {
            "command": [sys.executable, str(SERVE_FAKE), '{"max_late_ms": 0}', json.dumps(worker)],
            "settings": {
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(SERVE_FAKE.parent)]),
                "TMPDIR": str(temporary),
            },
            "replica_host": "127.0.0.1",
            "host": "127.0.0.1",
            "port": self.port,
            "min_replicas": 1,
            "max_replicas": 2,
            "target": 0.3,
            "look_back_s": 3,
            "upscale_delay_s": 1,
            "downscale_delay_s": 600,
            "num_cpus": 0.1,
            "drain_s": DRAIN_S,
        }
        environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
        environment |= {"PYTHONPATH": str(ROOT), "RAY_raylet_start_wait_time_s": "120"}
        command = [os.environ["RAY_PYTHON"], str(ROOT / "tests/support/ray_cluster.py"), json.dumps(options)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )

    def until_ready(self) -> None:
        self.until_said("ready")
        self.until(lambda: len(self.gateways()) == 1)

    def until_said(self, word: str) -> None:
        assert self._process.stdout is not None
        while word not in (line := self._process.stdout.readline()):
            assert line, "the cluster has ended"

    def start_anew(self, version: str) -> None:
        """Returns when all replicas are of this version."""
        assert self._process.stdin is not None
        self._process.stdin.write(version + "\n")
        self._process.stdin.flush()
        self.until_said("deployed")

    def gateways(self) -> dict[int, int]:
        """Of the servers that run: process → replica's process."""
        found = {}
        for pid in descendants([self._process.pid]):
            try:
                arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if arguments[:2] == [sys.executable.encode(), str(SERVE_FAKE).encode()] and status[0] != "Z":
                found[pid] = parent(int(status[1]))  # its own parent is a keeper
        return found

    def busiest(self) -> int:
        """The server with the most sessions."""
        return max(self.gateways(), key=num_sessions)

    def until(self, is_so: Callable[[], bool], timeout_s: float = 90.0) -> None:
        end_s = time.monotonic() + timeout_s
        while not is_so():
            assert time.monotonic() < end_s
            time.sleep(0.1)

    def load(self, seconds: float, act: Callable[[], None]) -> tuple[Counter[str], int]:
        """`LISTENERS` at once; `act` is called in mid-speech. What went wrong, by code, and how many were heard out."""
        failed: list[BaseException] = []

        def act_and_tell() -> None:
            try:
                act()
            except BaseException as error:
                failed.append(error)

        with ServerLoad(Target(f"ws://127.0.0.1:{self.port}/v1/stream", None, 1, 20, {})) as load:
            load.measure_turn()
            gap_s = load.turn_s / LISTENERS
            arrivals = [Arrival(number, number * gap_s, 1.0, judged=True) for number in range(round(seconds / gap_s))]
            actor = threading.Timer(load.turn_s + 0.5, act_and_tell)
            actor.start()
            heard = load.open_loop(arrivals)
            actor.join()
        if failed:
            raise failed[0]
        return Counter(stream.error for stream in heard if stream.error), sum(not stream.error for stream in heard)

    def close(self) -> None:
        assert self._process.stdin is not None
        pids = descendants([self._process.pid])
        self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            assert self._process.stdout is not None
            self._process.stdout.close()
            for pid in pids:  # ours alone: all were started below it
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("gateways"))
    try:
        running.until_ready()
        yield running
    finally:
        running.close()


def test_a_load_brings_a_second_replica(cluster: Cluster) -> None:
    """Eight listeners want more than a third of eight streams."""
    errors, heard = cluster.load(40.0, lambda: cluster.until(lambda: len(cluster.gateways()) == 2))
    assert errors.keys() <= {"overloaded"}
    assert heard > 0


def test_nobody_notices_that_a_replica_is_killed(cluster: Cluster) -> None:
    """Its server is told by the kernel, and lets its listeners hear all; another replica comes."""
    killed: list[int] = []

    def kill() -> None:
        killed.append(cluster.busiest())
        os.kill(cluster.gateways()[killed[0]], signal.SIGKILL)

    errors, heard = cluster.load(20.0, kill)
    assert errors.keys() <= {"overloaded", "draining"}
    assert heard >= LISTENERS
    cluster.until(lambda: killed[0] not in cluster.gateways() and len(cluster.gateways()) == 2)


def test_a_server_that_dies_takes_its_own_listeners_alone(cluster: Cluster) -> None:
    killed: list[int] = []

    def kill() -> None:
        killed.append(cluster.busiest())
        os.kill(killed[0], signal.SIGKILL)

    errors, heard = cluster.load(20.0, kill)
    assert 0 < errors["connection_lost"] <= LISTENERS
    assert errors.keys() <= RETRYABLE
    assert heard >= LISTENERS
    cluster.until(lambda: killed[0] not in cluster.gateways() and len(cluster.gateways()) == 2)


def test_all_are_started_anew_while_they_speak(cluster: Cluster) -> None:
    before = cluster.gateways()
    errors, heard = cluster.load(40.0, lambda: cluster.start_anew("2"))
    assert errors.keys() <= {"overloaded", "draining"}
    assert heard >= LISTENERS
    cluster.until(lambda: not before.keys() & cluster.gateways().keys())
