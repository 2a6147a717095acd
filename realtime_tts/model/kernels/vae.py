"""The streaming decoder of the AudioVAE, channels last.

A stream's left contexts are one row of a flat state: kernels read their part of it at the stream's slot, and write what
follows it into a scratch row of the batch, which `commit` copies to the slots when all have read.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _snake(x, alpha):
    """x + sin²(alpha x) / alpha. The squared sine has a period of pi: reduced to half of it around zero, a short series
    is exact to float32's rounding."""
    angle = alpha * x
    turns = tl.floor(angle * 0.3183098861837907 + 0.5)
    angle = (angle - turns * 3.140625) - turns * 9.67653589793e-4
    square = angle * angle
    series = 1.0 / 362880 - square * (1.0 / 39916800)
    series = 1.0 + square * (-1.0 / 6 + square * (1.0 / 120 + square * (-1.0 / 5040 + square * series)))
    sine = angle * series
    return x + sine * sine / (alpha + 1e-9)


@triton.jit
def _first(
    z, state, slots, new, weight, bias, out, total, length: tl.constexpr, channels: tl.constexpr, tile: tl.constexpr
):
    """Depthwise convolution of 7 taps over the latents; its context is at the state's beginning."""
    stream, frame = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channel = tl.arange(0, tile)
    inside = channel < channels
    old = state + tl.load(slots + stream) * total
    result = tl.load(bias + channel, mask=inside, other=0.0)
    for tap in tl.static_range(7):
        source = frame + tap - 6
        value = tl.load(z + (stream * length + source) * channels + channel, mask=inside & (source >= 0), other=0.0)
        before = tl.load(old + (source + 6) * channels + channel, mask=inside & (source < 0), other=0.0)
        value = value + before.to(tl.float32)
        result += value * tl.load(weight + tap * channels + channel, mask=inside, other=0.0)
    tl.store(out + (stream * length + frame) * channels + channel, result.to(out.dtype.element_ty), mask=inside)
    if frame == 0:
        for entry in tl.static_range(6):
            source = length - 6 + entry  # of this patch; before it, of the old context
            if source >= 0:
                value = tl.load(z + (stream * length + source) * channels + channel, mask=inside, other=0.0)
            else:
                value = tl.load(old + (source + 6) * channels + channel, mask=inside, other=0.0).to(tl.float32)
            place = new + stream * total + entry * channels + channel
            tl.store(place, value.to(new.dtype.element_ty), mask=inside)


