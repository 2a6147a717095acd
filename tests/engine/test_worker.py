"""The real worker process with a random voice, through the client that the gateway uses."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from hub_server import COMMIT, hub_of
from processes import supervisors, worker_pids
from random_adapters import write_adapter
from tiny_voice import NAME, PATCH_SAMPLES, RATE_HZ, VOICES

from realtime_tts.bench.checkpoint import adapter_tensors
from realtime_tts.cli.engine import worker_specs
from realtime_tts.config import EngineConfig, ServerConfig
from realtime_tts.contract import frames, heap
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.engine.worker import Worker, serve
from realtime_tts.errors import AdapterError, AudioDecodeError, CheckpointError, ConfigError, EngineError, EngineLost
from realtime_tts.model.checkpoint import load_model
from realtime_tts.workers.child import start_child
from realtime_tts.workers.client import EngineClient, RequestStream
from realtime_tts.workers.pool import WorkerPool

LONG = "this is a sentence of some length, which takes a while to speak."
TIMES_S = {"ready_timeout_s": 90, "hang_s": 10.0, "backoff_s": 0.05, "stop_s": 5}


def make(model: Path, device: str = "cpu", server: ServerConfig | None = None) -> EngineClient:
    config = EngineConfig(
        str(model), devices=(device,), threads=1, max_streams=16, flow_steps=5, max_adapters=1, max_adapter_rank=4,
    )  # fmt: skip
    specs = worker_specs(config, server or ServerConfig())
    return EngineClient([dataclasses.replace(spec, **TIMES_S) for spec in specs])


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared_client(tiny_voice: Path) -> AsyncIterator[EngineClient]:
    """A client of one worker for all tests that leave the worker as it was: a worker takes three seconds to start."""
    client = make(tiny_voice)
    await client.start()
    yield client
    await client.close()


@pytest_asyncio.fixture
async def client(tiny_voice: Path) -> AsyncIterator[EngineClient]:
    """A client of one worker that the test may end."""
    client = make(tiny_voice)
    await client.start()
    yield client
    await client.close()


# What is tested with `shared_client` runs on its loop.
on_shared_loop = pytest.mark.asyncio(loop_scope="module")


async def until(condition: Callable[[], bool], timeout_s: float = 30) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def collect(stream: RequestStream) -> tuple[np.ndarray, frames.Message]:
    messages = [message async for message in stream]
    pcm = np.frombuffer(b"".join(message.payload for message in messages), "<i2")
    return pcm, messages[-1]


def speak(client: EngineClient, text: str = LONG, name: str = "r", **fields: object) -> RequestStream:
    values = {"context_id": name, "voice": VOICES[0], "paced": False, **fields}
    return client.submit(frames.Generate(name, text=text, **values))  # type: ignore[arg-type]


READY = frames.Ready("m", "cpu", "float32", "sdpa", 16000, 2560)
TONE = (8000 * np.sin(np.arange(2 * 24000) * 0.05)).astype("<i2").tobytes()  # two seconds at 24 kHz


async def add_voice(client: EngineClient, voice_id: str) -> frames.VoiceEncoded:
    encoded = await client.encode_voice(frames.EncodeVoice(voice_id, 24000, len(TONE), payload=TONE))
    counts = encoded.num_reference_patches, encoded.num_prompt_patches, encoded.patch_size, encoded.latent_dim
    client.add_voice(frames.AddVoice(voice_id, *counts, payload=encoded.payload))
    return encoded


@on_shared_loop
async def test_a_worker_reports_its_model_and_speaks(shared_client: EngineClient) -> None:
    ready = shared_client.ready
    assert ready is not None
    assert (ready.model, ready.device, ready.dtype, ready.backend) == (NAME, "cpu", "float32", "sdpa")
    assert (ready.sample_rate, ready.patch_samples) == (RATE_HZ, PATCH_SAMPLES)
    assert (shared_client.policy.default_voice, {*shared_client.policy.voices}) == (VOICES[0], {*VOICES})
    assert shared_client.policy.text_head is not None
    pcm, done = await collect(speak(shared_client))
    assert isinstance(done, frames.Done)
    assert done.finish_reason == "length"  # the stop head of the random voice never speaks
    assert len(pcm) == done.num_samples == done.num_patches * PATCH_SAMPLES
    assert len(LONG) / 2 < done.num_patches < len(LONG)
    assert np.abs(pcm).max() > 3000


@on_shared_loop
async def test_the_modes_of_the_settings_reach_the_worker_and_come_back(shared_client: EngineClient) -> None:
    ready = shared_client.ready
    assert ready is not None
    assert ready.fp8 == "off"
    assert ready.policy["default_steps"] == 5


@on_shared_loop
async def test_the_same_speech_alone_and_among_others(shared_client: EngineClient) -> None:
    alone, _ = await collect(speak(shared_client, "good morning to you.", "alone", seed=5))
    crowd = [speak(shared_client, LONG, f"x{n}", voice=VOICES[n], seed=n) for n in range(3)]
    among, _ = await collect(speak(shared_client, "good morning to you.", "among", seed=5))
    await asyncio.gather(*map(collect, crowd))
    assert np.abs(among.astype(int) - alone).max() < 33  # 1e-3 of full scale


@on_shared_loop
async def test_a_listed_opening_is_spoken_ahead_and_sent_from_memory(shared_client: EngineClient) -> None:
    ready = shared_client.ready
    assert ready is not None
    policy: Any = ready.policy
    opening = frames.Opening(["good evening."], VOICES[0], 0, policy["default_cfg"], policy["default_steps"])
    shared_client.speak_ahead([opening])
    await until(lambda: shared_client.stats[0].opening_bytes > 0 and shared_client.stats[0].running == 0)
    pcm, done = await collect(speak(shared_client, "good evening.", "hit", openings=True, tenant="a"))
    assert isinstance(done, frames.Done)
    assert (done.prefill_positions, done.num_samples) == (0, len(pcm))
    made, done = await collect(speak(shared_client, "good evening.", "made", tenant="a"))
    assert isinstance(done, frames.Done)
    assert done.prefill_positions > 0
    assert np.abs(pcm.astype(int) - made).max() < 33  # a prefix from the cache rounds differently
    await until(lambda: shared_client.stats[0].opening_hits == 1)


async def test_cancel_at_any_await_leaves_no_block_slot_or_stream(client: EngineClient) -> None:
    await until(lambda: bool(client.stats))
    before = client.stats[0]
    for num_messages in range(4):
        streams = [speak(client, name=f"{num_messages}-{n}") for n in range(2)]
        for _ in range(num_messages):
            await anext(streams[0])
        for stream in streams:
            client.close_context(stream.context_id)
    idle = (before.free_slots, before.free_blocks, 0, 0, 0)
    await until(lambda: resources(client.stats[0]) == idle)
    assert client.num_requests == 0


def resources(stats: frames.Stats) -> tuple[int, ...]:
    return stats.free_slots, stats.free_blocks, stats.running, stats.waiting, stats.contexts


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)])
async def test_a_worker_killed_or_stopped_in_mid_speech_is_replaced_and_speaks(
    client: EngineClient, number: signal.Signals
) -> None:
    """In an added voice, too, from its first request."""
    await add_voice(client, "mine")
    before, _ = await collect(speak(client, "hello there.", "before", voice="mine"))
    stream = speak(client, final=False)  # it waits for more text
    await anext(stream)
    os.kill(worker_pids(client)[0], number)
    _, failed = await asyncio.wait_for(collect(stream), 30)
    assert isinstance(failed, frames.Failed)
    assert failed.code == "engine_lost"
    with pytest.raises(EngineLost):
        speak(client, name="during")
    await until(lambda: client.num_ready, 60)
    after, done = await collect(speak(client, "hello there.", "after", voice="mine"))
    assert isinstance(done, frames.Done)
    assert np.abs(after.astype(int) - before).max() < 33  # 1e-3 of full scale


async def test_sigterm_has_a_worker_leave_when_its_contexts_are_closed_and_a_second_one_at_once(
    client: EngineClient,
) -> None:
    stream = speak(client, LONG, final=False)
    await anext(stream)
    (pid,) = worker_pids(client)
    os.kill(pid, signal.SIGTERM)
    await until(lambda: client.num_ready == 0 and supervisors(client)[0].stats.leaving)
    with pytest.raises(EngineLost):
        speak(client, "hello", "new")
    assert isinstance(client.keeper, WorkerPool)
    client.keeper.replace_all()  # SIGHUP is no second signal to a worker that leaves already
    client.extend(stream.request_id, LONG, final=True)
    _, done = await collect(stream)
    assert isinstance(done, frames.Done)
    assert done.finish_reason == "length"
    await asyncio.sleep(1.5)  # nothing is at work, but the context is open
    _, done = await collect(speak(client, "hello", "more", context_id="r"))
    assert isinstance(done, frames.Done)
    assert worker_pids(client) == [pid]
    client.close_context("r")
    await until(lambda: client.num_ready, 60)
    assert worker_pids(client) != [pid]
    assert [report.losses for report in client.keeper.devices] == [0]
    await a_second_sigterm_waits_for_what_runs_alone(client)
    await a_worker_whose_gateway_is_gone_exits(client)


async def a_second_sigterm_waits_for_what_runs_alone(client: EngineClient) -> None:
    """And for no context."""
    stream = speak(client, 3 * LONG, "new")
    await anext(stream)
    (pid,) = worker_pids(client)
    os.kill(pid, signal.SIGTERM)
    await until(lambda: client.num_ready == 0)
    os.kill(pid, signal.SIGTERM)
    _, done = await collect(stream)
    assert isinstance(done, frames.Done)
    assert done.finish_reason == "length"
    await until(lambda: client.num_ready, 60)
    assert worker_pids(client) != [pid]


async def a_worker_whose_gateway_is_gone_exits(client: EngineClient) -> None:
    (pid,) = worker_pids(client)
    (supervisor,) = supervisors(client)
    supervisor._stopping = True  # no respawn, and SIGTERM instead of SIGKILL
    stream = speak(client, name="last")
    await anext(stream)
    assert supervisor._writer is not None
    supervisor._writer.close()
    await until(lambda: supervisor.pid is None)
    assert supervisor.last_exit in (0, -signal.SIGTERM)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@on_shared_loop
async def test_a_voice_is_made_from_a_recording_while_others_speak(shared_client: EngineClient) -> None:
    talking = speak(shared_client)
    assert (await add_voice(shared_client, "cloned")).num_reference_patches == 13
    with pytest.raises(AudioDecodeError):
        await shared_client.encode_voice(frames.EncodeVoice("short", 24000, 100, payload=TONE[:100]))
    _, done = await collect(speak(shared_client, "hello there.", "hello", voice="cloned"))
    assert isinstance(done, frames.Done)
    assert isinstance((await collect(talking))[1], frames.Done)


@on_shared_loop
async def test_a_worker_reads_an_adapter_while_it_serves(
    shared_client: EngineClient, tiny_voice: Path, tmp_path: Path
) -> None:
    client = shared_client
    tensors = adapter_tensors(load_model(tiny_voice).model, seed=0)
    message = frames.AddAdapter("a", str(write_adapter(tmp_path / "a", tensors)))
    with pytest.raises(AdapterError, match="r is 5, this server takes up to 4"):
        await client.adapters.load(frames.AddAdapter("b", str(write_adapter(tmp_path / "b", tensors, r=5))))
    assert (await client.adapters.load(message)).rank == 4
    plain, _ = await collect(speak(client, "hello there.", "plain", max_patches=4))
    adapted, _ = await collect(speak(client, "hello there.", "adapted", adapter="a", max_patches=4))
    length = min(plain.size, adapted.size)
    assert np.abs(plain[:length].astype(int) - adapted[:length]).max() > 330  # 1e-2 of full scale
    client.adapters.unload("a")
    await client.adapters.load(message)
    again, _ = await collect(speak(client, "hello there.", "again", adapter="a", max_patches=4))
    assert again.shape == adapted.shape
    assert np.abs(again.astype(int) - adapted).max() < 33
    client.adapters.unload("a")


async def test_an_adapter_that_is_removed_while_it_is_read_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, posted = threading.Event(), []

    def read(name: str, *rest: object) -> str:
        gate.wait(30)
        if name == "broken":
            raise ValueError("not foreseen")
        return f"adapter {name}"

    monkeypatch.setattr("realtime_tts.engine.worker.read_adapter", read)
    engine = SimpleNamespace(
        loaded=SimpleNamespace(model=None), adapters=SimpleNamespace(limits=None), post=posted.append
    )
    sent: list[frames.Message] = []
    worker = Worker(engine, SimpleNamespace(), READY, SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setattr(worker.channels, "send", sent.extend)
    for name in ("gone", "broken", "wanted"):
        worker._take(frames.AddAdapter(name, "/a"))
    await asyncio.sleep(0)
    worker._take(frames.RemoveAdapter("gone"))
    await asyncio.sleep(0)
    gate.set()
    await until(lambda: not worker._jobs)
    assert posted == [frames.RemoveAdapter("gone"), "adapter wanted"]
    assert sent == [frames.AdapterFailed("broken", "engine_error", "the adapter could not be read")]
    worker._encoder.shutdown()


async def test_the_encoding_of_a_removed_voice_is_not_begun_or_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    sent: list[frames.Message] = []
    gate = threading.Event()

    def encode(loaded: object, message: frames.EncodeVoice) -> frames.VoiceEncoded:
        begun.append(message.voice_id)
        gate.wait(30)
        return frames.VoiceEncoded(message.voice_id, 0, 0, 1, 1)

    monkeypatch.setattr("realtime_tts.engine.worker.encode_voice", encode)
    engine = SimpleNamespace(loaded=None, post=lambda message: None)
    worker = Worker(engine, SimpleNamespace(), READY, SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setattr(worker.channels, "send", sent.extend)
    for voice_id in ("running", "waiting", "wanted"):
        worker._take(frames.EncodeVoice(voice_id, 16000))
    await until(lambda: bool(begun))
    worker._take(frames.RemoveVoice("running"))
    worker._take(frames.RemoveVoice("waiting"))
    await asyncio.sleep(0)
    gate.set()
    await until(lambda: bool(sent))
    assert begun == ["running", "wanted"]
    assert [message.voice_id for message in sent if isinstance(message, frames.VoiceEncoded)] == ["wanted"]
    await until(lambda: not worker._jobs)
    worker._encoder.shutdown()


class CountingEngine:
    """Each step makes one frame of `FRAME_BYTES`; idle after `max_steps`."""

    FRAME_BYTES = 100_000

    def __init__(self, max_steps: int) -> None:
        self.num_steps, self._max_steps = 0, max_steps
        self.output: Any = SimpleNamespace()
        self.is_draining = self.is_idle = self._is_wanted = False

    def step(self) -> bool:
        if self.num_steps == self._max_steps or not self._is_wanted:
            return False
        self.output.emit(frames.Audio("1/r", self.num_steps, payload=b"x" * self.FRAME_BYTES))
        self.num_steps += 1
        time.sleep(0.001)  # as a step does, it leaves the event loop some time
        return True

    def idle_s(self) -> float:
        return 0.1

    def post(self, message: frames.Message) -> None:
        self._is_wanted = True

    def stats(self) -> frames.Stats:
        return frames.Stats(num_steps=self.num_steps, running=1)


async def serve_counting(
    control: socket.socket, clients_path: Path, engine: CountingEngine, ended: asyncio.Queue[Any]
) -> None:
    """Runs a `Worker`; `ended` gets what its run raised, or None."""
    reader, writer = await asyncio.open_unix_connection(sock=control)
    worker = Worker(engine, writer, READY, ThreadPoolExecutor(1, "engine"))  # type: ignore[arg-type]
    engine.output.emit = worker.emit
    try:
        await worker.channels.listen(str(clients_path))
        await worker.run(reader)
        ended.put_nowait(None)
    except EngineError as error:
        ended.put_nowait(error)
    writer.close()


@dataclasses.dataclass
class Beside:
    """The other ends of a `Worker` over a `CountingEngine`: its supervisor's, and what a client connects to."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    ended: asyncio.Queue[Any]
    clients_path: Path
    clients: list[asyncio.StreamWriter] = dataclasses.field(default_factory=list)

    async def connect(self, *requests: frames.Message) -> asyncio.StreamReader:
        """A client that asks for something."""
        await self.reader.read(1)  # it has told that it is ready
        reader, writer = await asyncio.open_unix_connection(self.clients_path, limit=1 << 18)
        writer.write(b"".join(map(frames.encode, requests)))
        self.clients.append(writer)
        return reader

    async def close(self) -> None:
        for writer in (self.writer, *self.clients):
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def until_it_stands_still(self, engine: CountingEngine) -> int:
        num_steps = -1
        while engine.num_steps != num_steps or not num_steps:
            num_steps = engine.num_steps
            await asyncio.sleep(1.0)
        return num_steps


