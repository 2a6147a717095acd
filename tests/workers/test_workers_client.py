"""The gateway's side of the engine, against a worker without a model."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
from client_harness import QUICK, Journal, MakeClient, collect, speak, until
from processes import supervisors, worker_pids

from realtime_tts.contract import frames
from realtime_tts.errors import AudioDecodeError, CheckpointError, Draining, EngineLost, EngineStartError, VoiceNotFound
from realtime_tts.workers.client import EngineClient, RequestStream
from realtime_tts.workers.supervisor import WorkerSpec


async def test_a_request_yields_every_sample_once_then_done(make_client: MakeClient) -> None:
    client = await make_client()
    pcm, done = await collect(speak(client, "0123456789"))
    assert array("h", pcm) == array("h", [k % 2000 - 1000 for k in range(3 * 2560)])
    assert isinstance(done, frames.Done)
    assert (done.finish_reason, done.num_patches) == ("stop", 3)
    assert client.ready is not None
    assert client.policy.default_voice == "slt"
    assert client.num_ready


async def test_requests_of_a_context_run_in_order_and_contexts_side_by_side(make_client: MakeClient) -> None:
    client = await make_client(patch_delay_s=0.02)
    order: list[str] = []

    async def follow(stream: RequestStream) -> None:
        await collect(stream)
        order.append(stream.request_id)

    streams = [
        speak(client, "x" * 400, "a", "a1", paced=False),  # two seconds: a busy machine may read some patches at once
        speak(client, "x" * 4, "a", "a2"),
        speak(client, "x" * 4, "b", "b1"),
    ]
    await asyncio.gather(*map(follow, streams))
    assert order == ["b1", "a1", "a2"]


async def test_closing_a_context_ends_its_stream_at_once_and_nothing_follows(make_client: MakeClient) -> None:
    client = await make_client()
    stream = speak(client, "[never]")
    assert isinstance(await anext(stream), frames.Audio)
    client.close_context("c")
    rest = [message async for message in stream]
    assert [type(message) for message in rest] == [frames.Done]
    assert rest[0].finish_reason == "cancelled"
    client.close_context("c")
    client.close_context("unknown")
    await until(lambda: bool(client.stats) and client.stats[0].running == 0)
    assert client.num_requests == 0


async def test_closing_a_context_cancels(make_client: MakeClient) -> None:
    client = await make_client()
    second = speak(client, "[never]", "b", "2")
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
    stream = speak(client, f"[never]{how}")
    if how == "kill":
        await anext(stream)
        os.kill(worker_pids(client)[0], signal.SIGKILL)
        _, failed = await asyncio.wait_for(_drop_first(stream), 20)
    else:
        _, failed = await asyncio.wait_for(collect(stream), 10)
    assert isinstance(failed, frames.Failed)
    assert failed.code == "engine_lost"
    with pytest.raises(EngineLost):
        speak(client, "x", "c2")
    assert client.num_ready == 0
    await until(lambda: client.num_ready == 1)
    assert client.num_ready
    assert client.keeper.num_restarts == 1
    _, done = await collect(speak(client, "again", "c3"))
    assert isinstance(done, frames.Done)


async def test_a_context_whose_worker_was_lost_between_two_requests_fails_with_the_next_one(
    make_client: MakeClient,
) -> None:
    """Another worker would speak it in another voice, where the voice is random, and take all of it for played."""
    client = await make_client(2)
    _, done = await collect(speak(client, "hello"))
    assert isinstance(done, frames.Done)
    (pid,) = [each.pid for each in supervisors(client) if each.spec.name == client._context_workers["c"].name]
    os.kill(pid, signal.SIGKILL)
    await until(lambda: client._context_workers["c"] is None)
    with pytest.raises(EngineLost):
        speak(client, "more", request_id="r2")
    await until(lambda: client.num_ready == 2)
    with pytest.raises(EngineLost):
        speak(client, "more", request_id="r2")
    assert client.num_requests == 0
    client.close_context("c")
    _, done = await collect(speak(client, "anew"))
    assert isinstance(done, frames.Done)


async def _drop_first(stream: RequestStream) -> tuple[bytes, frames.Message]:
    messages = [message async for message in stream]
    return b"", messages[-1]


async def test_the_other_workers_are_not_affected(make_client: MakeClient) -> None:
    client = await make_client(2, patch_delay_s=0.01)
    doomed = speak(client, "[never][crash]", "a", "1")
    healthy = speak(client, "x" * 400, "b", "2", paced=False)
    _, failed = await collect(doomed)
    assert isinstance(failed, frames.Failed)
    assert client.num_ready
    _, done = await collect(healthy)
    assert isinstance(done, frames.Done)
    assert done.num_patches == 100


async def test_contexts_go_to_the_least_loaded_worker_and_stay_there(make_client: MakeClient) -> None:
    client = await make_client(2)
    for n in range(6):
        speak(client, "[stall]", f"c{n}", f"r{n}")
    speak(client, "[stall]", "c0", "r0b")
    loads = [sorted(worker.requests) for worker in client.workers]
    assert sorted(map(len, loads)) == [3, 4]
    assert any({"r0", "r0b"} <= set(load) for load in loads)
    for n in range(6):
        client.close_context(f"c{n}")
    assert client.num_requests == 0


def worker_of(client: EngineClient, context_id: str) -> int:
    """Which worker a context is at."""
    (found,) = [
        number for number, worker in enumerate(client.workers) if client._context_workers.get(context_id) is worker
    ]
    return found


async def test_contexts_go_where_their_voice_lies_unless_more_wait_there_than_it_is_worth(
    make_client: MakeClient,
) -> None:
    """500 positions of 0.02 ms are as long as thirteen streams more, by a fresh engine's figures."""
    client = await make_client(2, prefix_positions=500)
    await collect(speak(client, "hello", "first", "r", voice="slt"))
    await until(lambda: any(worker.prefixes for worker in client.workers))
    home = worker_of(client, "first")
    for number in range(13):
        speak(client, "[stall]", f"c{number}", f"r{number}", voice="slt")
    assert {worker_of(client, f"c{number}") for number in range(13)} == {home}
    _, done = await collect(speak(client, "hello", "second", "s", voice="slt"))
    assert (worker_of(client, "second"), done.cached_positions) == (home, 500)
    speak(client, "[stall]", "c13", "r13", voice="slt")
    speak(client, "[stall]", "c14", "r14", voice="slt")
    assert worker_of(client, "c14") != home
    for number in range(15):
        client.close_context(f"c{number}")
    assert [worker.num_working for worker in client.workers] == [0, 0]


