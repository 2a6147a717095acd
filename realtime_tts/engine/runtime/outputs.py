"""What a step tells the host, in static tensors that leave the device in one copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


class StepOutputs:
    """All float32, in the order in which they leave; of the last only what a step has filled.

    finite_rows [T]: whether a row's hidden states are. stop, finite [S]: of the streams that speak; readings [S, 2]: of
    the text head, in the order of `StepInputs.spoken_rows`. patches [S, patch_size, latent_dim], pcm [S, samples].
    """

    finite_rows: Tensor
    stop: Tensor
    finite: Tensor
    readings: Tensor
    patches: Tensor
    pcm: Tensor

    def __init__(
        self, num_rows: int, num_streams: int, patch_shape: tuple[int, int], num_samples: int, device: torch.device
    ) -> None:
        shapes: dict[str, tuple[int, ...]] = {
            "finite_rows": (num_rows,),
            "stop": (num_streams,),
            "finite": (num_streams,),
            "readings": (num_streams, 2),
            "patches": (num_streams, *patch_shape),
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
            setattr(self, name, self._device[start : start + size].view(shape))
            self.host[name] = self._host[start : start + size].view(shape).numpy()
            start += size
        self._head = start - num_streams * num_samples

    def send(self, num_streams: int) -> None:
        """Begin to copy everything of a step with so many streams; `wait` for it before reading `host`."""
        if self._copied is not None:
            used = self._head + num_streams * self.pcm.shape[1]
            self._host[:used].copy_(self._device[:used], non_blocking=True)
            self._copied.record()

    def wait(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()
