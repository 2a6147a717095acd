"""Idle time of a worker's device while its host is busy, for the whole worker with its threads and socket.

    python -m benchmarks.worker_cycle --listeners 600

The real `Worker`: engine thread, event loop, unix socket, one client in a process of its own that plays so many
listeners with turns of two segments, which report their positions. The device computes nothing; a step takes a set time
of the real clock, and steps run in order. Each step is launched in several calls, which release the interpreter as
CUDA's do; between two calls the device may run out of work. Reported are the idle time, its causes (waiting for the
interpreter, work of the host between two steps), and the cost of the threads. Run it on two idle cores, or compare runs
in alternation.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import gc
import heapq
import json
import multiprocessing
import os
import random
import select
import socket
import struct
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgpack

from realtime_tts.bench.checkpoint import write_random_checkpoint
from realtime_tts.bench.figures import percentile
from realtime_tts.bench.report import document, table, write_json
from realtime_tts.bench.texts import turn
from realtime_tts.contract import frames
from realtime_tts.contract.threads import switch_quickly
from realtime_tts.workers.socket_directory import clients_path

_NUM_PATCHES = 40  # of a segment
_NUM_SEGMENTS = 2  # of a turn
_PATCH_S = 0.16
_LENGTHS = struct.Struct(">II")


# ---- the client ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class Listener:
    """One turn of speech. missing: segments that have not ended."""

    asked_s: float
    began_s: float | None = None
    produced_s: float = 0.0
    missing: int = _NUM_SEGMENTS
    was_dry: bool = False


class Client:
    """All listeners, over one socket; a turn that was played to its end is followed by another one."""

    def __init__(self, path: str, arguments: argparse.Namespace) -> None:
        self._draw = random.Random(arguments.seed)
        self._report_s = arguments.report_s
        self._listeners: dict[str, Listener] = {}
        self._due: list[tuple[float, int, str, str]] = []  # time, number, what, whose
        self._number = 0
        self._out = bytearray()
        self._rest = b""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._since_s = float("inf")
        self.first_s: list[float] = []
        self.num_turns = self.num_dry = 0

    def run(self, listeners: int, ramp_s: float, end_s: float, count_from_s: float) -> None:
        begun_s = time.monotonic()
        self._since_s = count_from_s
        for number in range(listeners):
            self._later(begun_s + ramp_s * number / listeners, "begin", "")
        while (now := time.monotonic()) < end_s:
            while self._due and self._due[0][0] <= now:
                _, _, what, whose = heapq.heappop(self._due)
                getattr(self, f"_{what}")(whose, now)
            if self._out:
                self._socket.sendall(self._out)
                self._out.clear()
            if select.select([self._socket], [], [], 0.003)[0]:
                self._read(time.monotonic())
        self._socket.close()

    def _later(self, at_s: float, what: str, whose: str) -> None:
        self._number += 1
        heapq.heappush(self._due, (at_s, self._number, what, whose))

    def _begin(self, _: str, now: float) -> None:
        self._number += 1
        name = f"c{self._number}"
        self._listeners[name] = Listener(now)
        first = self._draw.randint(4, _NUM_PATCHES)  # not all in step
        for segment, num_patches in enumerate((first, _NUM_PATCHES)):
            text = turn(None, self._draw.randrange(1 << 30))
            self._out += frames.encode(
                frames.Generate(f"{name}.{segment}", name, text, segment=segment, max_patches=num_patches)
            )

    def _report(self, name: str, now: float) -> None:
        listener = self._listeners.get(name)
        if listener is not None and listener.began_s is not None:
            played_s = min(listener.produced_s, now - listener.began_s)
            self._out += frames.encode(frames.Playback(name, int(1000 * played_s)))
            self._later(now + self._report_s, "report", name)

    def _leave(self, name: str, now: float) -> None:
        """The turn was heard to its end."""
        listener = self._listeners.pop(name)
        self._out += frames.encode(frames.CloseContext(name))
        if listener.asked_s >= self._since_s:
            self.num_turns += 1
        self._begin("", now)

    def _read(self, now: float) -> None:
        data = self._rest + self._socket.recv(1 << 22)
        start = 0
        while len(data) - start >= 8:
            total, size = _LENGTHS.unpack_from(data, start)
            if len(data) - start < total + 4:
                break
            self._take(msgpack.unpackb(data[start + 8 : start + 8 + size]), now)
            start += total + 4
        self._rest = data[start:]

    def _take(self, header: dict[str, Any], now: float) -> None:
        kind = header["type"]
        if kind == "audio":
            name = header["request_id"].partition(".")[0]
            listener = self._listeners[name]
            if listener.began_s is None:
                listener.began_s = now
                if listener.asked_s >= self._since_s:
                    self.first_s.append(now - listener.asked_s)
                self._later(now + self._draw.random() * self._report_s, "report", name)
            elif now - listener.began_s > listener.produced_s and not listener.was_dry:
                listener.was_dry = True
                self.num_dry += now >= self._since_s
            listener.produced_s += _PATCH_S
        elif kind == "done":
            name = header["request_id"].partition(".")[0]
            listener = self._listeners[name]
            listener.missing -= 1
            if not listener.missing:
                assert listener.began_s is not None
                self._later(listener.began_s + listener.produced_s, "leave", name)
        elif kind == "failed":
            raise RuntimeError(header)


def play(path: str, arguments: argparse.Namespace, end_s: float, count_from_s: float, answer: Connection) -> None:
    client = Client(path, arguments)
    begun_s = time.process_time()
    client.run(arguments.listeners, arguments.ramp_s, end_s, count_from_s)
    answer.send((client.first_s, client.num_dry, time.process_time() - begun_s))


# ---- the device ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """Results that are there at a time."""

    host: dict[str, Any]
    over_s: float

    @property
    def is_here(self) -> bool:
        return time.monotonic() >= self.over_s


@dataclasses.dataclass(slots=True)
class Tally:
    """Times of steps, seconds. idle: the device had nothing to do since the step before; late: from its end until the
    engine has the interpreter again; launching: more than the calls themselves took."""

    streams: list[int] = dataclasses.field(default_factory=list)
    idle: list[float] = dataclasses.field(default_factory=list)
    busy: list[float] = dataclasses.field(default_factory=list)
    late: list[float] = dataclasses.field(default_factory=list)
    launching: list[float] = dataclasses.field(default_factory=list)


class Device:
    """A step is in order behind what was given before, in equal pieces, one for each call."""

    def __init__(self, engine: Any, arguments: argparse.Namespace) -> None:
        from benchmarks.host_work import leave_nothing_to_compute

        self.tally = Tally()
        self._free_s = 0.0
        self._given = arguments
        runner = engine.runner
        leave_nothing_to_compute(runner)
        self._unpack, self._step = runner._unpack, runner._step
        runner.launch, runner.result = self.launch, self.result

    def launch(self, layout: Any) -> Sent:
        import torch

        given, num_streams = self._given, len(layout.speaking)
        step_s = (given.fixed_ms + given.per_stream_ms * num_streams) / 1000
        call_s = given.launch_ms / 1000 / given.calls
        begun_s = time.monotonic()
        with torch.inference_mode():
            sent = self._step(layout)
        idle_s, launching_s = 0.0, time.monotonic() - begun_s
        for _ in range(given.calls):
            now = time.monotonic()
            idle_s += max(0.0, now - self._free_s)
            self._free_s = max(now, self._free_s) + step_s / given.calls
            time.sleep(call_s)
            launching_s += time.monotonic() - now - call_s
        tally = self.tally
        for values, value in (
            (tally.streams, num_streams),
            (tally.idle, idle_s),
            (tally.busy, step_s),
            (tally.launching, launching_s),
        ):
            values.append(value)  # type: ignore[attr-defined]
        return Sent(sent.host, self._free_s)

    def result(self, layout: Any, sent: Sent) -> Any:
        wait_s = sent.over_s - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
            self.tally.late.append(time.monotonic() - sent.over_s)
        return self._unpack(layout, sent.host)


# ---- the worker ------------------------------------------------------------------------------------------------------


def _thread_s(thread: threading.Thread) -> float:
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


async def measure(engine: Any, ready: frames.Ready, arguments: argparse.Namespace) -> dict[str, Any]:
    from realtime_tts.engine.job_thread import JobThread
    from realtime_tts.engine.worker import Worker

    device = Device(engine, arguments)
    gc.collect()  # as the worker does when its model is loaded
    gc.freeze()
    with tempfile.TemporaryDirectory(prefix="worker-cycle-") as directory:
        path = os.path.join(directory, "engine.sock")
        server = await asyncio.start_unix_server(_supervise, path)
        reader, writer = await asyncio.open_unix_connection(path)
        worker = Worker(engine, writer, ready, JobThread("engine"))
        engine.emit = worker.emit
        running = asyncio.create_task(worker.run(reader, clients_path(path)))
        await asyncio.sleep(0.1)
        count_from_s = time.monotonic() + arguments.ramp_s + arguments.settle_s
        end_s = count_from_s + arguments.seconds
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        client = context.Process(target=play, args=(clients_path(path), arguments, end_s, count_from_s, theirs))
        client.start()
        await asyncio.sleep(count_from_s - time.monotonic())
        threads = {"loop": threading.main_thread()}
        threads |= {thread.name: thread for thread in threading.enumerate() if thread.name == "engine"}
        before = {name: _thread_s(thread) for name, thread in threads.items()}
        stats = engine.stats()
        tally = device.tally = Tally()
        begun_s = time.monotonic()
        await asyncio.sleep(end_s - begun_s - 0.3)
        device.tally = Tally()
        wall_s = time.monotonic() - begun_s
        cpu_s = {name: _thread_s(thread) - before[name] for name, thread in threads.items()}
        after = engine.stats()
        first_s, num_dry, client_s = await asyncio.to_thread(ours.recv)
        await asyncio.to_thread(client.join)
        worker._finished.set()
        with contextlib.suppress(Exception):
            await running
        server.close()
    num_steps = len(tally.idle)
    return {
        "tally": dataclasses.asdict(tally),
        "wall_s": wall_s,
        "steps": num_steps,
        "held": after.running + after.parked,
        "idle_share": sum(tally.idle) / wall_s,
        "idle_ms": 1000 * sum(tally.idle) / num_steps,
        "period_ms": 1000 * wall_s / num_steps,
        "device_ms": 1000 * sum(tally.busy) / num_steps,
        "streams": sum(tally.streams) / num_steps,
        "late_ms": 1000 * sum(tally.late) / max(1, len(tally.late)),
        "late_p99_ms": 1000 * percentile(tally.late or [0.0], 99),
        "launching_ms": 1000 * sum(tally.launching) / num_steps,
        "engine_ms": 1000 * cpu_s["engine"] / num_steps,
        "loop_ms": 1000 * cpu_s["loop"] / num_steps,
        "learned": {"fixed": after.fixed_ms, "stream": after.stream_ms, "position": after.position_ms},
        "told_gap_share": (after.gap_ms - stats.gap_ms) / 1000 / wall_s if hasattr(after, "gap_ms") else None,
        "first_ms": [1000 * percentile(first_s or [0.0], p) for p in (50, 95)],
        "turns_begun": len(first_s),
        "dry": num_dry,
        "client_cores": client_s / (arguments.ramp_s + arguments.settle_s + arguments.seconds),
    }


async def _supervise(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while await reader.read(1 << 16):
            pass
    writer.close()


def report(found: dict[str, Any]) -> str:
    rows = [
        ["streams in a step", f"{found['streams']:.0f}"],
        ["step: from one to the next", f"{found['period_ms']:.2f} ms"],
        ["step: of the device", f"{found['device_ms']:.2f} ms"],
        ["device stands still", f"{found['idle_ms']:.2f} ms a step, {100 * found['idle_share']:.1f} % of the time"],
        ["results wait for the interpreter", f"{found['late_ms']:.2f} ms, p99 {found['late_p99_ms']:.2f}"],
        ["launch, beyond its calls", f"{found['launching_ms']:.2f} ms"],
        ["engine thread", f"{found['engine_ms']:.2f} ms of processor time a step"],
        ["event loop", f"{found['loop_ms']:.2f} ms"],
        ["learned cost", ", ".join(f"{name} {ms:.3f}" for name, ms in found["learned"].items())],
        ["first audio", "p50 {:.0f}, p95 {:.0f} ms of {}".format(*found["first_ms"], found["turns_begun"])],
        ["ran dry", str(found["dry"])],
        ["client", f"{found['client_cores']:.2f} cores"],
    ]
    return f"{found['held']} streams held, {found['steps']} steps\n" + table(["", ""], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listeners", type=int, default=600)
    parser.add_argument("--fixed-ms", type=float, default=4.5, help="of a step of the device (default 4.5)")
    parser.add_argument("--per-stream-ms", type=float, default=0.155, help="(default 0.155: an H200's)")
    parser.add_argument("--calls", type=int, default=12, help="by which it is given a step (default 12)")
    parser.add_argument("--launch-ms", type=float, default=1.5, help="that they take together (default 1.5)")
    parser.add_argument("--report-s", type=float, default=2.0, help="how often a listener's place is told (default 2)")
    parser.add_argument("--ramp-s", type=float, default=5.0)
    parser.add_argument("--settle-s", type=float, default=4.0)
    parser.add_argument("--seconds", type=float, default=10.0, help="that count (default 10)")
    parser.add_argument("--switch-ms", type=float, help="of the interpreter (default: the worker's own)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the raw figures here")
    parser.add_argument("--line", action="store_true", help="print one line of JSON")
    arguments = parser.parse_args()
    from realtime_tts.bench.subject import Subject
    from realtime_tts.engine.setup import EngineOptions, ready_message

    switch_quickly()
    if arguments.switch_ms:
        sys.setswitchinterval(arguments.switch_ms / 1000)
    with tempfile.TemporaryDirectory(prefix="worker-cycle-") as temporary:
        model = Path(temporary) / "hollow"
        write_random_checkpoint(model, "hollow")
        room = arguments.listeners + 128
        options = EngineOptions(model=str(model), device="cpu", threads=1, max_streams=room, num_blocks=10 * room)
        subject = Subject.load(options)
        engine = subject.engine(lambda message: None, full_streams=128)
        ready = ready_message(engine, subject.device, subject.options, 0.0, 0.0)
        found = asyncio.run(measure(engine, ready, arguments))
    tally = found.pop("tally")
    print(json.dumps(found) if arguments.line else report(found))
    if arguments.json:
        settings = {name: value for name, value in vars(arguments).items() if name not in ("json", "line")}
        write_json(arguments.json, document("worker-cycle", settings, subject.describe(), {**found, **tally}))


if __name__ == "__main__":
    main()