@triton.jit
def _before_upsample(
    x, pending, state, slots, new, scale, bias, alpha, out, total, offset,
    length: tl.constexpr, channels: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    """Each frame after its condition and snake, beside the frame before it."""
    stream, frame = (tl.program_id(0) // length).to(tl.int64), tl.program_id(0) % length
    channel = tl.program_id(1) * tile + tl.arange(0, tile)
    p, s = tl.load(pending + channel), tl.load(scale + channel)
    b, a = tl.load(bias + channel), tl.load(alpha + channel)
    row = (stream * length + frame) * channels
    current = _snake((tl.load(x + row + channel).to(tl.float32) + p) * s + b, a).to(out.dtype.element_ty)
    if frame == 0:
        before = tl.load(state + tl.load(slots + stream) * total + offset + channel)
    else:
        before = _snake((tl.load(x + row - channels + channel).to(tl.float32) + p) * s + b, a).to(out.dtype.element_ty)
    tl.store(out + 2 * row + channel, before)
    tl.store(out + 2 * row + channels + channel, current)
    if frame == length - 1:
        tl.store(new + stream * total + offset + channel, current)


@triton.jit
def _unit(
    x, pending, state, slots, new, alpha, weight, bias, alpha_out, product, product_bias, out, total, offset,
    length: tl.constexpr, dilation: tl.constexpr, channels: tl.constexpr, tile: tl.constexpr, frames: tl.constexpr,
    whole: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Snake, depthwise convolution of 7 taps, snake; `whole`: the 1 × 1 convolution and the residual as well."""
    context: tl.constexpr = 6 * dilation
    stream = tl.program_id(0).to(tl.int64)
    frame = tl.program_id(1) * frames + tl.arange(0, frames)
    channel = tl.program_id(2) * tile + tl.arange(0, tile)
    own = x + stream * length * channels
    old = state + tl.load(slots + stream) * total + offset
    p, a = tl.load(pending + channel)[None, :], tl.load(alpha + channel)[None, :]
    result = tl.zeros([frames, tile], tl.float32) + tl.load(bias + channel)[None, :]
    for tap in tl.static_range(7):
        source = frame - (6 - tap) * dilation
        is_new = ((source >= 0) & (source < length))[:, None]
        value = tl.load(own + source[:, None] * channels + channel[None, :], mask=is_new, other=0.0).to(tl.float32) + p
        if tap < 6:
            is_old = (source < 0)[:, None]
            before = tl.load(old + (source + context)[:, None] * channels + channel[None, :], mask=is_old, other=0.0)
            value = tl.where(is_old, before.to(tl.float32), value)
        result += _snake(value, a) * tl.load(weight + tap * channels + channel)[None, :]
    result = _snake(result, tl.load(alpha_out + channel)[None, :])
    is_frame = (frame < length)[:, None]
    place = frame[:, None] * channels + channel[None, :]
    value = tl.load(own + place, mask=is_frame, other=0.0).to(tl.float32) + p
    if whole:
        w = tl.load(product + channel[:, None] * channels + channel[None, :])
        result = tl.dot(result.to(w.dtype), tl.trans(w), input_precision=precision)
        result += tl.load(product_bias + channel)[None, :] + value
    tl.store(out + stream * length * channels + place, result.to(out.dtype.element_ty), mask=is_frame)
    # The new context: the last inputs, and of the old one what a short patch has not pushed out.
    after = new + stream * total + offset
    entry = frame - (length - context)
    is_kept = ((entry >= 0) & (frame < length))[:, None]
    tl.store(after + entry[:, None] * channels + channel[None, :], value.to(new.dtype.element_ty), mask=is_kept)
    if length < context and tl.program_id(1) == 0:
        for start in range(0, context - length, frames):
            entry = start + tl.arange(0, frames)
            is_kept = (entry < context - length)[:, None]
            kept = tl.load(old + (entry + length)[:, None] * channels + channel[None, :], mask=is_kept, other=0.0)
            tl.store(after + entry[:, None] * channels + channel[None, :], kept, mask=is_kept)


@triton.jit
def _last(
    x, state, slots, new, alpha, weight, bias, out, total, offset,
    length: tl.constexpr, channels: tl.constexpr, frames: tl.constexpr,
):  # fmt: skip
    """Snake, convolution of 7 taps to one channel, tanh."""
    stream = tl.program_id(0).to(tl.int64)
    frame = tl.program_id(1) * frames + tl.arange(0, frames)
    channel = tl.arange(0, channels)
    own = x + stream * length * channels
    old = state + tl.load(slots + stream) * total + offset
    a = tl.load(alpha + channel)[None, :]
    result = tl.zeros([frames], tl.float32) + tl.load(bias)
    for tap in tl.static_range(7):
        source = frame - (6 - tap)
        is_new = ((source >= 0) & (source < length))[:, None]
        value = tl.load(own + source[:, None] * channels + channel[None, :], mask=is_new, other=0.0).to(tl.float32)
        is_old = (source < 0)[:, None]
        before = tl.load(old + (source + 6)[:, None] * channels + channel[None, :], mask=is_old, other=0.0)
        value = tl.where(is_old, before.to(tl.float32), value)
        result += tl.sum(_snake(value, a) * tl.load(weight + tap * channels + channel)[None, :], 1)
    fade = tl.exp(-2.0 * tl.abs(result))
    size = (1.0 - fade) / (1.0 + fade)
    tl.store(out + stream * length + frame, tl.where(result < 0, -size, size), mask=frame < length)
    entry = frame - (length - 6)
    is_kept = ((entry >= 0) & (frame < length))[:, None]
    value = tl.load(own + frame[:, None] * channels + channel[None, :], mask=is_kept, other=0.0)
    place = new + stream * total + offset + entry[:, None] * channels + channel[None, :]
    tl.store(place, value.to(new.dtype.element_ty), mask=is_kept)


@triton.jit
def _commit(new, state, slots, total, tile: tl.constexpr):
    stream = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1) * tile + tl.arange(0, tile)
    value = tl.load(new + stream * total + index, mask=index < total)
    tl.store(state + tl.load(slots + stream) * total + index, value, mask=index < total)


class StreamRows:
    """One pass of a batch over the state: [num_slots, total], half precision; slots [S] int64."""

    def __init__(self, state: Tensor, slots: Tensor) -> None:
        self.state, self.slots, self.total = state, slots, state.shape[1]
        self.new = torch.empty(slots.shape[0], self.total, device=state.device, dtype=state.dtype)

    def first(self, z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """z [S, length, channels] float32, weight [7, channels] → [S * length, channels]."""
        num_streams, length, channels = z.shape
        out = torch.empty(num_streams * length, channels, device=z.device, dtype=self.state.dtype)
        tile = triton.next_power_of_2(channels)
        _first[(num_streams, length)](
            z, self.state, self.slots, self.new, weight, bias, out, self.total, length, channels, tile, num_warps=1
        )
        return out

    def before_upsample(
        self, x: Tensor, offset: int, length: int, pending: Tensor, scale: Tensor, bias: Tensor, alpha: Tensor
    ) -> Tensor:
        """x [S * length, channels] → [S * length, 2 * channels]: the frame before, then the frame itself."""
        num_rows, channels = x.shape
        out = torch.empty(num_rows, 2 * channels, device=x.device, dtype=x.dtype)
        tile = min(channels, 1024)
        _before_upsample[(num_rows, channels // tile)](
            x, pending, self.state, self.slots, self.new, scale, bias, alpha, out, self.total, offset, length,
            channels, tile, num_warps=4,
        )  # fmt: skip
        return out

    def unit(
        self, x: Tensor, offset: int, length: int, dilation: int, pending: Tensor, parts: tuple[Tensor, ...],
        *, whole: bool,
    ) -> Tensor:  # fmt: skip
        """x [S * length, channels] → the same shape. parts: alpha, weight [7, channels], bias, alpha_out, product
        [channels, channels], product_bias."""
        channels = x.shape[1]
        out = torch.empty_like(x)
        if whole:
            tile, frames = channels, max(16, 4096 // channels)
        else:
            tile, frames = 64, 32 if length <= 32 else 64
        grid = (x.shape[0] // length, triton.cdiv(length, frames), channels // tile)
        _unit[grid](
            x, pending, self.state, self.slots, self.new, *parts, out, self.total, offset, length, dilation, channels,
            tile, frames, whole, "ieee" if x.dtype == torch.float32 else "tf32", num_warps=4,
        )  # fmt: skip
        return out

    def last(self, x: Tensor, offset: int, length: int, alpha: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """x [S * length, channels], weight [7, channels], bias [1] → [S, length] float32."""
        num_streams, channels = x.shape[0] // length, x.shape[1]
        out = torch.empty(num_streams, length, device=x.device)
        _last[(num_streams, triton.cdiv(length, 128))](
            x, self.state, self.slots, self.new, alpha, weight, bias, out, self.total, offset, length, channels, 128,
            num_warps=4,
        )  # fmt: skip
        return out

    def commit(self) -> None:
        """The new contexts become the slots'."""
        _commit[(self.slots.shape[0], triton.cdiv(self.total, 4096))](
            self.new, self.state, self.slots, self.total, 4096, num_warps=8
        )
