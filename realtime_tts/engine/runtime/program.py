"""A part of a step as a function of one size over static tensors: run as it is, or replayed from CUDA graphs."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
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
        """Capture the body once, on the current stream. It has run at this size before, so that nothing is compiled or
        chosen any more.

        pool: memory that graphs share which are never replayed at the same time (`torch.cuda.graph_pool_handle`).
        """
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
            self._body(size)
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


def sizes_up_to(largest: int) -> list[int]:
    """Sizes worth a graph: close together where padding costs much, a quarter apart at most."""
    steps: Iterable[tuple[int, int]] = ((4, 1), (8, 2), (32, 4), (128, 8), (256, 16), (1 << 30, 64))
    sizes: list[int] = []
    size = 0
    for end, step in steps:
        while size < min(end, largest):
            size = min(size + step, largest)
            sizes.append(size)
    return sizes
