"""Inputs of fp8 products: RMSNorm, SwiGLU or a copy, with each row in eight bits and its own scale."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from realtime_tts.model.fp8 import LARGEST, SMALLEST_PEAK, Rows8

_LARGEST, _SMALLEST_PEAK = tl.constexpr(LARGEST), tl.constexpr(SMALLEST_PEAK)


@triton.jit
def _store_row(value, out, scales, row, column, inside, size: tl.constexpr):
    peak = tl.maximum(tl.max(tl.abs(value)), _SMALLEST_PEAK)
    tl.store(scales + row, peak / _LARGEST)
    # Rounding to e4m3 maps values that exceed the largest by a rounding error to the largest, and keeps NaN.
    tl.store(out + row * size + column, (value * (_LARGEST / peak)).to(tl.float8e4nv), mask=inside)


@triton.jit
def _rms_norm(x, weight, out, scales, eps, size: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < size
    value = tl.load(x + row * size + column, mask=inside, other=0.0).to(tl.float32)
    value *= tl.rsqrt(tl.sum(value * value) / size + eps)
    value *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    _store_row(value, out, scales, row, column, inside, size)


@triton.jit
def _swiglu(x, out, scales, size: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < size
    gate = tl.load(x + row * 2 * size + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * size + size + column, mask=inside, other=0.0).to(tl.float32)
    _store_row(gate / (1.0 + tl.exp(-gate)) * up, out, scales, row, column, inside, size)


@triton.jit
def _rows(x, out, scales, size: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < size
    value = tl.load(x + row * size + column, mask=inside, other=0.0).to(tl.float32)
    _store_row(value, out, scales, row, column, inside, size)


def _empty(num_rows: int, size: int, device: torch.device) -> tuple[Rows8, int, int]:
    """Return uninitialised rows, and the columns and warps of a program, which processes one row."""
    values = torch.empty(num_rows, size, device=device, dtype=torch.float8_e4m3fn)
    block = triton.next_power_of_2(size)
    return Rows8(values, torch.empty(num_rows, device=device)), block, 4 if block <= 2048 else 8


def rms_norm_fp8(x: Tensor, weight: Tensor, eps: float) -> Rows8:
    """Return RMSNorm of x [M, size] contiguous in eight bits, [M, size]; weight [size]."""
    out, block, num_warps = _empty(len(x), x.shape[1], x.device)
    _rms_norm[(len(x),)](x, weight, *out, eps, x.shape[1], block, num_warps=num_warps)
    return out


def swiglu_fp8(gate_up: Tensor) -> Rows8:
    """Return silu(gate) * up in eight bits, [M, size]; gate_up [M, 2 * size] contiguous, the gates first."""
    num_rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out, block, num_warps = _empty(num_rows, size, gate_up.device)
    _swiglu[(num_rows,)](gate_up, *out, size, block, num_warps=num_warps)
    return out


def rows_fp8(x: Tensor) -> Rows8:
    """Return x [M, size] contiguous in eight bits: `in_eight_bits` in one kernel."""
    out, block, num_warps = _empty(len(x), x.shape[1], x.device)
    _rows[(len(x),)](x, *out, x.shape[1], block, num_warps=num_warps)
    return out
