"""One `realtime-tts serve` as a child of a replica: start, health check, drain. Linux."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

_ASK_S = 2.0
_POLL_S = 0.1
_GAUGE = re.compile(r"^realtime_tts_engine_(\w+) ([0-9.e+]+)$", re.M)


@dataclasses.dataclass(frozen=True, slots=True)
class Occupancy:
    """Occupancy: streams that are speaking, waiting or ahead of their listeners; and the capacity."""

    streams: float
    capacity: float


class GatewayProcess:
    """Server on a free port of an address of this machine. Its keeper drains it when the starting process dies.

    Args:
        command: command line of the server; settings are passed through the environment.
        host: address to listen on. Beyond loopback the server needs keys.
        settings: further settings, by the names of their environment variables.
    """

    def __init__(self, command: Sequence[str], host: str, settings: Mapping[str, str], drain_s: float) -> None:
        self.host, self.port = host, _free_port(host)
        metrics_port = _free_port("127.0.0.1")
        self._metrics_port = self.port if host == "127.0.0.1" else metrics_port
        environment = {
            **os.environ,
            **settings,
            "REALTIME_TTS_HOST": host,
            "REALTIME_TTS_PORT": str(self.port),
            "REALTIME_TTS_METRICS_ADDRESS": f"127.0.0.1:{metrics_port}",
            "REALTIME_TTS_DRAIN_TIMEOUT_S": str(drain_s),
        }
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("keeper.py")), str(drain_s), *command],
            env=environment,
            stdin=subprocess.PIPE,
            start_new_session=True,  # signals to the replica's process group must not reach it
        )

    async def until_ready(self, timeout_s: float) -> None:
        """Wait until the server is ready. Raises RuntimeError: it ended, or the time is over."""
        end_s = time.monotonic() + timeout_s
        while not await self._answers("/readyz"):
            self._check_running()
            if time.monotonic() > end_s:
                raise RuntimeError(f"the server was not ready after {timeout_s:.0f} s")
            await asyncio.sleep(_POLL_S)

    async def check(self) -> None:
        """Check the server. Raises RuntimeError: it has ended, or reports that a part of it has failed."""
        self._check_running()
        if not await self._answers("/healthz"):
            raise RuntimeError("the server is not healthy")

    async def occupancy(self) -> Occupancy:
        """Return the occupancy. Raises OSError: the server does not answer."""
        text = await asyncio.to_thread(_get, f"http://127.0.0.1:{self._metrics_port}/metrics")
        gauges = {name: float(value) for name, value in _GAUGE.findall(text)}
        held = gauges["running"] + gauges["parked"]
        return Occupancy(held + gauges["waiting"], held + gauges["free_slots"])

    async def drain(self) -> None:
        """End the server after its running speech."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await asyncio.to_thread(self._process.wait)

    def _check_running(self) -> None:
        if (status := self._process.poll()) is not None:
            raise RuntimeError(f"the server ended with status {status}")

    async def _answers(self, path: str) -> bool:
        try:
            await asyncio.to_thread(_get, f"http://{self.host}:{self.port}{path}")
        except OSError:
            return False
        return True


def _get(url: str) -> str:
    # The server accepts its own names without a key, on any listening address.
    request = urllib.request.Request(url, headers={"Host": "localhost"})
    with urllib.request.urlopen(request, timeout=_ASK_S) as response:
        return str(response.read().decode())


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
