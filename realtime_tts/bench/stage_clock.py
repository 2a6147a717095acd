"""Clock for the stages of a step: host time on the CPU, where a call returns when its work is done; events on CUDA."""

from __future__ import annotations

import itertools
import time

import torch


class StageStamps:
    """Time of each stage of a step; a `StageClock`."""

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
