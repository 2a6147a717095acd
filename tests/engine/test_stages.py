"""The runner tells a clock which stage begins, in every kind of step."""

from __future__ import annotations

from realtime_tts.contract import frames
from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.engine import Engine
from realtime_tts.engine.runtime.stages import BASE, FLOW, LOC_ENC, RESIDUAL, REST, VAE
from realtime_tts.model.checkpoint import LoadedModel


class Recorder:
    def __init__(self) -> None:
        self.steps: list[list[str]] = []
        self._marks: list[str] = []

    def mark(self, stage: str) -> None:
        self._marks.append(stage)

    def end(self) -> None:
        self.steps.append(self._marks)
        self._marks = []


def test_every_step_tells_its_stages_in_order(tiny: LoadedModel) -> None:
    recorder = Recorder()
    config = SchedulerConfig(32, 4, 64, patch_s=0.16, max_prefill_positions=16)
    engine = Engine(tiny, config, lambda message: None, clock=lambda: 0.0, stages=recorder)
    engine.post(frames.Generate("a", "a", "abcdefghijklmnopqrstuv", paced=False, max_patches=3, steps=2))
    while engine.step():
        pass
    decode = [LOC_ENC, BASE, RESIDUAL, REST, FLOW, VAE, REST]
    part, first, *rest = recorder.steps
    assert part == decode[:4]  # a prefill that goes on in the next step makes no sound
    assert first == [LOC_ENC, VAE, *decode]  # a fresh stream's decoder is prepared
    assert rest == [decode] * 2
