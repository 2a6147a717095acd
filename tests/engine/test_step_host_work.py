"""The host's work for a step is counted, not timed: launches, copies, calls.

A fake device computes nothing. The host does all that a GPU's step takes: the step ahead, and the results of the step
before.
"""

from __future__ import annotations

import collections
from cProfile import Profile
from typing import Any, NamedTuple

import pytest
from engine_harness import EngineHarness
from torch.utils._python_dispatch import TorchDispatchMode

from realtime_tts.contract import frames
from realtime_tts.contract.policy import TextHead
from realtime_tts.engine.runtime.program import Program
from realtime_tts.model.checkpoint import LoadedModel

NUM_STEPS = 8
# Measured: 3 operations, 531 + 108 calls a stream. A regression is a change of more than a twentieth.
MAX_OPERATIONS, MAX_CALLS, MAX_CALLS_PER_STREAM = 3, 557, 113
LIMITS = {"num_blocks": 1024, "max_streams": 129, "max_prefill_positions": 512}


class _Operations(TorchDispatchMode):
    """Counts torch's operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


class Work(NamedTuple):
    """Mean of a step."""

    launches: dict[str, float]
    operations: dict[str, float]
    calls: float


class FakeDevice:
    """An engine whose programs are counted in place of being run."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.launches: collections.Counter[str] = collections.Counter()
        self.harness = EngineHarness(loaded, {"text_head": TextHead(1, 2, 40.0)}, **LIMITS)
        runner = self.harness.engine.runner
        self.flow_steps = loaded.policy.default_steps
        runner.is_asynchronous = True
        for name, value in vars(runner.programs).items():
            if isinstance(value, Program):
                value._body = self._counter(name)

    def _counter(self, name: str) -> Any:
        def count(size: int) -> None:
            self.launches[name] += 1

        return count

    def begin(self, num_streams: int) -> None:
        for number in range(num_streams):
            self.say(f"s{number}")
        while len(self.harness.engine.scheduler._active) < num_streams:
            self.step()
        for _ in range(6):
            self.step()

    def say(self, name: str, **fields: Any) -> None:
        self.harness.say(name, "theweatherisnice", max_patches=60, encoding="s16le", steps=self.flow_steps, **fields)

    def step(self) -> None:
        assert self.harness.engine.step()
        self.harness.now += 0.01

    def work(self) -> Work:
        """Work of steps in which all streams speak and nothing else happens."""
        self.launches.clear()
        sent = len(self.harness.sent)
        profile = Profile()
        with _Operations() as operations:
            for _ in range(NUM_STEPS):
                self.step()
        assert len(self.harness.sent) > sent, "the streams speak"
        launches = {name: count / NUM_STEPS for name, count in self.launches.items()}
        counts = {name: count / NUM_STEPS for name, count in operations.counts.items()}
        profile.runcall(lambda: [self.step() for _ in range(NUM_STEPS)])
        calls = sum(entry.callcount for entry in profile.getstats()) / NUM_STEPS
        return Work(launches, counts, calls)


@pytest.mark.parametrize("num_streams", [1, 8, 128])
def test_streams_that_speak_cost_five_launches_and_a_few_calls_each(tiny: LoadedModel, num_streams: int) -> None:
    device = FakeDevice(tiny)
    device.begin(num_streams)
    work = device.work()
    assert work.launches == {"encode": 1, "base": 1, "residual": 1, "flow": 1, "vae": 1}
    assert sum(work.operations.values()) <= MAX_OPERATIONS
    assert work.operations["copy_"] <= 2
    assert work.calls <= MAX_CALLS + MAX_CALLS_PER_STREAM * num_streams


def test_no_step_waits_for_the_host_where_streams_begin_and_read_more_text(tiny: LoadedModel) -> None:
    device = FakeDevice(tiny)
    device.begin(8)
    engine = device.harness.engine
    for number in range(NUM_STEPS):
        device.say(f"open{number}", final=False)
        device.step()
        assert engine._flight is not None
        engine.post(frames.Extend(f"open{number}", "theweatherisnicetoday", True))
        device.step()
        assert engine._flight is not None
    assert sum(segment.request.num_extensions for segment in engine._segments.values()) > NUM_STEPS // 2


def test_a_stream_that_begins_adds_no_launch(tiny: LoadedModel) -> None:
    device = FakeDevice(tiny)
    device.begin(8)
    device.launches.clear()
    device.say("late")
    for _ in range(NUM_STEPS):
        device.step()
    assert device.launches["flow"] in (NUM_STEPS, NUM_STEPS + 1)  # one more if a step was launched ahead
    assert set(device.launches.values()) == {device.launches["flow"]}
