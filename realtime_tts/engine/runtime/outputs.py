"""What a step tells the host, in static tensors that leave the device in one copy."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


class StepOutputs:
    """In the order in which they leave; of the last two only what a step has filled, and the last if it is wanted.

    finite_rows [T]: whether a row's hidden states are. stop, finite, power [S]: of the streams that speak, their
    audio's mean square with them; readings [S, 2]: of the text head, in the order of `StepInputs.spoken_rows`. patches
    [S, patch_size, latent_dim]. samples [S, samples] int16, pcm [S, samples]: their audio. All others are float32.
    """

    finite_rows: Tensor
    stop: Tensor
    finite: Tensor
    power: Tensor
    readings: Tensor
    patches: Tensor
    samples: Tensor
    pcm: Tensor

    def __init__(
        self, num_rows: int, num_streams: int, patch_shape: tuple[int, int], num_samples: int, device: torch.device
    ) -> None:
        shapes: dict[str, tuple[int, ...]] = {
            "finite_rows": (num_rows,),
            "stop": (num_streams,),
            "finite": (num_streams,),
            "power": (num_streams,),
            "readings": (num_streams, 2),
            "patches": (num_streams, *patch_shape),
            "samples": (num_streams, -(-num_samples // 2)),  # two in a float32's place
            "pcm": (num_streams, num_samples),
        }
        total = sum(int(np.prod(shape)) for shape in shapes.values())
        self._device = torch.zeros(total, device=device)
        is_cpu = device.type == "cpu"
        # Two in turn: the next step is given to the device before this one's results are read.
        self._hosts = [torch.zeros(total, pin_memory=not is_cpu) for _ in range(2)]
        self._sent = [SentOutputs({}, None if is_cpu else torch.cuda.Event()) for _ in self._hosts]  # type: ignore[no-untyped-call]
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
        """Begin to copy everything of a step with so many streams. Valid until the step after the next is sent: a step
        may be given to the device while the one before it is computed, once the one before that was read."""
        self._hosts.append(host := self._hosts.pop(0))
        self._sent.append(sent := self._sent.pop(0))
        used = self._head + num_streams * self._row
        host[:used].copy_(self._device[:used], non_blocking=True)
        if with_pcm:
            start = self._device.shape[0] - self.pcm.numel()
            end = start + num_streams * self.pcm.shape[1]
            host[start:end].copy_(self._device[start:end], non_blocking=True)
        if sent.copied is not None:
            sent.copied.record()
        return sent


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


@dataclasses.dataclass(frozen=True, slots=True)
class StepMarks:
    """When the device began with a step, and had done all of it."""

    begun: torch.cuda.Event = dataclasses.field(default_factory=_event)
    ended: torch.cuda.Event = dataclasses.field(default_factory=_event)

    def gap_s(self, following: StepMarks) -> float:
        """How long it had nothing to do until it began with the one behind, which it has."""
        return max(0.0, float(self.ended.elapsed_time(following.begun)) / 1000)


@dataclasses.dataclass(frozen=True, slots=True)
class SentOutputs:
    """One step's results by field, once they have been waited for."""

    host: dict[str, Array]
    copied: torch.cuda.Event | None  # None: a copy is over when it was made
    marks: StepMarks | None = None  # None: nobody measures it

    @property
    def is_here(self) -> bool:
        """Whether nobody has to wait for them."""
        return self.copied is None or bool(self.copied.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        if self.copied is not None:
            self.copied.synchronize()
