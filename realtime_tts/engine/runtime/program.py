"""A part of a step as a function of one size over static tensors: run eagerly, or replayed from CUDA graphs."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_MAX_PARTS = 4096


class Parts:
    """Rows [start, end) of tensors, made once: a call of torch hands the interpreter to a thread that waits for it."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int, int], Tensor] = {}

    def __call__(self, tensor: Tensor, start: int, end: int) -> Tensor:
        key = id(tensor), start, end
        if (part := self._made.get(key)) is None:
            if len(self._made) >= _MAX_PARTS:
                self._made.clear()
            part = self._made[key] = tensor[start:end]
        return part


class Program:
    """`body(size)` computes that many rows and writes the results to static tensors.

    Captured sizes are replayed; others run eagerly.
    """

    def __init__(self, body: Callable[[int], None]) -> None:
        self._body = body
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._sizes: list[int] = []

    @property
    def sizes(self) -> tuple[int, ...]:
        """Captured sizes, ascending."""
        return tuple(self._sizes)

    def padded(self, size: int) -> int:
        """Return the smallest captured size of at least `size` rows; `size` itself if there is none."""
        index = bisect.bisect_left(self._sizes, size)
        return self._sizes[index] if index < len(self._sizes) else size

    def capture(self, size: int, pool: Any) -> None:
        """Run the body, so that all kernels are compiled and chosen, then capture it. Requires a non-default stream.

        pool: memory shared by graphs that never run at the same time (`torch.cuda.graph_pool_handle`).
        """
        self._body(size)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Not the context manager: it empties caches each time.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            self._body(size)
        finally:
            graph.capture_end()
        graph.replay()  # the first replay uploads the graph, which takes longer
        self._graphs[size] = graph
        bisect.insort(self._sizes, size)

    def __call__(self, size: int) -> None:
        if size == 0:
            return
        graph = self._graphs.get(size)
        if graph is None:
            self._body(size)
        else:
            graph.replay()


def sizes_up_to(largest: int, *, fine: bool) -> list[int]:
    """Return the sizes to capture, ascending. `fine`: each row costs time of its own; otherwise reading the weights is
    most of the work with few rows, and up to half of these may be padding."""
    fine_steps = (4, 1), (8, 2), (32, 4), (128, 8), (1 << 30, 16)
    steps = fine_steps if fine else ((2, 1), (4, 2), (16, 4), (32, 8), (256, 16))
    sizes: list[int] = []
    size = 0
    for end, step in steps:
        while size < min(end, largest):
            size = min(size + step, largest)
            sizes.append(size)
    while size < largest:
        size = min(size + (size // 2 if size & (size - 1) == 0 else size // 3), largest)
        sizes.append(size)
    return sizes
