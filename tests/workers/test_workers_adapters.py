"""Adapters on every worker, present and future, seen from the gateway's side."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from client_harness import MakeClient, collect, speak, until
from processes import worker_pids

from realtime_tts.contract import frames
from realtime_tts.errors import AdapterError, AdapterExists, AdapterNotFound, EngineLost, TooManyAdapters
from realtime_tts.speech.adapters import AdapterRegistry
from realtime_tts.workers.adapters import AdapterLoads
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.worker_view import WorkerView


def message(directory: Path, name: str = "a") -> frames.AddAdapter:
    return frames.AddAdapter(name, str(directory))


async def ends(client: EngineClient, text: str = "01234567", **fields: Any) -> str:
    _, last = await collect(speak(client, text, **fields))
    return last.code if isinstance(last, frames.Failed) else "spoken"


async def test_an_adapter_is_loaded_on_every_worker_spoken_with_and_unloaded(
    make_client: MakeClient, tmp_path: Path
) -> None:
    client = await make_client(num_workers=2)
    with pytest.raises(AdapterNotFound):
        speak(client, "before", adapter="a")
    added = await client.adapters.load(message(tmp_path))
    assert (added.name, added.rank, added.digest) == ("a", 8, tmp_path.name)
    streams = [speak(client, "01234567", f"c{n}", f"r{n}", adapter="a") for n in range(4)]
    last = [(await collect(stream))[1] for stream in streams]
    assert all(isinstance(each, frames.Done) for each in last)
    with pytest.raises(AdapterExists):
        await client.adapters.load(message(tmp_path))
    running = speak(client, "[never]", "c", adapter="a")
    other = speak(client, "[never]", "d", "other")
    await anext(running)
    client.adapters.unload("a")
    client.adapters.unload("a")
    *_, end = [each async for each in running]
    assert isinstance(end, frames.Failed)
    assert end.code == "adapter_not_found"
    assert isinstance(await anext(other), frames.Audio)
    client.workers[0].send(frames.Cancel("other"))
    with pytest.raises(AdapterNotFound):
        speak(client, "after", "e", adapter="a")


async def test_a_crash_while_the_configured_adapters_are_loaded_is_retried(
    make_client: MakeClient, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    client = await make_client(adapter_gate=gate)
    loading = asyncio.create_task(AdapterRegistry(client).load_all({"a": str(tmp_path)}))
    await until(lambda: "a" in client.workers[0].adapters)
    os.kill(worker_pids(client)[0], signal.SIGKILL)
    gate.touch()
    await loading
    assert await ends(client, adapter="a", voice=None) == "spoken"


async def test_what_one_worker_cannot_load_no_worker_keeps(make_client: MakeClient, tmp_path: Path) -> None:
    client = await make_client(num_workers=2, max_adapters=1)
    with pytest.raises(AdapterNotFound, match="no such directory"):
        await client.adapters.load(message(tmp_path / "nothing"))
    await client.adapters.load(message(tmp_path))
    with pytest.raises(TooManyAdapters):
        await client.adapters.load(message(tmp_path, "b"))
    with pytest.raises(AdapterNotFound):
        speak(client, "x", adapter="b")
    client.adapters.unload("a")
    await client.adapters.load(message(tmp_path, "b"))
    assert await ends(client, adapter="b") == "spoken"


async def test_a_worker_that_comes_again_loads_them_before_it_speaks_with_them(
    make_client: MakeClient, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    client = await make_client(adapter_gate=gate)
    await client.adapters.load(message(tmp_path))
    gate.unlink()
    (pid,) = worker_pids(client)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: client.num_ready == 0)
    await until(lambda: client.num_ready == 1)
    with pytest.raises(EngineLost, match="has loaded the adapter yet"):
        speak(client, "x", adapter="a")
    assert await ends(client, context_id="plain") == "spoken"
    gate.touch()

    async def is_spoken_with() -> bool:
        try:
            return await ends(client, context_id="again", request_id="again", adapter="a") == "spoken"
        except EngineLost:
            return False

    while not await is_spoken_with():
        await asyncio.sleep(0.01)


async def test_a_worker_lost_while_it_loads_is_no_answer(make_client: MakeClient, tmp_path: Path) -> None:
    client = await make_client(adapter_gate=tmp_path / "gate")
    loading = asyncio.ensure_future(client.adapters.load(message(tmp_path)))
    await asyncio.sleep(0)
    (pid,) = worker_pids(client)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineLost):
        await loading
    await until(lambda: client.num_ready == 1)
    with pytest.raises(AdapterNotFound):
        speak(client, "x", adapter="a")


class Loads:
    """`AdapterLoads` with workers that note what they are sent."""

    def __init__(self, *workers: str) -> None:
        self.sent: list[tuple[str, str]] = []
        self.workers = {name: WorkerView(name) for name in ("w1", "w2")}
        self.loads = AdapterLoads(list(self.workers.values()))
        for worker in workers:
            self.ready(worker)

    def ready(self, name: str) -> None:
        worker: Any = self.workers[name]
        worker.link = SimpleNamespace(send=lambda message: self.sent.append((name, message.type)))
        worker.ready = frames.Ready("m", "cpu", "float32", "sdpa", 24_000, 3840)
        self.loads.worker_ready(worker)

    def take(self, name: str, message: frames.AdapterAdded | frames.AdapterFailed) -> None:
        self.loads.take(self.workers[name], message)

    def has(self, name: str) -> bool:
        return isinstance(self.workers[name].adapters.get("a"), frames.AdapterAdded)

    async def begin(self, name: str = "a") -> asyncio.Task[frames.AdapterAdded]:
        task = asyncio.ensure_future(self.loads.load(frames.AddAdapter(name, "/a")))
        await asyncio.sleep(0)
        return task


ADDED = frames.AdapterAdded("a", 8, "d")


async def test_a_load_ends_when_every_worker_has_answered_or_gone() -> None:
    one = Loads("w1", "w2")
    task = await one.begin()
    one.take("w1", ADDED)
    await asyncio.sleep(0)
    assert not task.done()
    one.workers["w2"].forget()
    assert await task == ADDED
    assert (one.has("w1"), one.has("w2")) == (True, False)


async def test_a_cancelled_load_is_undone() -> None:
    one = Loads("w1", "w2")
    task = await one.begin()
    one.take("w1", ADDED)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert one.sent[-2:] == [("w1", "remove_adapter"), ("w2", "remove_adapter")]
    one.take("w2", ADDED)  # it had done it by then
    assert not one.has("w2")
    with pytest.raises(AdapterNotFound):
        one.loads.check("a")


async def test_a_worker_that_becomes_ready_during_a_load_is_part_of_it() -> None:
    """If another worker cannot load the adapter, it does not keep it either."""
    one = Loads("w1")
    task = await one.begin()
    one.ready("w2")
    one.take("w2", ADDED)
    one.take("w1", frames.AdapterFailed("a", "adapter_error", "damaged"))
    with pytest.raises(AdapterError, match="damaged"):
        await task
    assert one.sent[-2:] == [("w1", "remove_adapter"), ("w2", "remove_adapter")]
    assert not one.has("w2")


async def test_unloading_ends_a_load_that_is_under_way() -> None:
    one = Loads("w1")
    task = await one.begin()
    one.loads.unload("a")
    with pytest.raises(AdapterNotFound, match="while it was being loaded"):
        await task


async def test_a_later_worker_that_cannot_load_it_says_so_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    one = Loads("w1")
    task = await one.begin()
    one.take("w1", ADDED)
    await task
    one.ready("w2")
    assert one.sent[-1] == ("w2", "add_adapter")
    one.take("w2", frames.AdapterFailed("a", "adapter_error", "damaged"))
    assert "worker w2 could not load the adapter a: damaged" in caplog.text
    assert one.has("w1")
