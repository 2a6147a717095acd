"""Fifty hostile sockets of each kind cost the gateway 64 MiB at most in all, and honest clients nothing.

Resident memory of the process at its peak, garbage and what the allocator keeps included, against that before.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_sockets import ATTACKS, FLOODS, attack_until
from stream_client import open_stream

SCRIPT = Path(__file__).resolve().parents[1] / "support" / "serve_fake.py"
MIB = 1024 * 1024
NUM_SOCKETS = 50
SECONDS = float(os.environ.get("CHAOS_SECONDS", "60"))  # of each kind
MAX_GROWTH_MIB = 64

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")


class Gateway:
    """The server as a process of its own."""

    def __init__(self, log: Path) -> None:
        settings = json.dumps({"max_sessions": 64, "resume_window_s": 5.0, "slow_consumer_timeout_s": 5.0})
        # More streams than the hostile clients can hold: refusals of a full engine are tested elsewhere.
        command = [sys.executable, str(SCRIPT), settings, json.dumps({"max_streams": 1024})]
        with log.open("w") as stderr:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self.process.stdout is not None
        self.url = json.loads(self.process.stdout.readline())["url"].replace("http", "ws", 1) + "/v1/stream"

    def memory(self) -> int:
        """Resident bytes."""
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path / "log.txt")
    yield gateway
    gateway.close()
    log = (tmp_path / "log.txt").read_text()
    assert "Traceback" not in log
    assert "socket.send() raised" not in log
    assert "crashed" not in log


async def speaks(url: str) -> None:
    async with open_stream(url) as client:
        await client.speak("honest", "Hello there, still here.")
        assert (await client.until_terminal("honest", 20))["type"] == "context.done"


async def peak_under_attack(gateway: Gateway, name: str, num_sockets: int, seconds: float) -> int:
    """The most memory that the gateway used meanwhile."""
    end = time.monotonic() + seconds
    url = gateway.url.replace("/v1/stream", name) if name in FLOODS else gateway.url
    hostiles = [asyncio.create_task(attack_until(url, ATTACKS[name], end)) for _ in range(num_sockets)]
    peak = gateway.memory()
    while not all(hostile.done() for hostile in hostiles):
        await asyncio.sleep(0.1)
        peak = max(peak, gateway.memory())
    assert sum(await asyncio.gather(*hostiles)) >= num_sockets * min(1, seconds // 5)
    return peak


async def growth_mib(gateway: Gateway, num_sockets: int, seconds: float) -> float:
    """Return how much the gateway's memory grows at most under one attack after the other; print a table."""
    await speaks(gateway.url)
    baseline = highest = gateway.memory()
    sys.stdout.write(
        f"\n| {num_sockets} sockets, {seconds:g} s each | before, MiB | peak | soon after |\n|---|---|---|---|\n"
    )
    for name in ATTACKS:
        before = gateway.memory()
        peak = await peak_under_attack(gateway, name, num_sockets, seconds)
        await asyncio.sleep(min(0.5, seconds / 5))
        await speaks(gateway.url)
        row = (f"{(memory - baseline) / MIB:.1f}" for memory in (before, peak, gateway.memory()))
        sys.stdout.write(f"| {name} | {' | '.join(row)} |\n")
        highest = max(highest, peak)
    return (highest - baseline) / MIB


async def test_a_few_hostile_sockets_cost_little(gateway: Gateway) -> None:
    assert await growth_mib(gateway, num_sockets=6, seconds=0.5) <= 32


@pytest.mark.slow
@pytest.mark.timeout(len(ATTACKS) * (SECONDS * 2 + 30))
async def test_hostile_sockets_of_all_kinds_cost_so_much_and_no_more(gateway: Gateway) -> None:
    assert await growth_mib(gateway, NUM_SOCKETS, SECONDS) <= MAX_GROWTH_MIB