@pytest_asyncio.fixture
async def beside(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    ended: asyncio.Queue[Any] = asyncio.Queue()
    tasks: list[asyncio.Task[None]] = []
    started: list[Beside] = []

    async def start(engine: CountingEngine) -> Beside:
        ours, theirs = socket.socketpair()
        tasks.append(asyncio.create_task(serve_counting(theirs, tmp_path / "c", engine, ended)))
        started.append(Beside(*await asyncio.open_unix_connection(sock=ours), ended, tmp_path / "c"))
        return started[-1]

    yield start
    for worker in started:
        await worker.close()
    await asyncio.wait(tasks, timeout=30)


SPEAK = frames.Generate("r", "c", "hello")


async def read_audio(reader: asyncio.StreamReader, num_frames: int) -> list[int]:
    """The numbers of so many frames, or of those that come until the connection ends."""
    decoder, sequences = frames.Decoder(), []
    while len(sequences) < num_frames and (data := await reader.read(1 << 18)):
        messages = decoder.feed(data)
        sequences += [message.sequence for message in messages if isinstance(message, frames.Audio)]
    return sequences


async def test_a_worker_waits_for_its_only_client_and_is_not_taken_for_hung(
    monkeypatch: pytest.MonkeyPatch, beside: Callable[..., Any]
) -> None:
    monkeypatch.setattr("realtime_tts.engine.client_channels.MAX_UNSENT_BYTES", 20 * CountingEngine.FRAME_BYTES)
    engine = CountingEngine(max_steps=400)
    worker = await beside(engine)
    reader = await worker.connect(SPEAK)
    assert await worker.until_it_stands_still(engine) < 400
    assert await read_audio(reader, 400) == list(range(400))
    worker.writer.close()
    assert await worker.ended.get() is None


async def test_the_engine_runs_in_the_thread_that_has_loaded_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What torch sets up for a thread is set up when it is warm."""
    threads: list[threading.Thread] = []

    class Engine(CountingEngine):
        def step(self) -> bool:
            threads.append(threading.current_thread())
            return super().step()

    def load(options: EngineOptions) -> tuple[Engine, frames.Ready]:
        threads.append(threading.current_thread())
        return Engine(max_steps=0), READY

    monkeypatch.setattr("realtime_tts.engine.worker.load", load)
    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", lambda number, handler: None)
    supervisor, theirs = socket.socketpair()
    serving = asyncio.create_task(serve({}, theirs.detach(), str(tmp_path / "c")))
    await until(lambda: len(threads) > 1)
    supervisor.close()
    assert await serving == 0
    assert {thread.name for thread in threads} == {"engine_0"}
    assert len(set(threads)) == 1
    await until(lambda: not threads[0].is_alive())


async def test_a_worker_that_downloads_its_model_shows_that_it_lives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arrived = threading.Event()

    def download(model: str, revision: str | None) -> Path:
        assert (model, revision) == ("owner/name", None)
        arrived.wait()
        raise CheckpointError("the hub is gone")

    monkeypatch.setattr("realtime_tts.engine.worker.resolve_directory", download)
    supervisor, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=supervisor)
    serving = asyncio.create_task(serve({"model": "owner/name"}, theirs.detach(), str(tmp_path / "c")))
    decoder, received = frames.Decoder(), []
    while len(received) < 2:
        received += decoder.feed(await reader.read(1 << 16))
    assert received == [frames.Stats(), frames.Stats()]
    arrived.set()
    while not isinstance(received[-1], frames.Failed):
        received += decoder.feed(await reader.read(1 << 16))
    assert received[-1].message == "the hub is gone"
    assert await serving == 3
    writer.close()


async def test_a_model_of_the_hub_is_downloaded_and_speaks(
    tiny_voice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """And again when the hub cannot be reached. Requests are not logged: their addresses are signed."""

    async def start_and_speak() -> None:
        client = make(Path("owner/name"))
        try:
            await client.start()
            _, done = await collect(speak(client, "hello", max_patches=4))
        finally:
            await client.close()
        assert isinstance(done, frames.Done)
        assert client.ready is not None
        assert client.ready.revision == COMMIT

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with hub_of(tiny_voice, "owner/name") as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        await start_and_speak()
    assert "HTTP Request" not in capfd.readouterr().err
    await start_and_speak()


@pytest.mark.parametrize("level", ["debug", "error"])
async def test_a_worker_logs_as_its_server_does(
    tiny_voice: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], level: str
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_voice, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"odd": 1}))  # a worker warns of it
    client = make(model, server=ServerConfig(log_level=level, log_format="json"))
    await client.start()
    await client.close()
    records = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert ("config.json: unknown key odd is ignored" in [record["event"] for record in records]) == (level == "debug")


class HurriedEngine(CountingEngine):
    """Steps at once, and notes what was not sent when each began."""

    def __init__(self) -> None:
        super().__init__(max_steps=200)
        self.unsent: list[int] = []

    def step(self) -> bool:
        if self.num_steps == self._max_steps or not self._is_wanted:
            return False
        self.unsent.append(len(self.output.emit.__self__._outbox))
        self.output.emit(frames.Audio("1/r", self.num_steps, payload=b"x"))
        self.num_steps += 1
        return True


async def test_the_audio_of_a_step_is_sent_before_the_next_one(
    monkeypatch: pytest.MonkeyPatch, beside: Callable[..., Any]
) -> None:
    monkeypatch.setattr("realtime_tts.engine.worker._SEND_S", 60.0)
    engine = HurriedEngine()
    await (await beside(engine)).connect(SPEAK)
    await until(lambda: engine.num_steps == 200)
    assert engine.unsent == [0] * 200


async def test_free_memory_is_given_back_when_no_step_is_due(
    monkeypatch: pytest.MonkeyPatch, beside: Callable[..., Any]
) -> None:
    engine = CountingEngine(max_steps=3)
    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(heap, "GIVE_BACK_EVERY_S", 0.0)
    monkeypatch.setattr(heap, "give_back", lambda: seen.append((threading.current_thread().name, engine.num_steps)))
    monkeypatch.setattr(heap, "anonymous_bytes", lambda: 123)
    worker = await beside(engine)
    reader = await worker.connect(SPEAK)
    decoder, kept = frames.Decoder(), 0
    while not kept or engine.num_steps < 3:
        for message in decoder.feed(await reader.read(1 << 18)):
            kept = message.kept_bytes if isinstance(message, frames.Stats) else kept
    assert kept == 123
    await until(lambda: [steps for _, steps in seen].count(3) > 1)
    assert {steps for _, steps in seen} <= {0, 3}  # not between two steps, which it would delay
    assert {name for name, _ in seen} == {"engine_0"}
    worker.writer.close()
    assert await worker.ended.get() is None


async def test_no_client_waits_for_another_that_does_not_read(
    monkeypatch: pytest.MonkeyPatch, beside: Callable[..., Any]
) -> None:
    monkeypatch.setattr("realtime_tts.engine.client_channels.MAX_UNSENT_BYTES", 20 * CountingEngine.FRAME_BYTES)
    engine = CountingEngine(max_steps=400)
    worker = await beside(engine)
    stopped, _ = await worker.connect(SPEAK), await worker.connect()
    while engine.num_steps < 400:
        await asyncio.sleep(0.05)
    assert len(await read_audio(stopped, 400)) < 400  # it was cut off
    worker.writer.close()
    assert await worker.ended.get() is None


LOADING_FOR_EVER = "import time; from realtime_tts.engine import worker; worker.load = lambda _: time.sleep(600); "


async def test_a_worker_whose_gateway_goes_away_while_it_loads_exits(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOADING_FOR_EVER + "worker.main()", "--clients", str(tmp_path / "c")]
    process, _, writer = await start_child(command)
    writer.close()
    try:
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_device_that_cannot_be_used_says_why(tiny_voice: Path) -> None:
    with pytest.raises(ConfigError, match="cuda:99"):
        await make(tiny_voice, device="cuda:99").start()
