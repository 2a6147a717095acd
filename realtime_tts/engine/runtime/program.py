"""A part of a step as a function of one size over static tensors: run as it is, or replayed from CUDA graphs."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

import torch


class Program:
    """`body(size)` computes that many rows and leaves the results in static tensors.

    Sizes that were captured are replayed; others run as they are.
    """

    def __init__(self, body: Callable[[int], None]) -> None:
        self._body = body
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._sizes: list[int] = []

    @property
    def sizes(self) -> tuple[int, ...]:
        """Those that were captured, ascending."""
        return tuple(self._sizes)

    def padded(self, size: int) -> int:
        """The smallest captured size that holds so many rows; without one, the size itself."""
        index = bisect.bisect_left(self._sizes, size)
        return self._sizes[index] if index < len(self._sizes) else size

    def capture(self, size: int, pool: Any) -> None:
        """Run the body, so that all is compiled and chosen, then capture it. On a stream of one's own.

        pool: memory that graphs share which are never replayed at the same time (`torch.cuda.graph_pool_handle`).
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
        graph.replay()  # the first time it is put on the device, which takes longer
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
    """Sizes worth a graph, ascending. `fine`: each row costs time of its own; else weights are most of the work, and
    up to half of the rows may be padding."""
    steps = ((4, 1), (8, 2), (32, 4), (128, 8), (1 << 30, 16)) if fine else ((2, 1), (4, 2), (8, 4))
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
