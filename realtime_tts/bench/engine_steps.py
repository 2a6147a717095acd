"""Duration of an engine step by the number of streams, and its split into stages.

Streams are all in the middle of their speech: each step advances every one of them by a patch, and nothing else.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable

import torch

from realtime_tts.bench.figures import Spread, percentile
from realtime_tts.bench.subject import Subject
from realtime_tts.bench.texts import TURN
from realtime_tts.contract import frames
from realtime_tts.engine.engine import Engine
from realtime_tts.engine.runtime.stages import STAGES, StageClock
from realtime_tts.engine.setup import CUDA_FULL_STREAMS
from realtime_tts.errors import EngineError

_NEVER_S = 1e6  # no stream is late or early, so that none is left out of a step
HOST = "host"  # part of a step's time outside all stages: schedule, pack, launch, unpack, send


class StageStamps(StageClock):
    """Time of each stage of a step: host time on the CPU, where a call returns when its work is done,
    events on CUDA."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._stages: list[str] = []
        self._times_s: list[float] = []
        self._events: list[torch.cuda.Event] = []

    def mark(self, stage: str) -> None:
        if self._stages and not self._stages[-1]:  # the step before has ended
            for marks in (self._stages, self._times_s, self._events):
                marks.clear()
        self._stages.append(stage)
        if self._is_cuda:
            self._events.append(torch.cuda.Event(enable_timing=True))
            self._events[-1].record()
        else:
            self._times_s.append(time.perf_counter())

    def end(self) -> None:
        self.mark("")

    def take(self) -> dict[str, float]:
        """Return the seconds of each stage of the last step, once the device has finished it. Empty before the first
        step."""
        if self._events:
            self._events[-1].synchronize()
            self._times_s = [self._events[0].elapsed_time(event) / 1000 for event in self._events]
        split: dict[str, float] = {}
        for stage, (begun_s, ended_s) in zip(self._stages, itertools.pairwise(self._times_s), strict=False):
            split[stage] = split.get(stage, 0.0) + ended_s - begun_s
        return split


@dataclasses.dataclass(frozen=True, slots=True)
class StepMeasurement:
    """Parameters of the measurement. steps, cfg: of the flow; None is the checkpoint's choice."""

    batches: tuple[int, ...]
    num_steps: int
    num_warm: int
    runs: int
    steps: int | None = None
    cfg: float | None = None


@dataclasses.dataclass(kw_only=True)
class StepRow:
    """Figures of steps by the number of streams. runs: the duration of each step in each run, ms. stages_ms, kernels:
    of a step; kernels None: on the CPU. observed_ms: duration of a step with the stages' clock running, which costs a
    little."""

    streams: int
    runs: list[list[float]] = dataclasses.field(default_factory=list)
    memory: dict[str, float] = dataclasses.field(default_factory=dict)
    step_ms: Spread = dataclasses.field(default_factory=lambda: Spread.of(()))
    times_real_time: float = 0.0
    stages_ms: dict[str, float] = dataclasses.field(default_factory=dict)
    observed_ms: float = 0.0
    kernels: int | None = None


