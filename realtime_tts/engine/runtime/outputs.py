"""A step's results for the host: static tensors that are copied from the device at once."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from realtime_tts.engine.runtime.program import Parts
from realtime_tts.model.sequence import Array


class TextReading(NamedTuple):
    """A stream's place in its text: index of the token, as a fraction, and the share of the attention on the text.
    Either may be NaN."""

    token: float
    mass: float


class StepAudio(NamedTuple):
    """A request's audio from one step. Arrays are views of buffers that the step after the next overwrites.

    pcm: [patch_samples] int16, or float32 in −1…1 for requests with that encoding. power: its mean square. patch:
    [patch_size, latent_dim], input of continuity. text: the text head's reading; None without a text head.
    """

    name: str
    pcm: Array
    power: float
    patch: Array
    text: TextReading | None


class StepOutputs:
    """Results in the order of the copy. `samples` is copied only as far as a step filled it, `pcm` only on request.

    row_faults [T]: 0 if a row's hidden states are finite, else NaN. stop, faults, power [S]: for each stream that
    speaks; faults is 0 if its patch and its audio are finite, else NaN; power is its audio's mean square. readings
    [S, 2]: the text head's, in the order of `StepInputs.spoken_rows`. patches [S, patch_size, latent_dim]. samples
    [S, samples] int16 and pcm [S, samples]: the audio. All but `samples` are float32.
    """

    row_faults: Tensor
    stop: Tensor
    faults: Tensor
    power: Tensor
    readings: Tensor
    patches: Tensor
    samples: Tensor
    pcm: Tensor

    def __init__(
        self, num_rows: int, num_streams: int, patch_shape: tuple[int, int], num_samples: int, device: torch.device
    ) -> None:
        shapes: dict[str, tuple[int, ...]] = {
            "row_faults": (num_rows,),
            "stop": (num_streams,),
            "faults": (num_streams,),
            "power": (num_streams,),
            "readings": (num_streams, 2),
            "patches": (num_streams, *patch_shape),
            "samples": (num_streams, -(-num_samples // 2)),  # two int16 in the space of a float32
            "pcm": (num_streams, num_samples),
        }
        total = sum(int(np.prod(shape)) for shape in shapes.values())
        self._device = torch.zeros(total, device=device)
        self._parts, is_cpu = Parts(), device.type == "cpu"
        # Two, used in turn: the next step is launched before this one's results are read.
        self._hosts = [torch.zeros(total, pin_memory=not is_cpu) for _ in range(2)]
        self._sent = [SentOutputs({}, None if is_cpu else torch.cuda.Event()) for _ in self._hosts]
        start = 0
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            sides = [side[start : start + size].view(shape) for side in (self._device, *self._hosts)]
            if name == "samples":
                sides = [side.view(torch.int16)[:, :num_samples] for side in sides]
                self._head, self._row = start, shape[1]
            setattr(self, name, sides[0])
            for sent, side in zip(self._sent, sides[1:], strict=True):
                sent.host[name] = side.numpy()
            start += size

    def send(self, num_streams: int, *, with_pcm: bool) -> SentOutputs:
        """Start copying the results of a step with `num_streams` streams. Valid until the step after the next is sent:
        a step may be launched while the previous one is computed, once the one before that was read."""
        self._hosts.append(host := self._hosts.pop(0))
        self._sent.append(sent := self._sent.pop(0))
        part, used = self._parts, self._head + num_streams * self._row
        part(host, 0, used).copy_(part(self._device, 0, used), non_blocking=True)
        if with_pcm:
            start = self._device.shape[0] - self.pcm.numel()
            end = start + num_streams * self.pcm.shape[1]
            host[start:end].copy_(self._device[start:end], non_blocking=True)
        if sent.copied is not None:
            sent.copied.record()
        return sent


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


@dataclasses.dataclass(frozen=True, slots=True)
class StepMarks:
    """Events at the start and at the end of a step on the device."""

    begun: torch.cuda.Event = dataclasses.field(default_factory=_event)
    ended: torch.cuda.Event = dataclasses.field(default_factory=_event)

    def gap_s(self, following: StepMarks) -> float:
        """Return the seconds for which the device was idle before the `following` step, which must have begun."""
        return max(0.0, float(self.ended.elapsed_time(following.begun)) / 1000)


@dataclasses.dataclass(frozen=True, slots=True)
class SentOutputs:
    """One step's results by field, valid after `wait`."""

    host: dict[str, Array]
    copied: torch.cuda.Event | None  # None: the copy is complete on return
    marks: StepMarks | None = None  # None: not measured

    @property
    def is_complete(self) -> bool:
        """True if the results are complete, so that `wait` does not block."""
        return self.copied is None or bool(self.copied.query())

    def wait(self) -> None:
        if self.copied is not None:
            self.copied.synchronize()
