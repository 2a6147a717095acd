"""Two CPU workers with the starter voice behind two gateways: one is killed, both are replaced, while people speak."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest
from stream_client import open_stream

from realtime_tts.bench.server_process import RunningServer, running_server
from realtime_tts.bench.usage import descendants

PATIENT_S = 120.0
TEXT = "Somebody speaks on while workers come and go. "

pytestmark = pytest.mark.slow


def workers(server: RunningServer) -> set[int]:
    """Process ids; every worker is told its clients' socket, and no gateway is."""
    return {pid for pid in descendants([server.pid]) if b"--clients" in arguments(pid)}


def arguments(pid: int) -> list[bytes]:
    """Arguments of a process; none of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def devices(server: RunningServer) -> list[tuple[str, int]]:
    ready = json.loads(server.get("/readyz"))
    return [(device["state"], device["losses"]) for device in ready["devices"]]


async def until_serving(server: RunningServer, others_than: set[int]) -> None:
    end = time.monotonic() + PATIENT_S
    while True:
        assert time.monotonic() < end
        found = await asyncio.to_thread(workers, server)
        if len(found) == 2 and not found & others_than:
            states = await asyncio.to_thread(devices, server)
            if all(state == "serving" for state, _ in states):
                return
        await asyncio.sleep(0.2)


async def speak_on(server: RunningServer, name: str, is_over: asyncio.Event) -> list[dict[str, object]]:
    """One context after the other on one connection: how each has ended."""
    ends = []
    async with open_stream(server.stream_url) as client:
        while not is_over.is_set():
            context = f"{name}-{len(ends)}"
            await client.speak(context, TEXT)
            ends.append(await client.until_terminal(context, PATIENT_S))
    return ends


async def test_workers_are_replaced_and_killed_while_streams_speak() -> None:
    flags = ("--devices=cpu,cpu", "--threads=1", "--gateways=2", "--max-late-ms=0", "--max-queued=16")
    with running_server(*flags) as server:
        await until_serving(server, set())
        before, is_over = workers(server), asyncio.Event()
        callers = [asyncio.create_task(speak_on(server, name, is_over)) for name in "ab"]
        await asyncio.sleep(2.0)
        os.kill(server.pid, signal.SIGHUP)
        await until_serving(server, before)
        is_over.set()
        ends = [end for told in await asyncio.gather(*callers) for end in told]
        assert {end["type"] for end in ends} == {"context.done"}, "a worker that is replaced loses nothing"
        assert devices(server) == [("serving", 0)] * 2

        victim, is_over = min(workers(server)), asyncio.Event()
        callers = [asyncio.create_task(speak_on(server, name, is_over)) for name in "cd"]
        await asyncio.sleep(2.0)
        os.kill(victim, signal.SIGKILL)
        await until_serving(server, {victim})
        is_over.set()
        ends = [end for told in await asyncio.gather(*callers) for end in told]
        failed = [end for end in ends if end["type"] != "context.done"]
        assert all((end["code"], end["retryable"]) == ("engine_lost", True) for end in failed)
        assert len(failed) <= 2 < len(ends)
        assert sorted(losses for _, losses in devices(server)) == [0, 1]