class SteadyStreams:
    """Engine with a given number of streams in mid-speech.

    stages: clock for the engine's stages; None: it runs as it does in a worker.
    """

    def __init__(self, subject: Subject, plan: StepMeasurement, stages: StageStamps | None = None) -> None:
        self._num_audio = 0
        self._plan = plan
        self.engine: Engine = subject.engine(
            self._receive,
            stages,
            unpaced_slack_s=_NEVER_S,
            first_audio_s=_NEVER_S,
            ample_lead_s=_NEVER_S,
            full_streams=max(CUDA_FULL_STREAMS, *plan.batches),  # all in one step, however many a worker puts there
        )
        self._contexts: list[str] = []

    def start(self, num_streams: int, num_steps: int) -> None:
        """Begin streams that have `num_steps` more patches in them once all of them speak."""
        plan, engine = self._plan, self.engine
        text = self._long_text(num_streams, num_steps)
        self._contexts = [f"{num_streams}-{number}" for number in range(num_streams)]
        self._num_audio = 0
        for number, name in enumerate(self._contexts):
            engine.post(frames.Generate(name, name, text, seed=number, cfg=plan.cfg, steps=plan.steps, paced=False))
        for _ in range(num_streams + 64):  # prefills share steps; some of the streams speak before others
            before = self._num_audio
            engine.step()
            if self._num_audio - before == num_streams:
                return
        raise EngineError(f"{num_streams} streams never came into one step")

    def step(self) -> float:
        """Run one step and return its duration, seconds.

        Raises:
            EngineError: not every stream was in it.
        """
        before = self._num_audio
        started_s = time.perf_counter()
        self.engine.step()
        elapsed_s = time.perf_counter() - started_s
        if self._num_audio - before != len(self._contexts):
            raise EngineError(f"a step over {len(self._contexts)} streams made {self._num_audio - before} patches")
        return elapsed_s

    def _long_text(self, num_streams: int, num_steps: int) -> str:
        """Return a text so long that the length guard, six patches a token, ends no stream before all are measured."""
        num_tokens = len(self.engine.loaded.tokenizer.encode(TURN))
        num_prefills = 1 + num_streams * (num_tokens + 8) // self.engine.config.max_prefill_positions
        return " ".join([TURN] * -(-(num_steps + num_prefills + 1) // (6 * num_tokens)))

    def stop(self) -> None:
        for name in self._contexts:
            self.engine.post(frames.CloseContext(name))
        self.engine.step()
        self._contexts = []

    def _receive(self, message: frames.Message) -> None:
        if isinstance(message, frames.Failed):
            raise EngineError(f"a stream failed: {message.message}")
        self._num_audio += isinstance(message, frames.Audio)


def measure_steps(
    subject: Subject, plan: StepMeasurement, progress: Callable[[str], None] = lambda what: None
) -> list[StepRow]:
    """Measure one row per batch, and in a run of its own the split into stages.

    Args:
        progress: called before each part of the work with its description.

    Raises:
        EngineError: the engine failed, or has no room for so many streams.
    """
    progress("warming up")
    streams = SteadyStreams(subject, plan)
    rows = [StepRow(streams=batch) for batch in plan.batches]
    num_steps = plan.num_warm + plan.num_steps
    for run in range(plan.runs):
        for row in rows:
            progress(f"{row.streams} streams, run {run + 1}")
            subject.forget_peak()
            streams.start(row.streams, num_steps)
            row.runs.append([1000 * streams.step() for _ in range(num_steps)][plan.num_warm :])
            streams.stop()
            row.memory = subject.memory()
    del streams  # its memory is needed for the next one
    progress("warming up, with stages")
    clock = StageStamps(subject.device)
    observed = SteadyStreams(subject, plan, clock)
    for row in rows:
        progress(f"{row.streams} streams, stages")
        row.step_ms = Spread.of([value for run_ms in row.runs for value in run_ms])
        row.times_real_time = row.streams * 1000 * subject.patch_s / row.step_ms.p50
        _split(observed, clock, row, plan)
    return rows


def _split(streams: SteadyStreams, clock: StageStamps, row: StepRow, plan: StepMeasurement) -> None:
    """Add the stages, medians over the steps, and the kernels to a row."""
    streams.start(row.streams, plan.num_warm + plan.num_steps + 1)
    for _ in range(plan.num_warm):
        streams.step()
    walls_ms, splits = [], []
    for _ in range(plan.num_steps):
        walls_ms.append(1000 * streams.step())
        splits.append({stage: 1000 * seconds for stage, seconds in clock.take().items()})
    row.observed_ms = percentile(walls_ms, 50)
    row.kernels = _count_kernels(streams)
    streams.stop()
    stages = [stage for stage in STAGES if any(stage in split for split in splits)]
    hosts_ms = [wall_ms - sum(split.values()) for wall_ms, split in zip(walls_ms, splits, strict=True)]
    row.stages_ms = {stage: percentile([split.get(stage, 0.0) for split in splits], 50) for stage in stages}
    row.stages_ms[HOST] = max(0.0, percentile(hosts_ms, 50))


def _count_kernels(streams: SteadyStreams) -> int | None:
    """Return the number of kernels that one step runs on the device; None on the CPU."""
    if streams.engine.runner.device.type != "cuda":
        return None
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        streams.step()
        torch.cuda.synchronize()
    on_device = [event for event in profile.events() if event.device_type.name == "CUDA"]
    return sum(not event.name.startswith(("Memcpy", "Memset")) for event in on_device)
