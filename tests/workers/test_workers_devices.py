"""Devices that fail, that come back, that do not, and that are given new workers while others speak."""

from __future__ import annotations

import asyncio
import os
import signal
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from client_harness import Journal, MakeClient, collect, speak, until

from realtime_tts.contract import frames
from realtime_tts.workers import recovery
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.pool import WorkerPool
from realtime_tts.workers.recovery import DeviceState

PATIENT_S = 30.0


def pool_of(client: EngineClient) -> WorkerPool:
    assert isinstance(client.keeper, WorkerPool)
    return client.keeper


def states(client: EngineClient) -> list[str]:
    return [report.state.value for report in client.keeper.devices]


def worker_of(client: EngineClient, context_id: str) -> int:
    (found,) = [
        number for number, worker in enumerate(client.workers) if client._context_workers.get(context_id) is worker
    ]
    return found


async def kill(client: EngineClient, number: int) -> None:
    """Kill a worker, and wait until its successor is ready."""
    supervisor = pool_of(client).supervisors[number]
    num_lost = client.keeper.devices[number].losses
    assert supervisor.pid is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    await until(lambda: client.keeper.devices[number].losses == num_lost + 1, PATIENT_S)
    await until(lambda: supervisor.ready is not None, PATIENT_S)


def on_worker(client: EngineClient, number: int, text: str) -> str:
    """Speak at that worker; the context's name."""
    others = [worker for index, worker in enumerate(client.workers) if index != number]
    for worker in others:
        worker.num_others += 1000  # as if they had much to do
    name = f"on-{number}-{text}"
    stream = speak(client, text, name, name)
    for worker in others:
        worker.num_others -= 1000
    assert worker_of(client, name) == number
    assert stream.request_id in client.workers[number].requests
    return name


async def test_a_device_that_loses_worker_after_worker_gets_no_context_until_one_has_stayed(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "FIRST_S", 1.5)
    monkeypatch.setattr(recovery, "FORGIVEN", 1)
    client = await make_client(2, real_time_streams=4)
    await until(lambda: client.num_streams == 8, PATIENT_S)
    for _ in range(recovery.FORGIVEN):
        await kill(client, 0)
        await until(lambda: client.num_ready == 2, PATIENT_S)
        assert states(client) == ["serving", "serving"]
    on_worker(client, 0, "[never]")
    stream = client.workers[0].requests["on-0-[never]"]
    await kill(client, 0)
    messages = [message async for message in stream]
    assert isinstance(messages[-1], frames.Failed)
    assert messages[-1].code == "engine_lost"
    assert states(client) == ["recovering", "serving"]
    assert (client.num_ready, client.num_streams) == (1, 4)
    for number in range(4):
        speak(client, "[never]", f"c{number}", f"r{number}")
        assert worker_of(client, f"c{number}") == 1
    await until(lambda: client.num_streams == 8, PATIENT_S)
    assert states(client) == ["serving", "serving"]
    speak(client, "[never]", "new", "new")
    assert worker_of(client, "new") == 0


async def test_a_worker_on_a_device_that_is_not_trusted_serves_if_it_is_the_only_one(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "FIRST_S", 1000.0)
    monkeypatch.setattr(recovery, "FORGIVEN", 0)
    client = await make_client(2)
    await kill(client, 0)
    assert states(client) == ["recovering", "serving"]
    supervisor = pool_of(client).supervisors[1]
    assert supervisor.pid is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    await until(lambda: states(client)[0] == "serving", PATIENT_S)
    await until(lambda: client.num_ready >= 1, PATIENT_S)
    _, done = await collect(speak(client, "hello"))
    assert isinstance(done, frames.Done)


async def test_the_only_device_is_trusted_whatever_it_has_done(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "FIRST_S", 1000.0)
    monkeypatch.setattr(recovery, "FORGIVEN", 0)
    client = await make_client(1)
    await kill(client, 0)
    await until(lambda: client.num_ready == 1, PATIENT_S)
    assert states(client) == ["serving"]


