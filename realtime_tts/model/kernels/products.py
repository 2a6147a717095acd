"""Matrix products by the fastest of cuBLASLt's kernels for a shape.

The library chooses by the shape alone. Here all weights of a kind are known, so kernels are timed as a step reads the
weights: one after the other, from memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14, torch.float8_e4m3fn: 28}  # cudaDataType_t
_COMPUTE_FLOAT32, _TRANSPOSED, _TRANS_A = 68, 1, 3
_SCALES, _FAST_SUMS, _SCALE_MODES, _BY_ROW = (17, 18), 25, (31, 32), 3
_MAX_WORKSPACE, _MIN_ALIGNMENTS = 1, (5, 6, 7, 8)
_WORKSPACE_BYTES, _ALIGNMENT = 32 << 20, 16
_CANDIDATES, _ROUNDS = 8, 2
_MAX_TIMED, _MOST_ROWS = 12, 4096  # weights; steps with more rows are rare, and the library's choice is good there


class _Choice(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t"""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """Descriptors for one number of rows, and the chosen kernel. `x` is the layout of the first operand, of M rows."""

    operation: ctypes.c_void_p
    weight: ctypes.c_void_p
    x: ctypes.c_void_p
    out: ctypes.c_void_p
    choice: _Choice
    is_timed: bool = False


_is_choosing = False


@contextlib.contextmanager
def choosing() -> Iterator[None]:
    """Return a context in which kernels of new shapes are timed, some 20 ms each. Elsewhere the library chooses."""
    global _is_choosing
    _is_choosing = True
    try:
        yield
    finally:
        _is_choosing = False


