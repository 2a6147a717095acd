"""Start of a worker up to its steady state: time until it is ready, extra latency of the first requests, and growth of
memory, graphs and kernels under requests of any shape.

    realtime-tts bench checkpoint random-voxcpm2 --shape voxcpm2
    python -m benchmarks.start_up --model random-voxcpm2
    python -m benchmarks.start_up --model random-voxcpm2 --through server --gateways 2 --requests 0

The worker is started twice: the first start fills the kernel caches, if they are empty; the second start uses them.
Through the server it is the whole of it that is started, and asked over a WebSocket for Opus, each time on a new
connection; each of its gateways has first requests of its own. Then an engine in this process serves requests of random
shapes. The exit status is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from realtime_tts.bench.figures import percentile
from realtime_tts.bench.native_stream import open_stream, speak
from realtime_tts.bench.report import document, figure, table, write_json
from realtime_tts.bench.server_process import running_server
from realtime_tts.bench.subject import Subject
from realtime_tts.bench.texts import turn
from realtime_tts.contract import frames
from realtime_tts.engine.engine import Engine
from realtime_tts.engine.runtime.program import Program
from realtime_tts.engine.setup import EngineOptions
from realtime_tts.model.kernels.cuda.build import cache_directory
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.supervisor import WorkerSpec, worker_command

READY_S, FIRST_RATIO = 60.0, 1.5
_NUM_FIRST = 3  # requests that are judged against those after them
_NUM_PATCHES = 4
_MAX_AT_ONCE = 48


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """ready_s: from the start of the process. asked_ms: from each request to its first audio, one after the other.
    num_gateways: that take turns to answer them. connected_ms: until there was a session to ask in, if there is one."""

    ready_s: float
    asked_ms: list[float]
    num_gateways: int = 1
    connected_ms: list[float] = dataclasses.field(default_factory=list)

    def nth_ms(self, number: int) -> float:
        """The slowest of the gateways' first, second, third … requests (1, 2, 3 …)."""
        return max(self.asked_ms[self.num_gateways * (number - 1) : self.num_gateways * number])

    @property
    def steady_ms(self) -> list[float]:
        return self.asked_ms[self.num_gateways * _NUM_FIRST :]

    @property
    def ratio(self) -> float:
        """Ratio of the slowest of the first requests to the median of the steady ones."""
        return max(map(self.nth_ms, range(1, _NUM_FIRST + 1))) / percentile(self.steady_ms, 50)


async def start_worker(model: str, device: str, max_streams: int | None, num_steady: int) -> Start:
    """Start a worker as a server does, ask it, end it."""
    begun_s = time.perf_counter()
    command = worker_command(model, device, max_streams=max_streams)
    client = EngineClient([WorkerSpec(command)])
    await client.start()
    ready_s = time.perf_counter() - begun_s
    asked_ms = [await _first_audio_ms(client, number) for number in range(_NUM_FIRST + num_steady)]
    await client.close()
    return Start(ready_s, asked_ms)


def start_server(model: str, device: str, max_streams: int | None, num_steady: int, num_gateways: int) -> Start:
    """Start a server, ask it, end it."""
    options = ["--model", model, "--devices", device, "--gateways", str(num_gateways)]
    if max_streams is not None:
        options += ["--max-streams", str(max_streams)]
    num_calls = num_gateways * (_NUM_FIRST + num_steady)
    with running_server(*options) as server:
        asked = asyncio.run(_first_packets_ms(server.stream_url, num_calls))
    connected_ms, asked_ms = map(list, zip(*asked, strict=True))
    return Start(server.ready_s, asked_ms, num_gateways, connected_ms)


async def _first_packets_ms(url: str, num_calls: int) -> list[tuple[float, float]]:
    """Return for each call, on a new connection: ms until the session, and ms from its text to its first packet."""
    times_ms = []
    for number in range(num_calls):
        begun_s = time.perf_counter()
        socket = await open_stream(url)
        connected_s = time.perf_counter() - begun_s
        spoken = await speak(socket, "start-up", turn(None, number), cancel_after_s=0.0)
        await socket.close()
        if spoken.error:
            raise RuntimeError(f"the server does not speak: {spoken.error}")
        times_ms.append((1000 * connected_s, 1000 * spoken.first_s))
    return times_ms


