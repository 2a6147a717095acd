"""The teacher's normalisation and activation as one Triton kernel, and its residual blocks on it in half precision.

Eager, each of its 48 convolutions at the highest rates is followed by about ten passes over memory; this leaves three.
"""
# ruff: noqa: N803 - Triton's compile-time constants are written in capitals

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

BLOCK = 2048


@triton.jit
def _norm_snake(x_ptr, style_ptr, alpha_ptr, y_ptr, channels, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    channel = row % channels
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    first = tl.load(x_ptr + row * length).to(tl.float32)  # shifts the sums, which would cancel otherwise
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * length + at, mask=at < length, other=0.0).to(tl.float32)
        x = tl.where(at < length, x - first, 0.0)
        total += x
        squares += x * x
    shifted = tl.sum(total, axis=0) / length
    variance = tl.sum(squares, axis=0) / length - shifted * shifted
    mean = shifted + first
    style_row = (row // channels) * 2 * channels + channel
    gain = (1.0 + tl.load(style_ptr + style_row).to(tl.float32)) * tl.rsqrt(variance + 1e-5)
    bias = tl.load(style_ptr + style_row + channels).to(tl.float32) - mean * gain
    alpha = tl.load(alpha_ptr + channel)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * length + at, mask=at < length, other=0.0).to(tl.float32) * gain + bias
        sine = tl.sin(alpha * x)
        y = x + sine * sine / alpha
        tl.store(y_ptr + row * length + at, y.to(y_ptr.dtype.element_ty), mask=at < length)


def norm_snake(x: Tensor, style: Tensor, alpha: Tensor) -> Tensor:
    """Instance norm over time with gain 1 + style[:, :C] and bias style[:, C:], then x + sin(alpha x)² / alpha.

    x [n, C, length] float16 or float32, style [n, 2 C], alpha [1, C, 1] float32 → like x.
    """
    x = x.contiguous()
    y = torch.empty_like(x)
    _norm_snake[(x.shape[0] * x.shape[1],)](x, style.contiguous(), alpha, y, x.shape[1], x.shape[2], BLOCK=BLOCK)
    return y


def _forward(block: Any, x: Tensor, style: Tensor) -> Tensor:
    """`AdaINResBlock1.forward` of the package kokoro."""
    half = block.convs1[0].weight.dtype
    x = x.to(half)
    layers = zip(block.convs1, block.convs2, block.adain1, block.adain2, block.alpha1, block.alpha2, strict=True)
    for conv1, conv2, norm1, norm2, alpha1, alpha2 in layers:
        inner = conv1(norm_snake(x, norm1.fc(style), alpha1))
        x = x + conv2(norm_snake(inner, norm2.fc(style), alpha2))
    return x.float()


def use_fast_blocks(generator: nn.Module, dtype: torch.dtype) -> None:
    """Make the generator's residual blocks compute in `dtype`, with the kernel between their convolutions."""
    for block in [*generator.resblocks, *generator.noise_res]:
        for convolution in [*block.convs1, *block.convs2]:
            convolution.to(dtype)
        block.forward = lambda x, style, block=block: _forward(block, x, style)
