"""The streaming decoder of the AudioVAE, channels last.

Each stream's left contexts are one row of a flat state. Kernels read their part of it at the stream's slot, and write
the next context into a scratch row of the batch. `commit` copies the scratch rows to the slots after all kernels.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_VALUES, _TILE = 1024, 128  # values of a program at a time; channels of a program that does not need all
_FILLED = 600  # programs that keep the device busy: with fewer frames, each has shorter runs
_LONGEST_RUN = 16
_FEW_STREAMS, _RUN_OF_FEW = 2, 4  # their decoder runs beside kernels that leave it few processors
_THREAD_VALUES = 8
# Slots are read one at a time and may begin at any address: no kernel is specialised, and so rebuilt, for an alignment.
_ANYWHERE = ["slots"]


@triton.jit
def _snake(x, alpha, inverse):
    """Return x + sin²(alpha x) / alpha; inverse: 1 / alpha. The device's sine has an error of 5e-7 and of its
    argument's rounding, which is negligible against the rounding of x in half precision."""
    sine = tl.inline_asm_elementwise(
        "sin.approx.ftz.f32 $0, $1;", "=f,f", [alpha * x], dtype=tl.float32, is_pure=True, pack=1
    )
    return x + sine * sine * inverse


@triton.jit(do_not_specialize_on_alignment=[*_ANYWHERE, "z"])
def _first(
    z, state, slots, new, weight, bias, out, total, length: tl.constexpr, channels: tl.constexpr, tile: tl.constexpr
):
    """Depthwise convolution of 7 taps over the latents. Its context is at the beginning of the state."""
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
            source = length - 6 + entry  # a frame of this patch; if negative, of the old context
            if source >= 0:
                value = tl.load(z + (stream * length + source) * channels + channel, mask=inside, other=0.0)
            else:
                value = tl.load(old + (source + 6) * channels + channel, mask=inside, other=0.0).to(tl.float32)
            place = new + stream * total + entry * channels + channel
            tl.store(place, value.to(new.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_rows"], do_not_specialize_on_alignment=_ANYWHERE)
def _before_upsample(
    x, pending, state, slots, new, scale, bias, alpha, out, total, offset, num_rows,
    length: tl.constexpr, channels: tl.constexpr, tile: tl.constexpr, rows: tl.constexpr,
):  # fmt: skip
    """Each frame after its condition and snake, with the frame before it."""
    row = (tl.program_id(0) * rows + tl.arange(0, rows)).to(tl.int64)[:, None]
    channel = tl.program_id(1) * tile + tl.arange(0, tile)[None, :]
    stream, frame = row // length, row % length
    inside, is_first = row < num_rows, frame == 0
    p, s = tl.load(pending + channel), tl.load(scale + channel)
    b, a = tl.load(bias + channel), tl.load(alpha + channel)
    inverse = 1.0 / (a + 1e-9)
    place = row * channels + channel
    value, last = tl.load(x + place, mask=inside), tl.load(x + place - channels, mask=inside & ~is_first)
    current = _snake((value.to(tl.float32) + p) * s + b, a, inverse).to(out.dtype.element_ty)
    before = _snake((last.to(tl.float32) + p) * s + b, a, inverse).to(out.dtype.element_ty)
    slot = tl.load(slots + stream, mask=inside)
    kept = tl.load(state + slot * total + offset + channel, mask=inside & is_first)
    double = out + 2 * row * channels + channel
    tl.store(double, tl.where(is_first, kept, before), mask=inside)
    tl.store(double + channels, current, mask=inside)
    tl.store(new + stream * total + offset + channel, current, mask=inside & (frame == length - 1))


@triton.jit
def _input(own, old, pending, frame, channel, length, context: tl.constexpr, channels: tl.constexpr):
    """Return frames of the patch, of the old context before it, zeros after it: [rows, tile] float32."""
    place = frame[:, None] * channels + channel[None, :]
    is_new, is_old = ((frame >= 0) & (frame < length))[:, None], (frame < 0)[:, None]
    value = tl.load(own + place, mask=is_new, other=0.0).to(tl.float32) + pending
    before = tl.load(old + place + context * channels, mask=is_old, other=0.0).to(tl.float32)
    return tl.where(is_old, before, value)


@triton.jit(do_not_specialize=["run"], do_not_specialize_on_alignment=_ANYWHERE)
def _unit(
    x, pending, state, slots, new, alpha, weight, bias, alpha_out, product, product_bias, out, total, offset, run,
    length: tl.constexpr, dilation: tl.constexpr, channels: tl.constexpr, tile: tl.constexpr, rows: tl.constexpr,
    whole: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Snake, depthwise convolution of 7 taps, snake. `whole`: the 1 × 1 convolution and the residual as well.

    Each row processes `run` frames at a distance of `dilation`, and keeps the seven that the convolution needs.
    """
    context: tl.constexpr = 6 * dilation
    stream = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * rows + tl.arange(0, rows)
    frame = row // dilation * (run * dilation) + row % dilation
    channel = tl.program_id(2) * tile + tl.arange(0, tile)
    own = x + stream * length * channels
    old = state + tl.load(slots + stream) * total + offset
    after = new + stream * total + offset
    target = out + stream * length * channels
    p, a = tl.load(pending + channel)[None, :], tl.load(alpha + channel)[None, :]
    b, a_out = tl.load(bias + channel)[None, :], tl.load(alpha_out + channel)[None, :]
    inverse, inverse_out = 1.0 / (a + 1e-9), 1.0 / (a_out + 1e-9)
    taps = weight + channel[None, :]
    w0, w1, w2 = tl.load(taps), tl.load(taps + channels), tl.load(taps + 2 * channels)
    w3, w4, w5 = tl.load(taps + 3 * channels), tl.load(taps + 4 * channels), tl.load(taps + 5 * channels)
    w6 = tl.load(taps + 6 * channels)
    if whole:
        matrix = tl.trans(tl.load(product + channel[:, None] * channels + channel[None, :]))
        b_out = tl.load(product_bias + channel)[None, :]
    s0 = _snake(_input(own, old, p, frame - 6 * dilation, channel, length, context, channels), a, inverse)
    s1 = _snake(_input(own, old, p, frame - 5 * dilation, channel, length, context, channels), a, inverse)
    s2 = _snake(_input(own, old, p, frame - 4 * dilation, channel, length, context, channels), a, inverse)
    s3 = _snake(_input(own, old, p, frame - 3 * dilation, channel, length, context, channels), a, inverse)
    s4 = _snake(_input(own, old, p, frame - 2 * dilation, channel, length, context, channels), a, inverse)
    s5 = _snake(_input(own, old, p, frame - dilation, channel, length, context, channels), a, inverse)
    # Loads run four frames ahead of the computation, since few such rows fit on a processor.
    step: tl.constexpr = dilation * channels
    place = frame[:, None] * channels + channel[None, :]
    r0 = tl.load(own + place, mask=(frame < length)[:, None], other=0.0)
    r1 = tl.load(own + place + step, mask=(frame + dilation < length)[:, None], other=0.0)
    r2 = tl.load(own + place + 2 * step, mask=(frame + 2 * dilation < length)[:, None], other=0.0)
    r3 = tl.load(own + place + 3 * step, mask=(frame + 3 * dilation < length)[:, None], other=0.0)
    for _ in range(run):
        is_frame = (frame < length)[:, None]
        value = r0.to(tl.float32) + p
        r0, r1, r2 = r1, r2, r3
        r3 = tl.load(own + place + 4 * step, mask=(frame + 4 * dilation < length)[:, None], other=0.0)
        s6 = _snake(value, a, inverse)
        result = b + s0 * w0 + s1 * w1 + s2 * w2 + s3 * w3 + s4 * w4 + s5 * w5 + s6 * w6
        result = _snake(result, a_out, inverse_out)
        if whole:
            result = tl.dot(result.to(matrix.dtype), matrix, input_precision=precision) + b_out + value
        tl.store(target + place, result.to(out.dtype.element_ty), mask=is_frame)
        # The new context: the last inputs.
        is_kept = (frame >= length - context)[:, None] & is_frame
        tl.store(after + place - (length - context) * channels, value.to(new.dtype.element_ty), mask=is_kept)
        s0, s1, s2, s3, s4, s5 = s1, s2, s3, s4, s5, s6
        frame, place = frame + dilation, place + step
    if length < context and tl.program_id(1) == 0:  # the part of the old context that a short patch does not replace
        for start in range(0, context - length, rows):
            entry = start + tl.arange(0, rows)
            is_kept = (entry < context - length)[:, None]
            kept = tl.load(old + (entry + length)[:, None] * channels + channel[None, :], mask=is_kept, other=0.0)
            tl.store(after + entry[:, None] * channels + channel[None, :], kept, mask=is_kept)


@triton.jit(do_not_specialize=["run"], do_not_specialize_on_alignment=_ANYWHERE)
def _last(
    x, state, slots, new, alpha, weight, bias, out, total, offset, run,
    length: tl.constexpr, channels: tl.constexpr, rows: tl.constexpr,
):  # fmt: skip
    """Snake, convolution of 7 taps to one channel, tanh; rows as in `_unit`."""
    stream = tl.program_id(0).to(tl.int64)
    frame = (tl.program_id(1) * rows + tl.arange(0, rows)) * run
    channel = tl.arange(0, channels)
    own = x + stream * length * channels
    old = state + tl.load(slots + stream) * total + offset
    a = tl.load(alpha + channel)[None, :]
    inverse = 1.0 / (a + 1e-9)
    b = tl.load(bias)
    taps = weight + channel[None, :]
    w0, w1, w2 = tl.load(taps), tl.load(taps + channels), tl.load(taps + 2 * channels)
    w3, w4, w5 = tl.load(taps + 3 * channels), tl.load(taps + 4 * channels), tl.load(taps + 5 * channels)
    w6 = tl.load(taps + 6 * channels)
    s0 = _snake(_input(own, old, 0.0, frame - 6, channel, length, 6, channels), a, inverse)
    s1 = _snake(_input(own, old, 0.0, frame - 5, channel, length, 6, channels), a, inverse)
    s2 = _snake(_input(own, old, 0.0, frame - 4, channel, length, 6, channels), a, inverse)
    s3 = _snake(_input(own, old, 0.0, frame - 3, channel, length, 6, channels), a, inverse)
    s4 = _snake(_input(own, old, 0.0, frame - 2, channel, length, 6, channels), a, inverse)
    s5 = _snake(_input(own, old, 0.0, frame - 1, channel, length, 6, channels), a, inverse)
    place = frame[:, None] * channels + channel[None, :]
    r0 = tl.load(own + place, mask=(frame < length)[:, None], other=0.0)
    r1 = tl.load(own + place + channels, mask=(frame + 1 < length)[:, None], other=0.0)
    r2 = tl.load(own + place + 2 * channels, mask=(frame + 2 < length)[:, None], other=0.0)
    for _ in range(run):
        is_frame = frame < length
        value = r0.to(tl.float32)
        r0, r1 = r1, r2
        r2 = tl.load(own + place + 3 * channels, mask=(frame + 3 < length)[:, None], other=0.0)
        s6 = _snake(value, a, inverse)
        result = tl.sum(s0 * w0 + s1 * w1 + s2 * w2 + s3 * w3 + s4 * w4 + s5 * w5 + s6 * w6, 1) + b
        fade = tl.exp(-2.0 * tl.abs(result))
        size = (1.0 - fade) / (1.0 + fade)
        tl.store(out + stream * length + frame, tl.where(result < 0, -size, size), mask=is_frame)
        kept = new + stream * total + offset + place - (length - 6) * channels
        tl.store(kept, value.to(new.dtype.element_ty), mask=((frame >= length - 6) & is_frame)[:, None])
        s0, s1, s2, s3, s4, s5 = s1, s2, s3, s4, s5, s6
        frame, place = frame + 1, place + channels


@triton.jit(do_not_specialize_on_alignment=_ANYWHERE)
def _commit(new, state, slots, total, tile: tl.constexpr):
    stream = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1) * tile + tl.arange(0, tile)
    value = tl.load(new + stream * total + index, mask=index < total)
    tl.store(state + tl.load(slots + stream) * total + index, value, mask=index < total)


def _run(num_streams: int, num_values: int) -> int:
    """Return the number of frames that a row processes. Each run starts with six more to load, with their snakes."""
    least = _RUN_OF_FEW if num_streams <= _FEW_STREAMS else 1
    return max(least, min(_LONGEST_RUN, num_streams * num_values // (_VALUES * _FILLED)))


class StreamRows:
    """One pass of a batch over the state: [num_slots, total], half precision; slots [S] int64."""

    def __init__(self, state: Tensor, slots: Tensor) -> None:
        self.state, self.slots, self.total = state, slots, state.shape[1]
        self.new = torch.empty(slots.shape[0], self.total, device=state.device, dtype=state.dtype)

    def first(self, z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """First convolution: z [S, length, channels] float32, weight [7, channels] → [S * length, channels]."""
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
        """Return x [S * length, channels] → [S * length, 2 * channels]: the frame before, then the frame itself."""
        num_rows, channels = x.shape
        out = torch.empty(num_rows, 2 * channels, device=x.device, dtype=x.dtype)
        tile = min(channels, _VALUES)
        rows = _VALUES // tile
        _before_upsample[(triton.cdiv(num_rows, rows), channels // tile)](
            x, pending, self.state, self.slots, self.new, scale, bias, alpha, out, self.total, offset, num_rows,
            length, channels, tile, rows, num_warps=4,
        )  # fmt: skip
        return out

    def unit(
        self, x: Tensor, offset: int, length: int, dilation: int, pending: Tensor, parts: tuple[Tensor, ...],
        *, whole: bool,
    ) -> Tensor:  # fmt: skip
        """Return x [S * length, channels] after a unit, in the same shape. parts: alpha, weight [7, channels], bias,
        alpha_out, product [channels, channels], product_bias."""
        channels = x.shape[1]
        num_streams = x.shape[0] // length
        out = torch.empty_like(x)
        # A matrix product needs at least sixteen rows.
        tile, rows = (channels, max(16, _VALUES // channels)) if whole else (_TILE, _VALUES // _TILE)
        run = _run(num_streams, length * channels)
        num_rows = triton.cdiv(length, run * dilation) * dilation
        _unit[(num_streams, triton.cdiv(num_rows, rows), channels // tile)](
            x, pending, self.state, self.slots, self.new, *parts, out, self.total, offset, run, length, dilation,
            channels, tile, rows, whole, "ieee" if x.dtype == torch.float32 else "tf32",
            num_warps=rows * tile // (32 * _THREAD_VALUES),
        )  # fmt: skip
        return out

    def last(self, x: Tensor, offset: int, length: int, alpha: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return audio: x [S * length, channels], weight [7, channels], bias [1] → [S, length] float32."""
        num_streams, channels = x.shape[0] // length, x.shape[1]
        out = torch.empty(num_streams, length, device=x.device)
        rows, run = _VALUES // channels, _run(num_streams, length * channels)
        _last[(num_streams, triton.cdiv(length, rows * run))](
            x, self.state, self.slots, self.new, alpha, weight, bias, out, self.total, offset, run, length, channels,
            rows, num_warps=rows * channels // (32 * _THREAD_VALUES),
        )  # fmt: skip
        return out

    def commit(self) -> None:
        """Copy the new contexts to the slots."""
        _commit[(self.slots.shape[0], triton.cdiv(self.total, 4096))](
            self.new, self.state, self.slots, self.total, 4096, num_warps=8
        )
