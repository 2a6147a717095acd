"""A step is launched while the device computes the one before: its streams, and the effect of an end or a failure."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from engine_harness import EngineHarness, speaking

from realtime_tts.contract import frames
from realtime_tts.engine.runtime.layout import StepLayout
from realtime_tts.engine.runtime.outputs import SentOutputs
from realtime_tts.engine.runtime.runner import StepResult
from realtime_tts.errors import EngineOutOfMemory
from realtime_tts.model.checkpoint import LoadedModel

TEXTS = ["hello", "theweatherisnicetoday", "yes", "abcdefghij" * 5, "quick", "brownfox"]


@dataclasses.dataclass(slots=True)
class Later:
    """Results of a step that is over at a time."""

    layout: StepLayout
    over_s: float
    device: LazyDevice
    sent: SentOutputs | None = None

    @property
    def is_complete(self) -> bool:
        return self.device.harness.now >= self.over_s


class LazyDevice:
    """Computes a step when its results are asked for, and those behind it no sooner. A step takes its time; the clock
    goes on a millisecond with every look at it."""

    def __init__(self, harness: EngineHarness, step_s: float) -> None:
        self.harness, self._step_s = harness, step_s
        self.queue: collections.deque[Later] = collections.deque()
        self.gaps_s: list[float] = []
        self.num_queued: list[int] = []
        self.fails: set[str] = set()  # steps with one of these fail
        self._free_s = 0.0
        runner = harness.engine.runner
        self._launch, self._result = runner.launch, runner.result
        runner.launch, runner.result, runner.is_asynchronous = self.launch, self.result, True
        harness.engine._clock = self._tick

    def _tick(self) -> float:
        self.harness.now += 0.001
        return self.harness.now

    def launch(self, layout: StepLayout) -> Later:
        if self.fails & set(speaking(layout)):
            raise EngineOutOfMemory("asked to")
        now = self.harness.now
        self.gaps_s.append(max(0.0, now - self._free_s))
        self._free_s = max(now, self._free_s) + self._step_s
        self.queue.append(later := Later(layout, self._free_s, self))
        self.num_queued.append(len(self.queue))
        return later

    def result(self, layout: StepLayout, sent: Later) -> StepResult:
        assert self.queue.popleft() is sent
        self.harness.now = max(self.harness.now, sent.over_s)
        return self._result(layout, self._launch(layout))


def lazy(loaded: LoadedModel, step_s: float = 0.03, **limits: Any) -> tuple[EngineHarness, LazyDevice]:
    harness = EngineHarness(loaded, **{"max_streams": 8, "num_blocks": 64, **limits})
    return harness, LazyDevice(harness, step_s)


def say_all(harness: EngineHarness, **fields: Any) -> None:
    for number, text in enumerate(TEXTS):
        harness.say(f"r{number}", text, seed=number, **{"max_patches": 5 + number, **fields})


def audio_of(harness: EngineHarness, name: str) -> int:
    return len([m for m in harness.sent if isinstance(m, frames.Audio) and m.request_id == name])


@pytest.mark.parametrize("full", [1, 2])
def test_the_device_has_its_next_step_before_the_last_is_over_and_says_the_same(tiny: LoadedModel, full: int) -> None:
    """No more than one waits, and what a step leaves is there for those that were planned late."""
    plain = EngineHarness(tiny, max_streams=8, num_blocks=64)
    harness, device = lazy(tiny, full_streams=full)
    for each in (plain, harness):
        say_all(each)
        each.run()
        each.assert_nothing_leaked()
    for number in range(len(TEXTS)):
        expected = plain.pcm(f"r{number}")
        np.testing.assert_allclose(harness.pcm(f"r{number}"), expected, atol=1e-4 * np.abs(expected).max())
    assert max(device.num_queued) == 2
    most = len(device.gaps_s) // 2
    assert device.gaps_s[2:most] == [0.0] * (most - 2)


def test_where_every_stream_goes_on_the_device_has_its_next_step_in_time_too(tiny: LoadedModel) -> None:
    """But not before it is known which streams come beside them."""
    harness, device = lazy(tiny)
    plain = EngineHarness(tiny, max_streams=8, num_blocks=64)
    for each in (plain, harness):
        each.say("x", TEXTS[1], seed=1, max_patches=12)
        each.say("y", TEXTS[4], seed=2, max_patches=30)
        for _ in range(6):
            each.engine.step()
        each.say("z", TEXTS[0], seed=3, max_patches=4)
        each.run()
        each.assert_nothing_leaked()
    for name in "xyz":
        np.testing.assert_allclose(harness.pcm(name), plain.pcm(name), atol=1e-4)
    assert max(device.num_queued) == 2
    assert sum(gap == 0.0 for gap in device.gaps_s) > len(device.gaps_s) / 2


def test_it_is_launched_no_sooner_than_it_must_be(tiny: LoadedModel) -> None:
    """A stream that comes while the device computes is in the step behind, unless it is nearly over."""
    harness, device = lazy(tiny, full_streams=1)
    say_all(harness, max_patches=20)
    for _ in range(40):  # until it knows how long a step takes
        harness.engine.step()
    inbox, asked = harness.engine._inbox, []

    class Inbox:
        """A request arrives while a step is computed."""

        empty, get_nowait, put = inbox.empty, inbox.get_nowait, inbox.put

        def get(self, timeout: float) -> frames.Message:
            asked.append(harness.now)
            if len(asked) == 3:
                harness.say("late", "hello")
            harness.now += timeout if inbox.empty() else 0.0
            return inbox.get_nowait()

    harness.engine._inbox = Inbox()
    harness.engine.step()
    assert len(asked) > 3
    assert harness.engine._flight is not None
    assert speaking(harness.engine._flight.layout) == ("late",)
    assert device.gaps_s[-1] == 0.0


def test_what_a_step_costs_is_counted_from_the_end_of_the_one_before(tiny: LoadedModel) -> None:
    harness, _ = lazy(tiny, full_streams=1)
    say_all(harness, max_patches=40, steps=tiny.policy.default_steps)
    for _ in range(60):
        harness.engine.step()
    stats = harness.engine.stats()
    assert harness.engine.scheduler.cost.step_s(1, 0) == pytest.approx(0.03, rel=0.1)
    assert stats.busy_ms <= 1000 * harness.now
    assert stats.gap_ms <= 0.05 * stats.busy_ms


@pytest.mark.parametrize(("end", "newcomer"), [(frames.Cancel("x"), "x"), (frames.CloseContext("x"), "other")])
def test_a_stream_that_ends_while_its_step_waits_for_the_device_sends_no_more_audio(
    tiny: LoadedModel, end: frames.Message, newcomer: str
) -> None:
    """Its slot and blocks go to others behind that step, and a new request of the same name is not taken for it."""
    harness, _ = lazy(tiny, full_streams=1, max_streams=3, num_blocks=24)
    engine = harness.engine
    for name in ("x", "y", "z"):
        harness.say(name, "hello", seed=1, max_patches=8)
    while engine._flight is None or speaking(engine._flight.layout) != ("x",) or not audio_of(harness, "x"):
        engine.step()
    harness.sent.clear()
    engine.post(end)
    if newcomer == "x":
        engine.post(frames.CloseContext("x"))  # else it goes on from what was said
    harness.say(newcomer, "brownfox", seed=3, max_patches=6)
    engine.step()
    assert not audio_of(harness, "x")
    done = [message for message in harness.sent if isinstance(message, frames.Done)]
    assert [message.finish_reason for message in done] == ["cancelled"]
    harness.sent.clear()
    harness.run()
    alone = EngineHarness(tiny)
    alone.say("other", "brownfox", seed=3, max_patches=6)
    alone.run()
    expected = alone.pcm("other")
    np.testing.assert_allclose(harness.pcm(newcomer), expected, atol=1e-4 * np.abs(expected).max())
    harness.assert_nothing_leaked()


def test_a_step_that_cannot_be_launched_behind_another_costs_that_one_nothing(tiny: LoadedModel) -> None:
    harness, device = lazy(tiny, full_streams=1)
    for name in ("x", "y", "z"):
        harness.say(name, "hello", seed=1, max_patches=10)
    while audio_of(harness, "y") < 3:
        harness.engine.step()
    device.fails = {"y"}
    harness.run()
    failed = harness.end("y")
    assert isinstance(failed, frames.Failed)
    assert failed.code == "engine_out_of_memory"
    assert all(isinstance(harness.end(name), frames.Done) for name in "xz")
    np.testing.assert_allclose(harness.pcm("x"), harness.pcm("z"), atol=1e-4)
    harness.assert_nothing_leaked()


def test_a_step_that_fails_does_not_fail_the_one_behind_it(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    harness, device = lazy(tiny, full_streams=1)
    for name in ("x", "y", "z"):
        harness.say(name, "hello", seed=1, max_patches=10)
    while audio_of(harness, "y") < 3 or speaking(device.queue[-1].layout) != ("x",):
        harness.engine.step()
    run_step = harness.engine.runner._step

    def no_memory(layout: StepLayout) -> SentOutputs:
        if speaking(layout) == ("x",):
            raise torch.OutOfMemoryError("asked to")
        return run_step(layout)

    monkeypatch.setattr(harness.engine.runner, "_step", no_memory)
    harness.run()
    assert isinstance(harness.end("x"), frames.Failed)
    assert all(isinstance(harness.end(name), frames.Done) for name in "yz")
    np.testing.assert_allclose(harness.pcm("y"), harness.pcm("z"), atol=1e-4)
    harness.assert_nothing_leaked()