class Product:
    """x · weightᵀ for weights [N, K] of one shape and type, contiguous on one CUDA device: one for each layer.

    Not for several CUDA streams at a time: all products share one workspace. torch computes products whose widths are
    not multiples of 16 bytes.
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self._weights = list(weights)
        self._scales: list[Tensor] | None = None  # scales of weights in eight bits, by row
        self._size, self._depth = weights[0].shape
        self._dtype = self._out_dtype = weights[0].dtype
        itemsize = weights[0].element_size()
        self._is_aligned = self._size * itemsize % _ALIGNMENT == 0 and self._depth * itemsize % _ALIGNMENT == 0
        self._plans: dict[tuple[int, bool], _Plan] = {}

    def __call__(self, x: Tensor, layer: int, onto: Tensor | None = None, scale: float = 1.0) -> Tensor:
        """Return x [M, K] contiguous → [M, N]; with onto [M, N] contiguous: `onto` + scale * product."""
        if not self._is_aligned:
            weight = self._weights[layer]
            return F.linear(x, weight) if onto is None else torch.addmm(onto, x, weight.t(), alpha=scale)
        return self._multiply(x, None, layer, onto, scale)

    def _multiply(self, x: Tensor, x_scales: Tensor | None, layer: int, onto: Tensor | None, scale: float) -> Tensor:
        """Multiply; x_scales [M]: scales of rows in eight bits."""
        rows, adds = x.shape[0], onto is not None
        plan = self._plans.get((rows, adds))
        if plan is None or (_is_choosing and not plan.is_timed and rows <= _MOST_ROWS):
            plan = self._plans[rows, adds] = self._plan(rows, adds=adds)
        out = torch.empty(rows, self._size, device=x.device, dtype=self._out_dtype)
        self._run(plan, x, x_scales, layer, onto, out, scale)
        return out

    def _run(
        self, plan: _Plan, x: Tensor, scales: Tensor | None, layer: int, onto: Tensor | None, out: Tensor, scale: float
    ) -> None:
        library, handle = _library(x.device.index)
        weight = self._weights[layer]
        if self._scales is not None and scales is not None:
            for name, factors in zip(_SCALES, (self._scales[layer], scales), strict=True):
                _set(plan.operation, name, ctypes.c_void_p(factors.data_ptr()))
        alpha, beta = ctypes.c_float(scale), ctypes.c_float(onto is not None)
        addend = out if onto is None else onto
        _check(
            library.cublasLtMatmul(
                handle,
                plan.operation,
                ctypes.byref(alpha),
                *(ctypes.c_void_p(weight.data_ptr()), plan.weight, ctypes.c_void_p(x.data_ptr()), plan.x),
                ctypes.byref(beta),
                *(ctypes.c_void_p(addend.data_ptr()), plan.out, ctypes.c_void_p(out.data_ptr()), plan.out),
                ctypes.byref(plan.choice.algorithm),
                ctypes.c_void_p(_workspace(x.device.index).data_ptr()),
                ctypes.c_size_t(_WORKSPACE_BYTES),
                ctypes.c_void_p(torch.cuda.current_stream(x.device).cuda_stream),
            )
        )

    def _plan(self, rows: int, *, adds: bool) -> _Plan:
        plans = self._candidates(rows)
        if not plans:
            raise RuntimeError(f"cuBLASLt has no kernel for {rows} × {self._depth} by {self._depth} × {self._size}")
        if not _is_choosing or rows > _MOST_ROWS or torch.cuda.is_current_stream_capturing():
            return plans[0]
        device = self._weights[0].device
        x = torch.randn(rows, self._depth, device=device).to(self._dtype)
        x_scales = torch.ones(rows, device=device) if self._scales is not None else None
        out = torch.zeros(rows, self._size, device=device, dtype=self._out_dtype)

        def time_ms(plan: _Plan) -> float:
            def run() -> None:
                for layer in range(min(_MAX_TIMED, len(self._weights))):
                    self._run(plan, x, x_scales, layer, out if adds else None, out, 1e-3)

            return _time_ms(run)

        return dataclasses.replace(min(plans, key=time_ms), is_timed=True)

    def _candidates(self, rows: int) -> list[_Plan]:
        # The library's matrices are column-major: a row-major matrix is transposed there.
        library, handle = _library(self._weights[0].device.index)
        operation, preference = ctypes.c_void_p(), ctypes.c_void_p()
        _check(library.cublasLtMatmulDescCreate(ctypes.byref(operation), _COMPUTE_FLOAT32, _TYPES[torch.float32]))
        _set(operation, _TRANS_A, ctypes.c_int(_TRANSPOSED))
        if self._scales is not None:
            _set(operation, _FAST_SUMS, ctypes.c_int8(1))
            for mode, name in zip(_SCALE_MODES, _SCALES, strict=True):
                _set(operation, mode, ctypes.c_int(_BY_ROW))
                # No kernel is proposed without an address; `_run` sets the right ones.
                _set(operation, name, ctypes.c_void_p(self._scales[0].data_ptr()))
        weight, x = self._layout(self._depth, self._size, self._dtype), self._layout(self._depth, rows, self._dtype)
        out = self._layout(self._size, rows, self._out_dtype)
        _check(library.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)))
        settings: list[tuple[int, Any]] = [(_MAX_WORKSPACE, ctypes.c_size_t(_WORKSPACE_BYTES))]
        settings += [(name, ctypes.c_uint32(_ALIGNMENT)) for name in _MIN_ALIGNMENTS]
        for name, value in settings:
            _check(library.cublasLtMatmulPreferenceSetAttribute(preference, name, ctypes.byref(value), _size_of(value)))
        found, count = (_Choice * _CANDIDATES)(), ctypes.c_int()
        _check(
            library.cublasLtMatmulAlgoGetHeuristic(
                handle, operation, weight, x, out, out, preference, _CANDIDATES, found, ctypes.byref(count)
            )
        )
        _check(library.cublasLtMatmulPreferenceDestroy(preference))
        return [_Plan(operation, weight, x, out, choice) for choice in found[: count.value] if choice.status == 0]

    def _layout(self, rows: int, columns: int, dtype: torch.dtype) -> ctypes.c_void_p:
        library, _ = _library(self._weights[0].device.index)
        layout = ctypes.c_void_p()
        sizes = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)
        _check(library.cublasLtMatrixLayoutCreate(ctypes.byref(layout), _TYPES[dtype], *sizes))
        return layout


def _time_ms(run: Callable[[], None]) -> float:
    """Return the time of a replay from a graph: small products end before the next one could be launched."""
    run()
    torch.cuda.synchronize()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        run()
        graph.capture_end()
        graph.replay()
        times = []
        for _ in range(_ROUNDS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
    return min(times)


@functools.cache
def _library(device: int) -> tuple[Any, ctypes.c_void_p]:
    library = ctypes.CDLL(f"libcublasLt.so.{str(torch.version.cuda).split('.')[0]}")
    handle = ctypes.c_void_p()
    with torch.cuda.device(device):
        _check(library.cublasLtCreate(ctypes.byref(handle)))
    return library, handle


@functools.cache
def _workspace(device: int) -> Tensor:
    return torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device=torch.device("cuda", device))


def _set(operation: ctypes.c_void_p, name: int, value: Any) -> None:
    library, _ = _library(torch.cuda.current_device())
    _check(library.cublasLtMatmulDescSetAttribute(operation, name, ctypes.byref(value), _size_of(value)))


def _size_of(value: Any) -> ctypes.c_size_t:
    return ctypes.c_size_t(ctypes.sizeof(value))


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"cuBLASLt failed with status {status}")
