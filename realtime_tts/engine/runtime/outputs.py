"""What a step tells the host, in static tensors that leave the device in one copy."""

from __future__ import annotations

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
        self._host = self._device if is_cpu else torch.zeros(total, pin_memory=True)
        self._copied = None if is_cpu else torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.host: dict[str, Array] = {}
        start = 0
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            sides = [side[start : start + size].view(shape) for side in (self._device, self._host)]
            if name == "samples":
                sides = [side.view(torch.int16)[:, :num_samples] for side in sides]
                self._head, self._row = start, shape[1]
            setattr(self, name, sides[0])
            self.host[name] = sides[1].numpy()
            start += size

    def send(self, num_streams: int, *, with_pcm: bool) -> None:
        """Begin to copy everything of a step with so many streams; `wait` for it before reading `host`."""
        if self._copied is None:
            return
        used = self._head + num_streams * self._row
        self._host[:used].copy_(self._device[:used], non_blocking=True)
        if with_pcm:
            start = self._device.shape[0] - self.pcm.numel()
            end = start + num_streams * self.pcm.shape[1]
            self._host[start:end].copy_(self._device[start:end], non_blocking=True)
        self._copied.record()

    def wait(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()
