"""A model that nothing uses gives its memory back, and is loaded again when it is wanted. Times are made up."""

from __future__ import annotations

import asyncio
import os
import signal
from array import array
from pathlib import Path

import pytest
from client_harness import MakeClient, collect, speak, until

from realtime_tts.contract import frames
from realtime_tts.errors import EngineLost
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.pool import WorkerPool

LONG_S = 60.0


def pool_of(client: EngineClient) -> WorkerPool:
    assert isinstance(client.keeper, WorkerPool)
    return client.keeper


def states(client: EngineClient) -> list[tuple[str, int]]:
    return [(report.state.value, report.losses) for report in client.keeper.devices]


def pids(client: EngineClient) -> list[int]:
    return [supervisor.pid for supervisor in pool_of(client).supervisors if supervisor.pid is not None]


async def unload(client: EngineClient) -> None:
    client.keeper.note_use(False, 0.0)
    client.keeper.note_use(False, 1e9)
    assert client.keeper.is_unloaded
    await until(lambda: pids(client) == [] and client.num_ready == 0)


async def says_hello(client: EngineClient) -> bool:
    _, done = await collect(speak(client, "hello"))
    client.close_context("c")
    return isinstance(done, frames.Done)


async def test_time_without_use_counts_from_the_last_use(make_client: MakeClient) -> None:
    client = await make_client(2, unload_after_s=10)
    keeper = client.keeper
    for is_used, now in ((False, 100), (False, 109.9), (True, 200), (False, 300), (False, 309.9)):
        keeper.note_use(is_used, now)
        assert not keeper.is_unloaded
    assert states(client) == [("serving", 0)] * 2
    keeper.note_use(False, 310)
    assert keeper.is_unloaded
    assert client.is_unloaded
    keeper.note_use(False, 1e9)
    await until(lambda: pids(client) == [])
    assert states(client) == [("unloaded", 0)] * 2


async def test_a_model_that_is_loaded_again_at_once_stays_loaded(make_client: MakeClient) -> None:
    client = await make_client(unload_after_s=10)
    await unload(client)
    await client.load(LONG_S)  # no `note_use` in between
    client.keeper.note_use(False, 1e9 + 1)
    assert not client.keeper.is_unloaded
    assert states(client) == [("serving", 0)]


async def test_by_default_a_model_stays(make_client: MakeClient) -> None:
    client = await make_client()
    client.keeper.note_use(False, 0.0)
    client.keeper.note_use(False, 1e12)
    assert not client.keeper.is_unloaded
    assert states(client) == [("serving", 0)]


async def test_it_is_loaded_again_with_what_was_added_meanwhile(make_client: MakeClient) -> None:
    client = await make_client(unload_after_s=10)
    for number in range(2):
        await unload(client)
        client.add_voice(frames.AddVoice(f"voice_{number}", 2, 0, 1, 1, payload=array("f", range(2)).tobytes()))
        await client.load(LONG_S)
        assert (client.is_unloaded, client.num_ready) == (False, 1)
        _, done = await collect(speak(client, "hello", voice=f"voice_{number}"))
        assert isinstance(done, frames.Done)
        client.close_context("c")
    assert states(client) == [("serving", 0)]
    assert client.keeper.num_restarts == 2


async def test_loading_ends_when_the_adapters_are_there_too(make_client: MakeClient, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    client = await make_client(unload_after_s=10, adapter_gate=gate)
    await client.adapters.load(frames.AddAdapter("accent", str(tmp_path)))
    await unload(client)
    gate.unlink()
    loading = asyncio.ensure_future(client.load(LONG_S))
    await until(lambda: client.num_ready == 1)
    assert client.is_unloaded
    assert not loading.done()
    gate.touch()
    await loading
    _, done = await collect(speak(client, "hello", adapter="accent"))
    assert isinstance(done, frames.Done)


async def test_loading_ends_when_the_adapter_that_it_waits_for_is_unloaded(
    make_client: MakeClient, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    client = await make_client(unload_after_s=10, adapter_gate=gate)
    await client.adapters.load(frames.AddAdapter("accent", str(tmp_path)))
    await unload(client)
    gate.unlink()
    loading = asyncio.ensure_future(client.load(LONG_S))
    await until(lambda: client.num_ready == 1)
    assert client.is_unloaded
    client.adapters.unload("accent", everywhere=True)
    assert not client.is_unloaded
    await loading
    assert await says_hello(client)


async def test_use_alone_loads_it(make_client: MakeClient) -> None:
    client = await make_client(unload_after_s=10)
    await unload(client)
    client.keeper.note_use(True, 0.0)
    await until(lambda: client.num_ready == 1)
    assert await says_hello(client)


async def test_a_request_that_comes_too_early_fails_and_has_it_loaded(make_client: MakeClient) -> None:
    client = await make_client(unload_after_s=10)
    await unload(client)
    with pytest.raises(EngineLost):
        speak(client, "hello")
    await client.load(LONG_S)
    assert await says_hello(client)


async def test_waiting_ends_with_the_time_limit_or_a_failure_and_starts_go_on(
    make_client: MakeClient, tmp_path: Path
) -> None:
    broken, gate = tmp_path / "broken", tmp_path / "gate"
    gate.touch()
    client = await make_client(unload_after_s=10, fail_when=broken, ready_gate=gate)
    await unload(client)
    gate.unlink()
    await client.load(0.01)
    assert client.is_unloaded
    assert states(client) == [("starting", 0)]
    gate.touch()
    await client.load(LONG_S)
    assert await says_hello(client)
    await unload(client)
    broken.touch()
    await client.load(LONG_S)
    assert (client.is_unloaded, client.num_ready) == (False, 0)
    broken.unlink()
    await until(lambda: client.num_ready == 1)
    assert await says_hello(client)


async def test_speech_that_began_before_is_finished(make_client: MakeClient) -> None:
    client = await make_client(unload_after_s=10)
    stream = speak(client, "hello there")
    client.keeper.note_use(False, 0.0)
    client.keeper.note_use(False, 1e9)
    assert client.keeper.is_unloaded
    _, done = await collect(stream)
    assert isinstance(done, frames.Done)
    client.close_context("c")
    await until(lambda: pids(client) == [])
    assert states(client) == [("unloaded", 0)]


async def test_a_worker_that_dies_while_it_is_unloaded_is_replaced(make_client: MakeClient) -> None:
    client = await make_client(unload_after_s=10)
    speak(client, "[never]", "doomed")
    (pid,) = pids(client)
    os.kill(pid, signal.SIGSTOP)  # it cannot say any more that it leaves
    client.keeper.note_use(False, 0.0)
    client.keeper.note_use(False, 1e9)
    assert client.keeper.is_unloaded
    os.kill(pid, signal.SIGKILL)
    await until(lambda: pids(client) not in ([], [pid]) and client.num_ready == 1)
    assert await says_hello(client)


async def test_an_unloaded_engine_is_closed_at_once(make_client: MakeClient) -> None:
    client = await make_client(unload_after_s=10)
    await unload(client)
    await client.close()
    assert not client.is_unloaded
