"""Clocks for the stages of a step: host time where a call returns when its work is done, events on CUDA."""

from __future__ import annotations

import itertools
import time
from typing import Protocol

import torch

from realtime_tts.engine.runtime.stages import StageClock

Split = dict[str, float]  # seconds by stage


class SplittingClock(StageClock, Protocol):
    def take(self) -> Split:
        """Return the split of the last step; waits until the device has finished it. Empty before the first."""


def clock_for(device: torch.device) -> SplittingClock:
    return EventClock() if device.type == "cuda" else HostClock()


class HostClock:
    """Clock for the CPU."""

    def __init__(self) -> None:
        self._marks: list[tuple[str, float]] = []

    def mark(self, stage: str) -> None:
        if self._marks and not self._marks[-1][0]:  # the step before has ended
            self._marks.clear()
        self._marks.append((stage, time.perf_counter()))

    def end(self) -> None:
        self.mark("")

    def take(self) -> Split:
        split: Split = {}
        for (stage, at_s), (_, end_s) in itertools.pairwise(self._marks):
            split[stage] = split.get(stage, 0.0) + end_s - at_s
        return split


class EventClock:
    """Clock for CUDA."""

    def __init__(self) -> None:
        self._marks: list[tuple[str, torch.cuda.Event]] = []

    def mark(self, stage: str) -> None:
        if self._marks and not self._marks[-1][0]:
            self._marks.clear()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append((stage, event))

    def end(self) -> None:
        self.mark("")

    def take(self) -> Split:
        if self._marks:
            self._marks[-1][1].synchronize()
        split: Split = {}
        for (stage, event), (_, following) in itertools.pairwise(self._marks):
            split[stage] = split.get(stage, 0.0) + event.elapsed_time(following) / 1000
        return split
