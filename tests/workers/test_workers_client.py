"""The gateway's side of the engine, against a worker without a model."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from array import array

import pytest
from client_harness import QUICK, MakeClient, collect, speak, until

from realtime_tts.errors import AudioDecodeError, CheckpointError, Draining, EngineLost, EngineStartError
from realtime_tts.workers import frames
from realtime_tts.workers.client import EngineClient, EngineState, RequestStream
from realtime_tts.workers.supervisor import SupervisorConfig, WorkerSpec


async def test_a_request_yields_every_sample_once_then_done(make_client: MakeClient) -> None:
    client = await make_client()
    pcm, done = await collect(speak(client, "0123456789"))
    assert array("h", pcm) == array("h", [k % 2000 - 1000 for k in range(3 * 2560)])
    assert isinstance(done, frames.Done)
    assert (done.finish_reason, done.num_patches) == ("stop", 3)
    assert client.ready is not None
    assert client.ready.default_voice == "slt"
    assert client.state is EngineState.READY


async def test_requests_of_a_context_run_in_order_and_contexts_side_by_side(make_client: MakeClient) -> None:
    client = await make_client(patch_delay_s=0.02)
    order: list[str] = []

    async def follow(stream: RequestStream) -> None:
        await collect(stream)
        order.append(stream.request_id)

    streams = [
        speak(client, "x" * 40, "a", "a1"),
        speak(client, "x" * 4, "a", "a2"),
        speak(client, "x" * 4, "b", "b1"),
    ]
    await asyncio.gather(*map(follow, streams))
    assert order == ["b1", "a1", "a2"]


async def test_cancel_ends_the_stream_at_once_and_nothing_follows(make_client: MakeClient) -> None:
    client = await make_client()
    stream = speak(client, "[never]")
    assert isinstance(await anext(stream), frames.Audio)
    client.cancel("r")
    rest = [message async for message in stream]
    assert [type(message) for message in rest] == [frames.Done]
    assert rest[0].finish_reason == "cancelled"
    client.cancel("r")
    client.cancel("unknown")
    await until(lambda: bool(client.stats) and client.stats[0].running == 0)
    assert client.num_requests == 0


async def test_closing_a_stream_or_its_context_cancels(make_client: MakeClient) -> None:
    client = await make_client()
    first, second = speak(client, "[never]", "a", "1"), speak(client, "[never]", "b", "2")
    await first.aclose()
    assert [message async for message in first] == []
    client.close_context("b")
    client.close_context("b")
    _, done = await collect(second)
    assert isinstance(done, frames.Done)
    assert done.finish_reason == "cancelled"
    await until(lambda: bool(client.stats) and client.stats[0].running == 0)


async def test_an_unknown_voice_fails_typed(make_client: MakeClient) -> None:
    client = await make_client()
    _, failed = await collect(speak(client, "x", voice="nobody"))
    assert isinstance(failed, frames.Failed)
    assert failed.code == "voice_not_found"


@pytest.mark.parametrize("how", ["[crash]", "[hang]", "kill"])
async def test_a_lost_worker_fails_its_requests_and_is_replaced(make_client: MakeClient, how: str) -> None:
    client = await make_client(patch_delay_s=0.01)
    states: list[EngineState] = []
    client._on_state_change = states.append
    stream = speak(client, f"[never]{how}")
    if how == "kill":
        await anext(stream)
        os.kill(client.worker_pids[0], signal.SIGKILL)
        _, failed = await asyncio.wait_for(_drop_first(stream), 5)
    else:
        _, failed = await asyncio.wait_for(collect(stream), 10)
    assert isinstance(failed, frames.Failed)
    assert failed.code == "engine_lost"
    with pytest.raises(EngineLost):
        speak(client, "x", "c2")
    await until(lambda: client.num_ready == 1)
    assert states == [EngineState.DOWN, EngineState.READY]
    assert client.num_restarts == 1
    _, done = await collect(speak(client, "again"))
    assert isinstance(done, frames.Done)


async def _drop_first(stream: RequestStream) -> tuple[bytes, frames.Message]:
    messages = [message async for message in stream]
    return b"", messages[-1]


async def test_the_other_workers_do_not_notice(make_client: MakeClient) -> None:
    client = await make_client(2, patch_delay_s=0.01)
    doomed = speak(client, "[never][crash]", "a", "1")
    healthy = speak(client, "x" * 400, "b", "2", paced=False)
    _, failed = await collect(doomed)
    assert isinstance(failed, frames.Failed)
    assert client.state is EngineState.READY
    _, done = await collect(healthy)
    assert isinstance(done, frames.Done)
    assert done.num_patches == 100


async def test_contexts_go_to_the_least_loaded_worker_and_stay_there(make_client: MakeClient) -> None:
    client = await make_client(2)
    for n in range(6):
        speak(client, "[stall]", f"c{n}", f"r{n}")
    speak(client, "[stall]", "c0", "r0b")
    loads = [sorted(worker.requests) for worker in client._workers]
    assert sorted(map(len, loads)) == [3, 4]
    assert any({"r0", "r0b"} <= set(load) for load in loads)
    for n in range(6):
        client.close_context(f"c{n}")
    assert client.num_requests == 0


async def test_a_reader_that_never_reads_loses_its_request(make_client: MakeClient) -> None:
    client = await make_client(patch_delay_s=0.0, max_buffered_bytes=20 * 5120)
    stream = speak(client, "[never]", paced=False)
    await until(lambda: stream.ended)
    _, failed = await collect(stream)
    assert isinstance(failed, frames.Failed)
    assert failed.code == "slow_consumer"


async def test_voices_are_added_everywhere_and_survive_a_respawn(make_client: MakeClient) -> None:
    client = await make_client(2)
    added = await client.add_voice(frames.AddVoice("mine", 16000, payload=b"\0\0" * 16000))
    assert added.num_patches == 7
    with pytest.raises(AudioDecodeError):
        await client.add_voice(frames.AddVoice("empty", 16000))
    for pid in client.worker_pids:
        os.kill(pid, signal.SIGKILL)
    await until(lambda: client.num_ready == 0)
    await until(lambda: client.num_ready == 2)
    _, done = await collect(speak(client, "hello", voice="mine"))
    assert isinstance(done, frames.Done)
    client.remove_voice("mine")
    _, failed = await collect(speak(client, "hello", voice="mine"))
    assert isinstance(failed, frames.Failed)


async def test_a_drain_finishes_what_runs_and_refuses_what_is_new(make_client: MakeClient) -> None:
    client = await make_client(patch_delay_s=0.02)
    stream = speak(client, "x" * 40)
    closing = asyncio.create_task(client.close(drain_s=10))
    await asyncio.sleep(0)
    with pytest.raises(Draining):
        speak(client, "x", "other")
    _, done = await collect(stream)
    assert isinstance(done, frames.Done)
    assert done.finish_reason == "stop"
    await closing
    assert client.state is EngineState.CLOSED
    assert client.num_restarts == 0


async def test_closing_without_drain_ends_every_stream(make_client: MakeClient) -> None:
    client = await make_client()
    stream = speak(client, "[stall]")
    await client.close()
    _, failed = await collect(stream)
    assert isinstance(failed, frames.Failed)
    assert failed.code == "engine_lost"


async def test_a_worker_that_cannot_start_is_a_typed_error(make_client: MakeClient) -> None:
    with pytest.raises(CheckpointError, match="asked to fail"):
        await make_client(fail_start=True)


async def test_a_command_that_does_not_exist_or_never_connects_is_an_error() -> None:
    with pytest.raises(EngineStartError):
        await EngineClient([WorkerSpec(("/nonexistent/worker",))], QUICK).start()
    slow = SupervisorConfig(ready_timeout_s=0.2, backoff_s=0.05, stop_s=1)
    with pytest.raises(EngineStartError):
        await EngineClient([WorkerSpec((sys.executable, "-c", "import time; time.sleep(60)"))], slow).start()


async def test_a_gateway_that_vanishes_takes_its_worker_with_it(make_client: MakeClient) -> None:
    client = await make_client()
    (pid,) = client.worker_pids
    worker = client._workers[0].supervisor
    assert worker._writer is not None
    worker._writer.close()
    await until(lambda: pid not in client.worker_pids)