async def test_a_voices_home_is_the_same_at_all_clients(make_client: MakeClient) -> None:
    first, second = await make_client(2), await make_client(2)
    for voice, context in (("slt", "a"), ("rms", "b")):
        for client in (first, second):
            await collect(speak(client, "hello", context, context, voice=voice))
            client.close_context(context)
            speak(client, "hello", context, context + "2", voice=voice)
        assert worker_of(first, context) == worker_of(second, context)
        for client in (first, second):
            client.close_context(context)


async def test_a_worker_that_stands_still_gets_no_new_context_long_before_it_is_given_up(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("realtime_tts.workers.worker_view._SUSPECT_AFTER_S", 0.3)
    monkeypatch.setattr("client_harness.QUICK", dataclasses.replace(QUICK, hang_s=30.0))
    client = await make_client(2)
    stream = speak(client, "[hang] and a good deal of text behind it", "hung", "r")
    await anext(stream)
    hung = worker_of(client, "hung")
    loop = asyncio.get_running_loop()
    await until(lambda: client.workers[hung].candidate((), 0, loop.time()).is_suspect)
    for number in range(5):
        speak(client, "[stall]", f"c{number}", f"r{number}")
        assert worker_of(client, f"c{number}") != hung
    assert client.num_ready == 2


async def test_a_reader_that_never_reads_loses_its_request(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("realtime_tts.workers.client.MAX_BUFFERED_BYTES", 20 * 5120)
    client = await make_client(patch_delay_s=0.0)
    stream = speak(client, "[never]", paced=False)
    await until(lambda: client.num_requests == 0)
    _, failed = await collect(stream)
    assert isinstance(failed, frames.Failed)
    assert failed.code == "slow_consumer"


RECORDING = b"\0\0" * 16000  # one second at 16 kHz


async def add_voice(client: EngineClient, voice_id: str = "mine", tenant: str = "") -> frames.VoiceEncoded:
    encoded = await client.encode_voice(frames.EncodeVoice(voice_id, 16000, len(RECORDING), payload=RECORDING))
    counts = encoded.num_reference_patches, encoded.num_prompt_patches, encoded.patch_size, encoded.latent_dim
    client.add_voice(frames.AddVoice(voice_id, *counts, tenant=tenant, payload=encoded.payload))
    return encoded


async def speak_once(client: EngineClient, voice: str = "mine", **fields: Any) -> frames.Message:
    return (await collect(speak(client, "hello", voice=voice, **fields)))[1]


async def test_a_recording_is_encoded_once_and_its_voice_known_everywhere(
    make_client: MakeClient, journal: Journal
) -> None:
    client = await make_client(2, journal=journal.path)
    assert (await add_voice(client)).num_reference_patches == 7
    streams = [speak(client, "hello", f"c{number}", f"r{number}", voice="mine") for number in range(4)]
    assert all([isinstance((await collect(stream))[1], frames.Done) for stream in streams])
    assert sum(map(len, journal.frames("encode_voice").values())) == 1
    assert list(journal.frames("add_voice").values()) == [[("add_voice", "mine")]] * 2
    client.remove_voice("mine")
    assert isinstance(await speak_once(client), frames.Failed)
    with pytest.raises(AudioDecodeError):
        await client.encode_voice(frames.EncodeVoice("empty", 16000))


async def test_a_respawned_worker_knows_all_voices_before_its_first_request(
    make_client: MakeClient, journal: Journal
) -> None:
    client = await make_client(journal=journal.path)
    await add_voice(client, "one")
    await add_voice(client, "two")
    old = worker_pids(client)[0]
    os.kill(old, signal.SIGKILL)
    await until(lambda: client.num_ready == 0)
    await until(lambda: client.num_ready == 1)
    assert isinstance(await speak_once(client, "two"), frames.Done)
    (frames_of_new,) = [received for pid, received in journal.frames().items() if pid != str(old)]
    assert frames_of_new[:3] == [("add_voice", "one"), ("add_voice", "two"), ("generate", "")]


async def test_every_worker_present_and_future_receives_the_openings(make_client: MakeClient, journal: Journal) -> None:
    client = await make_client(journal=journal.path)
    client.speak_ahead([frames.Opening(["Sure."], "slt", 0, 2.0, 10)] * 2)

    def received() -> list[int]:
        return [len(of_worker) for of_worker in journal.frames("opening").values()]

    await until(lambda: received() == [2])
    os.kill(worker_pids(client)[0], signal.SIGKILL)
    await until(lambda: received() == [2, 2])


async def test_a_worker_that_becomes_ready_while_a_voice_is_made_gets_it(
    make_client: MakeClient, journal: Journal, tmp_path: Path
) -> None:
    encode_gate, ready_gate = tmp_path / "encode", tmp_path / "ready"
    client = await make_client(each=[{"encode_gate": encode_gate}, {"ready_gate": ready_gate}], journal=journal.path)
    adding = asyncio.create_task(add_voice(client))
    await until(lambda: bool(journal.frames("encode_voice")))
    ready_gate.touch()
    await until(lambda: client.num_ready == 2)
    encode_gate.touch()
    await adding
    streams = [speak(client, "hello", f"c{number}", f"r{number}", voice="mine") for number in range(2)]
    assert [len(worker.requests) for worker in client.workers] == [1, 1]
    assert all([isinstance((await collect(stream))[1], frames.Done) for stream in streams])
    assert len(journal.frames("add_voice")) == 2


async def test_a_worker_lost_over_a_recording_is_an_error_that_can_be_tried_again(
    make_client: MakeClient, journal: Journal
) -> None:
    client = await make_client(each=[{"crash_on_voice": True}, {}], journal=journal.path)
    await until(lambda: client.num_ready == 2)
    with pytest.raises(EngineLost) as caught:
        await add_voice(client)
    assert caught.value.retryable
    assert len(journal.frames("encode_voice")) == 1, "the recording was given to another worker"
    await add_voice(client)
    assert isinstance(await speak_once(client), frames.Done)


async def test_a_cancelled_or_removed_encoding_leaves_nothing_behind(make_client: MakeClient, journal: Journal) -> None:
    client = await make_client(2, journal=journal.path, encode_gate="/never")
    cancelled, removed = asyncio.create_task(add_voice(client, "a")), asyncio.create_task(add_voice(client, "b"))
    await until(lambda: sum(map(len, journal.frames("encode_voice").values())) == 2)
    cancelled.cancel()
    client.remove_voice("b")
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    with pytest.raises(VoiceNotFound):
        await removed
    await until(
        lambda: sum(map(len, journal.frames("remove_voice").values())) == 2
    )  # the worker that had "a", and that of "b"
    assert not journal.frames("add_voice")
    assert not client._voices
    assert not any(worker.encodings for worker in client.workers)


async def test_an_answer_that_crosses_a_cancellation_is_dropped(make_client: MakeClient) -> None:
    client = await make_client(encode_gate="/never")
    task = asyncio.create_task(add_voice(client))
    await asyncio.sleep(0)
    (worker,) = client.workers
    task.cancel()
    client.receive(worker, frames.VoiceEncoded("mine", 1, 0, 1, 1, payload=b"\0" * 4))
    client.receive(worker, frames.VoiceFailed("mine", "audio_decode_error", "late"))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not client._voices


async def test_a_closing_engine_encodes_nothing_more(make_client: MakeClient) -> None:
    client = await make_client(encode_gate="/never")
    adding = asyncio.create_task(add_voice(client))
    await asyncio.sleep(0)
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0)
    with pytest.raises(Draining):
        await add_voice(client, "late")
    with pytest.raises(EngineLost):
        await adding
    await closing


async def test_another_tenants_voice_id_is_not_overwritten(
    make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    client = await make_client()
    await add_voice(client, tenant="owner")
    client.workers[0].send(frames.AddVoice("mine", 1, 0, 1, 1, tenant="thief", payload=b"\0" * 4))
    assert isinstance(await speak_once(client, tenant="owner"), frames.Done)
    assert isinstance(await speak_once(client, tenant="thief"), frames.Failed)
    assert "refused a voice" in caplog.text


async def test_closing_ends_every_stream_and_refuses_what_is_new(make_client: MakeClient) -> None:
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
        await EngineClient([WorkerSpec(command=("/nonexistent/worker",))]).start()
    command = (sys.executable, "-c", "import time; time.sleep(60)")
    slow = WorkerSpec(command=command, ready_timeout_s=0.2, backoff_s=0.05, stop_s=1)
    with pytest.raises(EngineStartError, match=r"was not ready after 0\.2 s"):
        await EngineClient([slow]).start()


async def test_a_gateway_that_vanishes_takes_its_worker_with_it(make_client: MakeClient) -> None:
    client = await make_client()
    (pid,) = worker_pids(client)
    (supervisor,) = supervisors(client)
    assert supervisor._writer is not None
    supervisor._writer.close()
    await until(lambda: pid not in worker_pids(client))
