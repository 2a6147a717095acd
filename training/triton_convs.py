"""Snake and causal depthwise convolution as Triton kernels with gradients, for training the VAE on a GPU.

Both are bound by memory. Left to a compiler, the activation before a convolution is computed anew for each of its taps,
sines included, which made a step five times as long as its memory traffic.
"""
# ruff: noqa: N803 - Triton's compile-time constants are written in capitals

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_BLOCK = 1024


@triton.jit
def _snake_forward(x_ptr, alpha_ptr, y_ptr, channels, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < length
    alpha = tl.load(alpha_ptr + row % channels)
    x = tl.load(x_ptr + row * length + at, mask=mask)
    sine = tl.sin(alpha * x)
    tl.store(y_ptr + row * length + at, x + sine * sine / (alpha + 1e-9), mask=mask)


@triton.jit
def _snake_backward(x_ptr, alpha_ptr, g_ptr, dx_ptr, dalpha_ptr, channels, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < length
    alpha = tl.load(alpha_ptr + row % channels)
    x = tl.load(x_ptr + row * length + at, mask=mask, other=0.0)
    g = tl.load(g_ptr + row * length + at, mask=mask, other=0.0)
    sine, cosine = tl.sin(alpha * x), tl.cos(alpha * x)
    inverse = 1.0 / (alpha + 1e-9)
    slope = 2.0 * sine * cosine * inverse
    tl.store(dx_ptr + row * length + at, g * (1.0 + slope * alpha), mask=mask)
    tl.atomic_add(dalpha_ptr + row % channels, tl.sum(g * (slope * x - sine * sine * inverse * inverse), axis=0))


@triton.jit
def _depthwise(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    channels,
    length,
    TAPS: tl.constexpr,
    DILATION: tl.constexpr,
    BACKWARD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The convolution, or (BACKWARD) its gradient with respect to x, which looks ahead as far as it looks back."""
    row = tl.program_id(0).to(tl.int64)
    channel = row % channels
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    if not BACKWARD:
        total += tl.load(bias_ptr + channel)
    for tap in tl.static_range(TAPS):
        shift = (TAPS - 1 - tap) * DILATION
        source = at + shift if BACKWARD else at - shift
        inside = (source >= 0) & (source < length)
        total += tl.load(weight_ptr + channel * TAPS + tap) * tl.load(
            x_ptr + row * length + source, mask=inside, other=0.0
        )
    tl.store(y_ptr + row * length + at, total, mask=at < length)


@triton.jit
def _depthwise_parameters(
    x_ptr,
    g_ptr,
    dweight_ptr,
    dbias_ptr,
    channels,
    length,
    TAPS: tl.constexpr,
    DILATION: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gradients of weight and bias: each program adds its block's share."""
    row = tl.program_id(0).to(tl.int64)
    channel = row % channels
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(g_ptr + row * length + at, mask=at < length, other=0.0)
    tl.atomic_add(dbias_ptr + channel, tl.sum(g, axis=0))
    for tap in tl.static_range(TAPS):
        source = at - (TAPS - 1 - tap) * DILATION
        x = tl.load(x_ptr + row * length + source, mask=(source >= 0) & (source < length), other=0.0)
        tl.atomic_add(dweight_ptr + channel * TAPS + tap, tl.sum(g * x, axis=0))


def _grid(x: Tensor) -> tuple[tuple[int, int], int]:
    """Programs for every row of x [B, channels, length], and their block size."""
    block = min(MAX_BLOCK, triton.next_power_of_2(x.shape[2]))
    return (x.shape[0] * x.shape[1], triton.cdiv(x.shape[2], block)), block


class _Snake(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: Tensor) -> Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        grid, block = _grid(x)
        _snake_forward[grid](x, alpha, y, x.shape[1], x.shape[2], BLOCK=block)
        ctx.save_for_backward(x, alpha)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, alpha = ctx.saved_tensors
        dx, dalpha = torch.empty_like(x), torch.zeros_like(alpha)
        grid, block = _grid(x)
        _snake_backward[grid](x, alpha, g.contiguous(), dx, dalpha, x.shape[1], x.shape[2], BLOCK=block)
        return dx, dalpha


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, dilation: int) -> Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        grid, block = _grid(x)
        sizes = (x.shape[1], x.shape[2], weight.shape[2], dilation)
        _depthwise[grid](x, weight, bias, y, *sizes, BACKWARD=False, BLOCK=block)
        ctx.save_for_backward(x, weight)
        ctx.dilation = dilation
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        g = g.contiguous()
        dx, dweight, dbias = torch.empty_like(x), torch.zeros_like(weight), weight.new_zeros(x.shape[1])
        grid, block = _grid(x)
        sizes = (x.shape[1], x.shape[2], weight.shape[2], ctx.dilation)
        _depthwise[grid](g, weight, weight, dx, *sizes, BACKWARD=True, BLOCK=block)
        _depthwise_parameters[grid](x, g, dweight, dbias, *sizes, BLOCK=block)
        return dx, dweight, dbias, None


def snake(x: Tensor, alpha: Tensor) -> Tensor:
    """x [B, channels, length] + sin(alpha x)² / alpha, alpha [1, channels, 1]."""
    return _Snake.apply(x, alpha)


def depthwise(x: Tensor, weight: Tensor, bias: Tensor, dilation: int) -> Tensor:
    """Causal, zeros to the left: x [B, channels, length], weight [channels, 1, taps], bias [channels] → like x."""
    return _Depthwise.apply(x, weight, bias, dilation)
