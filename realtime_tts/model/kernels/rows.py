"""RMSNorm and SwiGLU by row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def _rms_norm(
    x, weight, out, eps, size: tl.constexpr, block: tl.constexpr, length: tl.constexpr, tail: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    source = row // tail * length + length - tail + row % tail
    column = tl.arange(0, block)
    inside = column < size
    value = tl.load(x + source * size + column, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value) / size + eps)
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * size + column, (value * scale * gain).to(out.dtype.element_ty), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float, length: int = 1, tail: int = 1) -> Tensor:
    """Return the last `tail` of each `length` rows, normed: x [N * length, size] contiguous, weight [size] →
    [N * tail, size]."""
    size = x.shape[1]
    num_rows = x.shape[0] // length * tail
    out = torch.empty(num_rows, size, device=x.device, dtype=x.dtype)
    block = triton.next_power_of_2(size)
    _rms_norm[(num_rows,)](x, weight, out, eps, size, block, length, tail, num_warps=4 if block <= 2048 else 8)
    return out


@triton.jit
def _swiglu(x, out, size: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < size
    gate = tl.load(x + row * 2 * size + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * size + size + column, mask=inside, other=0.0).to(tl.float32)
    value = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * size + column, value.to(out.dtype.element_ty), mask=inside)


def swiglu(gate_up: Tensor) -> Tensor:
    """Return silu(gate) * up, [M, size]: gate_up [M, 2 * size] contiguous, the gates first."""
    num_rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(num_rows, size, device=gate_up.device, dtype=gate_up.dtype)
    block = min(_BLOCK, triton.next_power_of_2(size))
    _swiglu[(num_rows, triton.cdiv(size, block))](gate_up, out, size, block, num_warps=4)
    return out