async def _first_audio_ms(client: EngineClient, number: int) -> float:
    name = f"start-up-{number}"
    begun_s = time.perf_counter()
    first_s: float | None = None
    request = frames.Generate(name, name, turn(None, number), seed=number, max_patches=_NUM_PATCHES, paced=False)
    async for message in client.submit(request):
        if isinstance(message, frames.Failed):
            raise RuntimeError(message.message)
        if first_s is None and isinstance(message, frames.Audio):
            first_s = time.perf_counter() - begun_s
    client.close_context(name)
    assert first_s is not None
    return 1000 * first_s


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """Memory held by a process at a moment. allocated, reserved: torch's bytes on the device; device: bytes in use by
    all processes; graphs: captured ones; kernels: files that compilers keep."""

    allocated: int
    reserved: int
    device: int
    graphs: int
    kernels: int

    @classmethod
    def of(cls, engine: Engine) -> Held:
        device = engine.runner.device
        programs = (value for value in vars(engine.runner.programs).values() if isinstance(value, Program))
        graphs = sum(len(program.sizes) for program in programs)
        if device.type != "cuda":
            return cls(0, 0, 0, graphs, _num_kernels())
        torch.cuda.synchronize(device)
        free, total = torch.cuda.mem_get_info(device)
        allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
        return cls(allocated, reserved, total - free, graphs, _num_kernels())


def _num_kernels() -> int:
    triton = Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache")
    return sum(path.is_file() for root in (triton, cache_directory()) if root.exists() for path in root.rglob("*"))


