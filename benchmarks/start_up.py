"""From the start of a worker to its steady state: how long until it is ready, whether the first request pays for what
comes later for nothing, and whether requests of any shape leave memory, graphs and kernels as they were.

    realtime-tts bench checkpoint random-voxcpm2 --shape voxcpm2
    python -m benchmarks.start_up --model random-voxcpm2

The worker is started twice: the first start fills what is kept of kernels, if nobody did before, the second finds it.
Then an engine in this process serves requests of random shapes. The exit status is 1 if a bar is missed.
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
from realtime_tts.bench.report import document, figure, table, write_json
from realtime_tts.bench.subject import Subject
from realtime_tts.bench.texts import turn
from realtime_tts.engine.engine import Engine
from realtime_tts.engine.runtime.program import Program
from realtime_tts.engine.setup import EngineOptions
from realtime_tts.model.kernels.cuda.build import cache_directory
from realtime_tts.workers import frames
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.supervisor import WorkerSpec, worker_command

READY_S, FIRST_RATIO = 60.0, 1.5
_NUM_PATCHES = 4
_MAX_AT_ONCE = 48


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """ready_s: from the start of the process. first_ms, steady_ms: from a request to its first audio, of the first one
    and of those after it."""

    ready_s: float
    first_ms: float
    steady_ms: list[float]

    @property
    def ratio(self) -> float:
        return self.first_ms / percentile(self.steady_ms, 50)


async def start(model: str, device: str, max_streams: int | None, num_requests: int) -> Start:
    """Start a worker as a server does, ask it, end it."""
    begun_s = time.perf_counter()
    command = worker_command(model, device, max_streams=max_streams)
    client = EngineClient([WorkerSpec(command)])
    await client.start()
    ready_s = time.perf_counter() - begun_s
    firsts_ms = [await _first_audio_ms(client, number) for number in range(1 + num_requests)]
    await client.close()
    return Start(ready_s, firsts_ms[0], firsts_ms[1:])


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
    """What a process holds at a moment. allocated, reserved: bytes of torch's on the device; device: bytes that
    anybody has there; graphs: captured ones; kernels: files that compilers keep."""

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
    """What is held before and after so many requests, of the usual number of flow steps and of others too."""
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
    parser.add_argument("--starts", type=int, default=2, help="of the worker; the last one is judged (default 2)")
    parser.add_argument("--steady", type=int, default=20, help="requests after the first one (default 20)")
    parser.add_argument("--requests", type=int, default=500, help="of random shapes (default 500)")
    parser.add_argument("--json", type=Path, help="write the raw figures here")
    arguments = parser.parse_args()
    bar = tqdm(total=arguments.starts + 1, disable=not sys.stderr.isatty())
    starts = []
    for _ in range(arguments.starts):
        starts.append(asyncio.run(start(arguments.model, arguments.device, arguments.max_streams, arguments.steady)))
        bar.update()
    subject = Subject.load(
        EngineOptions(model=arguments.model, device=arguments.device, max_streams=arguments.max_streams)
    )
    memory = grown(subject, arguments.requests)
    bar.close()
    header = ["start", "ready s", "first audio of the first ms", "steady p50 ms", "p95", "first ÷ steady"]
    lines = []
    for number, one in enumerate(starts, 1):
        steady = [percentile(one.steady_ms, percent) for percent in (50, 95)]
        lines.append([str(number), *map(figure, (one.ready_s, one.first_ms, *steady, one.ratio))])
    print(table(header, lines))
    header = [
        f"held, before → after {arguments.requests} requests",
        *(field.name for field in dataclasses.fields(Held)),
    ]
    lines = []
    for name, held in memory.items():
        before, after = (dataclasses.astuple(side) for side in held)
        lines.append([name, *(f"{old:,} → {new:,}" for old, new in zip(before, after, strict=True))])
    print(table(header, lines))
    if arguments.json:
        results: dict[str, Any] = {"starts": [dataclasses.asdict(one) for one in starts]}
        results["held"] = {name: [dataclasses.asdict(side) for side in held] for name, held in memory.items()}
        settings = {name: value for name, value in vars(arguments).items() if name != "json"}
        write_json(arguments.json, document("start-up", settings, subject.describe(), results))
    if missed := _missed(starts[-1], memory["usual steps"]):
        sys.exit("missed: " + "; ".join(missed))


def _missed(last: Start, held: tuple[Held, Held]) -> list[str]:
    before, after = (dataclasses.asdict(side) for side in held)
    bars = {
        f"ready within {READY_S:.0f} s": last.ready_s <= READY_S,
        f"first request within {FIRST_RATIO} × of the steady ones": last.ratio <= FIRST_RATIO,
        **{f"{name} as before": after[name] <= before[name] for name in before},
    }
    return [bar for bar, holds in bars.items() if not holds]


if __name__ == "__main__":
    main()
