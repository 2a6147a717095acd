"""Engine clients over workers without a model, and what tests do with them."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_worker import fake_worker_command
from processes import worker_pids

from realtime_tts.contract import frames
from realtime_tts.workers.client import EngineClient, RequestStream
from realtime_tts.workers.pool import WorkerPool
from realtime_tts.workers.supervisor import WorkerSpec

QUICK = WorkerSpec(ready_timeout_s=60, hang_s=3.0, backoff_s=0.05, max_backoff_s=0.2, stop_s=2)
MakeClient = Callable[..., Any]


class Journal:
    """What fake workers have received, where they were started with `journal=journal.path`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "journal"

    def frames(self, *types: str) -> dict[str, list[tuple[str, str]]]:
        """(type, voice id) of each frame in order, of these types or all, by process."""
        found: dict[str, list[tuple[str, str]]] = {}
        for line in self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []:
            pid, kind, voice_id = line.split(" ")
            if not types or kind in types:
                found.setdefault(pid, []).append((kind, voice_id))
        return found


def num_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
async def make_client(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[MakeClient]:
    """Start clients; afterwards nothing of them is left: tasks, descriptors, temporary files, processes."""
    tmp_path_factory.getbasetemp()  # a test's own files are not to lie in what follows
    directory = tempfile.mkdtemp()  # not tmp_path: a socket's path may have 100 characters or so
    monkeypatch.setattr("tempfile.tempdir", directory)
    clients: list[EngineClient] = []
    before, tasks = num_fds(), asyncio.all_tasks()

    async def make(
        num_workers: int = 1,
        each: Sequence[dict[str, object]] | None = None,
        unload_after_s: float = 0.0,
        **options: object,
    ) -> EngineClient:
        """`each`: options of one worker; the client is returned when the first is ready, otherwise when all are."""
        commands = [fake_worker_command(**options, **own) for own in each or [{}] * num_workers]
        specs = [
            dataclasses.replace(QUICK, command=command, name=f"fake-{index}") for index, command in enumerate(commands)
        ]
        client = EngineClient(WorkerPool(specs, unload_after_s))
        clients.append(client)
        await client.start()
        while each is None and client.num_ready < num_workers:
            await asyncio.sleep(0.01)
        return client

    yield make
    for client in clients:
        await client.close()
        assert client.num_requests == 0
        assert worker_pids(client) == []

    def left() -> set[Any]:
        return asyncio.all_tasks() - tasks - {asyncio.current_task()}

    patience = asyncio.get_running_loop().time() + 10.0
    while (left() or num_fds() > before) and asyncio.get_running_loop().time() < patience:
        await asyncio.sleep(0.01)  # transports close with a later turn of the loop
    assert left() == set()
    os.rmdir(directory)  # fails unless empty
    assert num_fds() <= before


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


async def collect(stream: RequestStream) -> tuple[bytes, frames.Message]:
    pcm, last, sequence = b"", None, 0
    async for message in stream:
        assert last is None, "a message after the terminal one"
        if isinstance(message, frames.Audio):
            assert message.sequence == sequence
            sequence += 1
            pcm += message.payload
        else:
            last = message
    assert last is not None
    return pcm, last


def speak(
    client: EngineClient, text: str, context_id: str = "c", request_id: str = "r", **fields: Any
) -> RequestStream:
    return client.submit(frames.Generate(request_id, context_id, text, **{"voice": "slt", **fields}))


async def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(poll(), timeout_s)
