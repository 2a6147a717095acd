"""Clocks for the stages of a step: host time where a call returns when its work is done, events on CUDA."""

from __future__ import annotations

import itertools
import time
from collections.abc import Hashable
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
        self._ended_s = 0.0

    def begin(self, program: Hashable) -> None:
        self._marks = []

    def mark(self, stage: str) -> None:
        self._marks.append((stage, time.perf_counter()))

    def end(self) -> None:
        self._ended_s = time.perf_counter()

    def take(self) -> Split:
        split: Split = {}
        for (stage, at_s), (_, end_s) in itertools.pairwise([*self._marks, ("", self._ended_s)]):
            split[stage] = split.get(stage, 0.0) + end_s - at_s
        return split


class EventClock:
    """For CUDA. Marks that are made while a step is captured become part of it, and each replay sets them anew."""

    def __init__(self) -> None:
        self._programs: dict[Hashable, list[tuple[str, torch.cuda.Event]]] = {}
        self._program: Hashable = None

    def begin(self, program: Hashable) -> None:
        self._program = program
        if program is None or torch.cuda.is_current_stream_capturing():
            self._programs[program] = []

    def mark(self, stage: str) -> None:
        captured = torch.cuda.is_current_stream_capturing()
        event = torch.cuda.Event(enable_timing=True, external=captured)
        event.record()
        self._programs.setdefault(self._program, []).append((stage, event))

    def end(self) -> None:
        self.mark("")

    def take(self) -> Split:
        marks = self._programs.get(self._program, [])
        if not marks:
            return {}
        marks[-1][1].synchronize()
        split: Split = {}
        for (stage, event), (_, following) in itertools.pairwise(marks):
            split[stage] = split.get(stage, 0.0) + event.elapsed_time(following) / 1000
        return split
