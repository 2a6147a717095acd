"""An engine driven by hand, step by step, with what it sends collected by request."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from block_pools import check_pool

from realtime_tts.contract import frames
from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.engine import Engine
from realtime_tts.engine.runtime.layout import StepLayout
from realtime_tts.model.adapted import AdapterBank
from realtime_tts.model.checkpoint import LoadedModel


def patch_duration_s(loaded: LoadedModel) -> float:
    return loaded.config.patch_samples / loaded.config.sample_rate


def speaking(layout: StepLayout) -> tuple[str, ...]:
    """Ids of the requests that speak in a step, by row."""
    return tuple(stream.request_id for stream in layout.streams)


class EngineHarness:
    """Requests are unpaced and float32 unless asked otherwise; `now` is the engine's clock."""

    def __init__(
        self,
        loaded: LoadedModel,
        policy: dict[str, Any] | None = None,
        *,
        bank: AdapterBank | None = None,
        **limits: Any,
    ) -> None:
        self.now = 0.0
        self.sent: list[frames.Message] = []
        loaded = dataclasses.replace(loaded, policy=dataclasses.replace(loaded.policy, **(policy or {})))
        shape = loaded.config
        values = {
            "num_blocks": 96,
            "max_streams": 16,
            "max_positions": min(256, shape.max_length),
            "patch_s": patch_duration_s(loaded),
            "min_patches": shape.min_patches,
            "max_mends": 0,  # random models skip and repeat at random
            **limits,
        }
        config, emit = SchedulerConfig(**values), self.sent.append
        self.engine = Engine(loaded, config, emit, clock=lambda: self.now, bank=bank)

    def say(self, name: str, text: str, context: str | None = None, **fields: Any) -> None:
        defaults = {"paced": False, "encoding": "f32le", "max_patches": 8, "steps": 4}
        self.engine.post(frames.Generate(name, context or name, text, **{**defaults, **fields}))

    def run(self, max_steps: int = 500) -> None:
        """Until nothing is left to do."""
        for _ in range(max_steps):
            if not self.engine.step() and self.engine.is_idle:
                return
            self.now += 0.01
        raise AssertionError("the engine did not come to an end")

    def pcm(self, name: str) -> np.ndarray[Any, Any]:
        """All samples of a request; checks that sequence numbers have no hole."""
        audio = [m for m in self.sent if isinstance(m, frames.Audio) and m.request_id == name]
        assert [m.sequence for m in audio] == list(range(len(audio)))
        return np.frombuffer(b"".join(m.payload for m in audio), dtype="<f4")

    def end(self, name: str) -> frames.Done | frames.Failed:
        """The one terminal message of a request, which must be its last message."""
        mine = [m for m in self.sent if getattr(m, "request_id", None) == name]
        ends = [m for m in mine if isinstance(m, (frames.Done, frames.Failed))]
        assert len(ends) == 1, f"{len(ends)} terminal messages"
        assert mine[-1] is ends[0], "audio after the terminal message"
        return ends[0]

    def assert_nothing_leaked(self) -> None:
        scheduler = self.engine.scheduler
        check_pool(scheduler.pool)
        assert scheduler.pool.num_available == scheduler.pool.num_blocks
        assert scheduler.num_free_slots == self.engine.config.max_streams
        assert (scheduler.num_waiting, scheduler.num_active) == (0, 0)
        assert not self.engine._segments