async def test_all_workers_read_the_first_ones_files_of_a_model_whatever_the_hub_has_by_then(
    make_client: MakeClient, tmp_path: Path
) -> None:
    def revisions() -> list[str | None]:
        return [worker.ready and worker.ready.revision for worker in client.workers]

    gate = tmp_path / "gate"
    client = await make_client(each=[{"revision": "old"}, {"revision": "new", "ready_gate": gate}])
    gate.touch()
    await until(lambda: None not in revisions(), PATIENT_S)
    assert revisions() == ["old", "old"]
    await kill(client, 1)
    await until(lambda: None not in revisions(), PATIENT_S)
    assert revisions() == ["old", "old"]


async def test_without_a_device_that_cannot_come_back_the_rest_serves_on(
    make_client: MakeClient, tmp_path: Path, journal: Journal
) -> None:
    """And when it does come back it has the voices and the adapters that came meanwhile."""
    broken = tmp_path / "broken"
    each = [{"fail_when": broken, "real_time_streams": 3}, {"real_time_streams": 5}]
    client = await make_client(each=each, journal=journal.path)
    await until(lambda: client.num_streams == 8, PATIENT_S)
    broken.touch()
    supervisor = pool_of(client).supervisors[0]
    assert supervisor.pid is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    await until(lambda: supervisor.num_starts > 2, PATIENT_S)
    await until(lambda: states(client) == ["failed", "serving"], PATIENT_S)
    await until(lambda: client.num_streams == 5, PATIENT_S)
    assert client.num_ready
    client.add_voice(frames.AddVoice("voice_new", 2, 0, 1, 1, payload=array("f", range(2)).tobytes()))
    await client.adapters.load(frames.AddAdapter("accent", str(tmp_path)))
    _, done = await collect(speak(client, "hello", voice="voice_new", adapter="accent"))
    assert isinstance(done, frames.Done)
    broken.unlink()
    await until(lambda: client.num_streams == 8, PATIENT_S)
    assert states(client) == ["serving", "serving"]
    await until(lambda: client.workers[0].adapters["accent"] is not None, PATIENT_S)
    client.workers[1].num_others = 1000
    _, done = await collect(speak(client, "hello", "d", "s", voice="voice_new", adapter="accent"))
    assert isinstance(done, frames.Done)
    assert worker_of(client, "d") == 0


async def speak_on(client: EngineClient, name: str, is_over: Callable[[], bool], ends: list[frames.Message]) -> None:
    """One context after the other, of two segments each; how each segment has ended goes into `ends`."""
    number = 0
    while not is_over():
        number += 1
        context = f"{name}-{number}"
        for segment in ("one", "two"):
            _, end = await collect(speak(client, "some words", context, f"{context}-{segment}"))
            ends.append(end)
            await asyncio.sleep(0.01)  # nothing of the context is at work for a moment
        client.close_context(context)


async def test_workers_are_replaced_one_after_the_other_and_no_request_is_lost(make_client: MakeClient) -> None:
    client = await make_client(2, real_time_streams=4)
    pool = pool_of(client)
    pids = [supervisor.pid for supervisor in pool.supervisors]
    client.add_voice(frames.AddVoice("voice_old", 2, 0, 1, 1, payload=array("f", range(2)).tobytes()))
    ready_at_once: list[int] = []

    def is_over() -> bool:
        ready_at_once.append(sum(supervisor.ready is not None for supervisor in pool.supervisors))
        replaced = [s.pid not in (None, pid) for s, pid in zip(pool.supervisors, pids, strict=True)]
        return all(replaced) and client.num_ready == 2

    ends: list[frames.Message] = []
    callers = [asyncio.create_task(speak_on(client, name, is_over, ends)) for name in "abcd"]
    await asyncio.sleep(0.05)
    pool.replace_all()
    pool.replace_all()  # which changes nothing
    await asyncio.wait_for(asyncio.gather(*callers), PATIENT_S)
    assert {type(end) for end in ends} == {frames.Done}
    assert all(isinstance(end, frames.Done) and end.finish_reason == "stop" for end in ends)
    assert min(ready_at_once) >= 1  # on a loaded machine a worker may be back between two looks
    assert [report.losses for report in client.keeper.devices] == [0, 0]
    _, done = await collect(speak(client, "hello", "v", "v", voice="voice_old"))
    assert isinstance(done, frames.Done)