class Shapes:
    """Requests of random shapes: texts of one word to a paragraph, one to forty patches, any guidance; a part of them
    is written while it is spoken, a part is cancelled.

    other_steps: some have another number of flow steps than the checkpoint's.
    """

    def __init__(self, engine: Engine, seed: int, *, other_steps: bool) -> None:
        self._engine, self._draw, self._other_steps = engine, random.Random(seed), other_steps
        self._seed = seed
        self.num_done = 0

    def receive(self, message: frames.Message) -> None:
        if isinstance(message, frames.Failed):
            raise RuntimeError(message.message)
        if isinstance(message, frames.Done):
            self.num_done += 1
            self._engine.post(frames.CloseContext(message.request_id))

    def run(self, num_requests: int) -> None:
        engine, draw = self._engine, self._draw
        engine.emit = self.receive
        for number in range(num_requests):
            self._ask(f"{self._seed}-{number}")
            for _ in range(draw.choice((0, 0, 1, 2, 4))):
                engine.step()
            while engine.scheduler.num_active + engine.scheduler.num_waiting >= draw.randint(1, _MAX_AT_ONCE):
                engine.step()
        while engine.step() or not engine.is_idle:
            pass
        assert self.num_done == num_requests

    def _ask(self, name: str) -> None:
        draw = self._draw
        text = turn(draw.choice((draw.randint(1, 8), draw.randint(8, 60))), draw.randrange(1 << 30))
        is_live = draw.random() < 0.2 and len(text) > 40
        cut = text.rindex(" ", 0, len(text) // 2) if is_live else len(text)
        message = frames.Generate(
            *(name, name, text[:cut]),
            seed=draw.randrange(1 << 30),
            cfg=draw.choice((None, draw.uniform(0.0, 4.0))),
            steps=draw.randint(3, 12) if self._other_steps and draw.random() < 0.2 else None,
            max_patches=draw.randint(1, 40),
            paced=False,
            final=not is_live,
        )
        self._engine.post(message)
        if is_live:
            for _ in range(draw.randint(1, 6)):
                self._engine.step()
            self._engine.post(frames.Extend(name, text, final=True))
        elif draw.random() < 0.1:
            self._engine.step()
            self._engine.post(frames.Cancel(name))


def grown(subject: Subject, num_requests: int) -> dict[str, tuple[Held, Held]]:
    """Return the held memory before and after requests, with the usual number of flow steps and with others too."""
    engine = subject.engine(lambda message: None)
    found: dict[str, tuple[Held, Held]] = {}
    for seed, (name, other_steps) in enumerate({"usual steps": False, "other steps too": True}.items()):
        shapes = Shapes(engine, seed, other_steps=other_steps)
        before = Held.of(engine)
        shapes.run(num_requests)
        found[name] = before, Held.of(engine)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="starter-voice", help="a checkpoint directory, or starter-voice")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--max-streams", type=int, help="streams at once (default: the worker's own)")
    parser.add_argument("--through", choices=("worker", "server"), default="worker", help="what is started and asked")
    parser.add_argument("--gateways", type=int, default=1, help="of a server (default 1)")
    parser.add_argument("--starts", type=int, default=2, help="of it; the last one is judged (default 2)")
    parser.add_argument("--steady", type=int, default=20, help="requests after the first three (default 20)")
    parser.add_argument("--requests", type=int, default=500, help="of random shapes; 0: none (default 500)")
    parser.add_argument("--json", type=Path, help="write the raw figures here")
    arguments = parser.parse_args()
    bar = tqdm(total=arguments.starts + (arguments.requests > 0), disable=not sys.stderr.isatty())
    starts = []
    for _ in range(arguments.starts):
        how = arguments.model, arguments.device, arguments.max_streams, arguments.steady
        if arguments.through == "server":
            starts.append(start_server(*how, arguments.gateways))
        else:
            starts.append(asyncio.run(start_worker(*how)))
        bar.update()
    memory: dict[str, tuple[Held, Held]] = {}
    about: dict[str, Any] = {"model": arguments.model, "device": arguments.device}
    if arguments.requests:
        subject = Subject.load(
            EngineOptions(model=arguments.model, device=arguments.device, max_streams=arguments.max_streams)
        )
        memory, about = grown(subject, arguments.requests), subject.describe()
    bar.close()
    print(table(_START_HEADER, [_start_line(number, one) for number, one in enumerate(starts, 1)]))
    if memory:
        names = [field.name for field in dataclasses.fields(Held)]
        lines = []
        for name, held in memory.items():
            before, after = (dataclasses.astuple(side) for side in held)
            lines.append([name, *(f"{old:,} → {new:,}" for old, new in zip(before, after, strict=True))])
        print(table([f"held, before → after {arguments.requests} requests", *names], lines))
    if arguments.json:
        results: dict[str, Any] = {"starts": [dataclasses.asdict(one) for one in starts]}
        results["held"] = {name: [dataclasses.asdict(side) for side in held] for name, held in memory.items()}
        settings = {name: value for name, value in vars(arguments).items() if name != "json"}
        write_json(arguments.json, document("start-up", settings, about, results))
    if missed := _missed(starts[-1], memory.get("usual steps")):
        sys.exit("missed: " + "; ".join(missed))


_START_HEADER = [
    *("start", "ready s", "first audio of the first ms", "second", "third", "steady p50 ms", "p95", "worst ÷ steady"),
    *("connected: first ms", "steady p50 ms"),
]


def _start_line(number: int, start: Start) -> list[str]:
    steady = [percentile(start.steady_ms, percent) for percent in (50, 95)]
    firsts = [start.nth_ms(number) for number in range(1, _NUM_FIRST + 1)]
    connected = ["–", "–"]
    if start.connected_ms:
        connected = [figure(start.connected_ms[0]), figure(percentile(start.connected_ms[1:], 50))]
    return [str(number), *map(figure, (start.ready_s, *firsts, *steady, start.ratio)), *connected]


def _missed(last: Start, held: tuple[Held, Held] | None) -> list[str]:
    bars = {
        f"ready within {READY_S:.0f} s": last.ready_s <= READY_S,
        f"first requests within {FIRST_RATIO} × of the steady ones": last.ratio <= FIRST_RATIO,
    }
    if held is not None:
        before, after = map(dataclasses.asdict, held)
        bars |= {f"{name} as before": after[name] <= before[name] for name in before}
    return [bar for bar, holds in bars.items() if not holds]


if __name__ == "__main__":
    main()
