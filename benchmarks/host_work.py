"""Host processor time of an engine step, by part, with a simulated device that computes nothing.

    python -m benchmarks.host_work --contexts 700

Everything but the model is the worker's own: messages, scheduler, layout, packed inputs, unpacked outputs, frames to
the gateway. The clock is simulated: a step takes a fixed time and some for each stream, the listeners play in real time
and tell now and then how far they are, and what they are told goes on and on. So it can be measured on any machine, and
the more alike two runs are in their load, the more their figures may be compared. On a device all but the launch
happens while it works on the step before.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import gc
import heapq
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from realtime_tts.bench.checkpoint import write_random_checkpoint
from realtime_tts.bench.figures import percentile
from realtime_tts.bench.report import document, table, write_json
from realtime_tts.bench.subject import Subject
from realtime_tts.bench.texts import turn
from realtime_tts.contract import frames
from realtime_tts.engine.client_channels import ClientChannels, _Client
from realtime_tts.engine.engine import Engine
from realtime_tts.engine.runtime.layout import StepLayout
from realtime_tts.engine.runtime.outputs import SentOutputs, StepOutputs
from realtime_tts.engine.runtime.program import Program
from realtime_tts.engine.runtime.runner import ModelRunner, StepResult
from realtime_tts.engine.setup import EngineOptions, ready_message

PARTS = (
    "messages",
    "schedule",
    "look ahead",
    "lay out",
    "pack",
    "launch",
    "unpack",
    "audio",
    "finish",
    "frames",
    "rest",
)
_NUM_PATCHES = 40


class Clock:
    """Processor time of this thread by part. A nested part counts for itself only."""

    def __init__(self) -> None:
        self._spent_ns: dict[str, int] = collections.defaultdict(int)
        self._stack = ["rest"]
        self._since_ns = time.thread_time_ns()

    def _switch(self) -> None:
        now_ns = time.thread_time_ns()
        self._spent_ns[self._stack[-1]] += now_ns - self._since_ns
        self._since_ns = now_ns

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._switch()
        self._stack.append(name)
        try:
            yield
        finally:
            self._switch()
            self._stack.pop()

    def around(self, owner: Any, method: str, name: str) -> None:
        """Count calls of a method as a part."""
        inner = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(name):
                return inner(*args, **kwargs)

        setattr(owner, method, timed)

    def take(self) -> dict[str, float]:
        """Return the milliseconds by part since the last call."""
        self._switch()
        spent_ns, self._spent_ns = self._spent_ns, collections.defaultdict(int)
        return {name: spent_ns[name] / 1e6 for name in PARTS}


class Device:
    """Simulated device: a step takes a set time; its numbers are finite and no stream stops."""

    def __init__(self, engine: Engine, fixed_s: float, per_stream_s: float) -> None:
        self.now_s = 0.0
        self._free_s = 0.0
        self._fixed_s, self._per_stream_s = fixed_s, per_stream_s
        self._done_s: dict[int, float] = {}
        runner = engine.runner
        self._unpack: Callable[[StepLayout, dict[str, Any]], StepResult] = runner._unpack
        self._step = runner._step
        leave_nothing_to_compute(runner)
        runner.launch, runner.result = self.launch, self.result  # type: ignore[method-assign]
        engine._clock = lambda: self.now_s

    def launch(self, layout: StepLayout) -> SentOutputs:
        num_streams = len(layout.speaking)
        self._free_s = max(self.now_s, self._free_s) + self._fixed_s + self._per_stream_s * num_streams
        self._done_s[id(layout)] = self._free_s
        with torch.inference_mode():
            return self._step(layout)

    def result(self, layout: StepLayout, sent: SentOutputs) -> StepResult:
        self.now_s = max(self.now_s, self._done_s.pop(id(layout)))
        return self._unpack(layout, sent.host)


def leave_nothing_to_compute(runner: ModelRunner) -> None:
    """Remove the computation: the host works as with an asynchronous device; numbers are finite, no stream stops."""
    runner.advances = runner.works_alone = True
    for program in vars(runner.programs).values():
        if isinstance(program, Program):
            program._body = lambda size: None
    _leave_nothing_to_copy(runner.outputs)
    runner.model.vae.decode_stream = lambda frames, state, slots: None  # type: ignore[method-assign, assignment]


def _leave_nothing_to_copy(outputs: StepOutputs) -> None:
    for sent in outputs._sent:
        for name, array in sent.host.items():
            array.fill(1 if name.startswith("finite") else 0)
        sent.host["power"].fill(0.01)
        sent.host["readings"].fill(1.0)

    def send(num_streams: int, *, with_pcm: bool) -> SentOutputs:
        outputs._sent.append(sent := outputs._sent.pop(0))
        return sent

    outputs.send = send  # type: ignore[method-assign]


class Gateway:
    """One client of the worker. Speech in each context is endless: a segment is requested while the one before it is
    spoken. Each context has a listener.

    report_s: interval between reports of a listener's playback position.
    """

    def __init__(self, engine: Engine, device: Device, subject: Subject, seed: int, report_s: float) -> None:
        self._engine, self._device, self._report_s = engine, device, report_s
        self._draw = random.Random(seed)
        self._num_contexts = 0
        self._num_segments: dict[str, int] = collections.defaultdict(int)
        self._began_s: dict[str, float] = {}  # when its first audio came
        self._produced_s: dict[str, float] = collections.defaultdict(float)
        self._due: list[tuple[float, str]] = []
        self._outbox: list[frames.Message] = []
        self.num_written = 0
        self.channels = ClientChannels(ready_message(engine, subject.device, subject.options, 0.0, 0.0), engine.post)
        self._client = _Client(1, self)  # type: ignore[arg-type]
        engine.emit = self._outbox.append

    def write(self, data: bytes) -> None:
        """Write, as a socket does."""
        self.num_written += len(data)

    def begin(self, num_patches: int) -> None:
        """Open another context, with the length of its first segment."""
        self._num_contexts += 1
        name = f"c{self._num_contexts}"
        self._ask(name, num_patches)
        self._ask(name, _NUM_PATCHES)

    def _ask(self, context: str, num_patches: int) -> None:
        segment = self._num_segments[context]
        self._num_segments[context] += 1
        text = turn(None, self._draw.randrange(1 << 30))
        message = frames.Generate(f"{context}.{segment}", context, text, segment=segment, max_patches=num_patches)
        self.channels._receive(self._client, message)

    def flush(self, clock: Clock) -> None:
        """Deliver the engine's messages, and pass the listeners' reports to it."""
        messages = self._outbox.copy()
        self._outbox.clear()
        with clock.part("frames"):
            self.channels.send(messages)
        with clock.part("not the worker's"):
            for message in messages:
                self._hear(message)
            self._report()

    def _hear(self, message: frames.Message) -> None:
        if isinstance(message, frames.Audio):
            context, now_s = message.request_id[2:].partition(".")[0], self._device.now_s
            if context not in self._began_s:
                self._began_s[context] = now_s
                heapq.heappush(self._due, (now_s + self._draw.random() * self._report_s, context))
            self._produced_s[context] += self._engine.config.patch_s
        elif isinstance(message, frames.Done):
            self._ask(message.request_id[2:].partition(".")[0], _NUM_PATCHES)
        else:
            raise RuntimeError(message)

    def _report(self) -> None:
        now_s = self._device.now_s
        while self._due and self._due[0][0] <= now_s:
            due_s, context = heapq.heappop(self._due)
            played_s = min(self._produced_s[context], now_s - self._began_s[context])
            self.channels._receive(self._client, frames.Playback(context, int(1000 * played_s)))
            heapq.heappush(self._due, (due_s + self._report_s, context))


def measure(subject: Subject, arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Return, for each measured step, its parts in ms and its number of streams."""
    engine = subject.engine(lambda message: None, full_streams=arguments.full_streams)
    device = Device(engine, arguments.fixed_ms / 1000, arguments.per_stream_ms / 1000)
    gateway = Gateway(engine, device, subject, arguments.seed, arguments.report_s)
    clock = Clock()
    runner, scheduler = engine.runner, engine.scheduler
    for owner, method, name in (
        (engine, "_take_messages", "messages"),
        (scheduler, "schedule", "schedule"),
        (scheduler, "following", "look ahead"),
        (scheduler, "over_others", "look ahead"),
        (runner, "prepare", "lay out"),
        (runner.inputs, "put", "pack"),
        (runner.inputs, "send", "pack"),
        (runner.state, "news_of", "pack"),
        (runner.state, "set_blocks", "pack"),
        (runner, "launch", "launch"),
        (runner, "result", "unpack"),
        (engine, "_send_audio", "audio"),
        (scheduler, "finish_step", "finish"),
        (engine, "_end", "finish"),
    ):
        clock.around(owner, method, name)
    num_streams: list[int] = []
    inner = runner.launch

    def launch(layout: StepLayout) -> SentOutputs:
        num_streams.append(len(layout.speaking))
        return inner(layout)

    runner.launch = launch  # type: ignore[method-assign]
    draw = random.Random(arguments.seed)
    waiting = arguments.contexts
    while waiting:  # as they come in a second or two, each somewhere in its turn
        for _ in range(min(waiting, 16)):
            gateway.begin(draw.randint(1, _NUM_PATCHES))
            waiting -= 1
        _step(engine, device, gateway, clock)
    settle_s = device.now_s + arguments.settle_s
    while device.now_s < settle_s:
        _step(engine, device, gateway, clock)
    gc.collect()
    gc.freeze()
    found: dict[str, list[float]] = {name: [] for name in ("streams", "active", *PARTS)}
    num_streams.clear()
    clock.take()
    for _ in tqdm(range(arguments.steps), disable=not sys.stderr.isatty()):
        before = len(num_streams)
        _step(engine, device, gateway, clock)
        for name, value in clock.take().items():
            found[name].append(value)
        found["streams"].append(sum(num_streams[before:]))
        found["active"].append(scheduler.num_active)
    return found