async def test_a_worker_that_leaves_waits_for_its_contexts_and_gets_no_new_ones(make_client: MakeClient) -> None:
    client = await make_client(2, real_time_streams=4)
    await collect(speak(client, "first", "open", "a"))
    leaving = worker_of(client, "open")
    supervisor = pool_of(client).supervisors[leaving]
    pid = supervisor.pid
    supervisor.leave()
    await until(lambda: states(client)[leaving] == "leaving" and client.num_ready == 1, PATIENT_S)
    await until(lambda: client.num_streams == 4, PATIENT_S)
    for number in range(6):
        speak(client, "[never]", f"c{number}", f"r{number}")
        assert worker_of(client, f"c{number}") != leaving
    await asyncio.sleep(1.0)
    _, done = await collect(speak(client, "second", "open", "b"))
    assert isinstance(done, frames.Done)
    assert (worker_of(client, "open"), supervisor.pid) == (leaving, pid)
    client.close_context("open")
    await until(lambda: client.num_ready == 2, PATIENT_S)
    assert supervisor.pid != pid
    assert states(client) == ["serving", "serving"]


async def test_a_context_is_spoken_where_its_draft_was_made_unless_that_worker_leaves(make_client: MakeClient) -> None:
    client = await make_client(2, real_time_streams=4)
    for name in ("stays", "moves"):
        client.draft(frames.Generate(f"{name}/0", name, "hello", draft=True))
    (drafting,) = {client.workers.index(worker) for worker in client._draft_workers.values()}
    _, done = await collect(speak(client, "hello", "stays", "stays/0"))
    assert isinstance(done, frames.Done)
    assert done.num_remembered == 1
    assert worker_of(client, "stays") == drafting
    client.close_context("stays")
    pool_of(client).supervisors[drafting].leave()
    await until(lambda: states(client)[drafting] == "leaving" and client.num_ready == 1, PATIENT_S)
    _, done = await collect(speak(client, "hello", "moves", "moves/0"))
    assert isinstance(done, frames.Done)
    assert done.num_remembered == 0
    client.close_context("moves")
    assert not client._draft_workers
    client.draft(frames.Generate("dropped/0", "dropped", "hello", draft=True))
    client.close_context("dropped")
    assert not client._draft_workers


async def test_when_the_only_worker_leaves_new_contexts_can_be_tried_again(make_client: MakeClient) -> None:
    client = await make_client(1)
    await collect(speak(client, "first", "open", "a"))
    pool_of(client).replace_all()
    await until(lambda: client.num_ready == 0, PATIENT_S)
    with pytest.raises(Exception, match="no engine worker") as caught:
        speak(client, "x", "new", "r")
    assert caught.value.retryable  # type: ignore[attr-defined]
    client.close_context("open")
    await until(lambda: client.num_ready, PATIENT_S)
    await collect(speak(client, "x", "new", "r"))


async def test_a_device_that_never_was_ready_is_told_as_that(make_client: MakeClient, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    client = await make_client(each=[{"ready_gate": gate}, {}, {"fail_start": True}])
    await until(lambda: states(client) == ["starting", "serving", "failed"], PATIENT_S)
    assert [report.device for report in client.keeper.devices] == ["", "cpu", ""]
    assert client.keeper.devices[2].losses > 0
    gate.touch()
    await until(lambda: states(client)[0] == DeviceState.SERVING.value, PATIENT_S)
