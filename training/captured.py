"""A training step as one CUDA graph, which removes the launch overhead of hundreds of small kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Losses = dict[str, Tensor]


class CapturedStep:
    """Calls `function` (which reads tensors at fixed addresses and must not synchronise) as it is on a CPU; on a GPU
    three times as it is, so that everything is compiled and allocated, and from then on as a graph.

    The losses it returns are overwritten by the next call.
    """

    def __init__(self, function: Callable[[], Losses], device: torch.device, num_eager: int = 3) -> None:
        self._function, self._device, self._num_eager = function, device, num_eager
        self._graph: torch.cuda.CUDAGraph | None = None
        self._losses: Losses = {}

    def __call__(self) -> Losses:
        if self._device.type != "cuda":
            return self._function()
        if self._num_eager > 0:
            self._num_eager -= 1
            # not on the default stream: the graph could not reuse memory allocated there
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                losses = self._function()
            torch.cuda.current_stream().wait_stream(stream)
            return losses
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._losses = self._function()
        self._graph.replay()
        return self._losses