async def _on_a_loop(subject: Subject, arguments: argparse.Namespace) -> dict[str, list[float]]:
    """For the worker's side of its clients, which has timers on it; none of them is due while this runs."""
    return measure(subject, arguments)


def _step(engine: Engine, device: Device, gateway: Gateway, clock: Clock) -> None:
    if not engine.step():
        idle_s = engine.idle_s()
        device.now_s += 0.001 if idle_s is None else max(0.001, idle_s)
    gateway.flush(clock)


def report(found: dict[str, list[float]]) -> str:
    whole = [sum(parts) for parts in zip(*(found[name] for name in PARTS), strict=True)]
    rows = [*((name, found[name]) for name in PARTS), ("all", whole)]
    lines = [
        [name, *(f"{percentile(values, percent):.3f}" for percent in (50, 95, 99)), f"{sum(values) / len(values):.3f}"]
        for name, values in rows
    ]
    streams, active = (percentile(found[name], 50) for name in ("streams", "active"))
    title = f"{active:.0f} streams held, {streams:.0f} in a step"
    return title + "\n" + table(["processor time of a step, ms", "p50", "p95", "p99", "mean"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, default=700, help="at once (default 700)")
    parser.add_argument("--fixed-ms", type=float, default=10.0, help="of a step of the device (default 10)")
    parser.add_argument(
        "--per-stream-ms",
        type=float,
        default=0.15,
        help="of it (default 0.15: with 700 contexts about 128 are in a step)",
    )
    parser.add_argument("--full-streams", type=int, default=128, help="of a step (default 128: as on CUDA)")
    parser.add_argument("--report-s", type=float, default=2.0, help="how often a listener's place is told (default 2)")
    parser.add_argument("--settle-s", type=float, default=12.0, help="of simulated time before it counts (default 12)")
    parser.add_argument("--steps", type=int, default=400, help="that count (default 400)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the raw figures here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="host-work-") as temporary:
        model = Path(temporary) / "hollow"
        write_random_checkpoint(model, "hollow")
        options = EngineOptions(
            model=str(model),
            device="cpu",
            threads=1,
            max_streams=arguments.contexts + 64,
            num_blocks=8 * (arguments.contexts + 64),
        )
        subject = Subject.load(options)
        found = asyncio.run(_on_a_loop(subject, arguments))
    print(report(found))
    if arguments.json:
        settings = {name: value for name, value in vars(arguments).items() if name != "json"}
        write_json(arguments.json, document("host-work", settings, subject.describe(), found))


if __name__ == "__main__":
    main()
