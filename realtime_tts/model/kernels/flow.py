"""Kernels around the DiT in an Euler step: its input rows, and guidance with the step itself."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _tokens(
    x, mu, time, prefix, weight, bias, out, num_streams,
    num_mu: tl.constexpr, separate_time: tl.constexpr, patch_size: tl.constexpr,
    patch_tile: tl.constexpr, latent: tl.constexpr, latent_tile: tl.constexpr, hidden: tl.constexpr, tile: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    stream = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = column < hidden
    head: tl.constexpr = num_mu + 1 if separate_time else num_mu
    length: tl.constexpr = head + 2 * patch_size
    own = out + stream * length * hidden + column  # with the condition; without it below
    other = out + (stream + num_streams) * length * hidden + column
    t = tl.load(time + column, mask=inside, other=0.0)
    for index in tl.static_range(num_mu):
        m = tl.load(mu + (stream * num_mu + index) * hidden + column, mask=inside, other=0.0)
        if separate_time:
            tl.store(own + index * hidden, m, mask=inside)
            tl.store(other + index * hidden, tl.zeros_like(m), mask=inside)
        else:
            tl.store(own + index * hidden, (m.to(tl.float32) + t.to(tl.float32)).to(m.dtype), mask=inside)
            tl.store(other + index * hidden, t, mask=inside)
    if separate_time:
        tl.store(own + num_mu * hidden, t, mask=inside)
        tl.store(other + num_mu * hidden, t, mask=inside)
    row, value = tl.arange(0, patch_tile), tl.arange(0, latent_tile)
    is_row = (row < patch_size)[:, None]
    place = row[:, None] * hidden
    p = tl.load(
        prefix + stream * patch_size * hidden + place + column[None, :], mask=is_row & inside[None, :], other=0.0
    )
    tl.store(own[None, :] + head * hidden + place, p, mask=is_row & inside[None, :])
    tl.store(other[None, :] + head * hidden + place, p, mask=is_row & inside[None, :])
    is_value = (value < latent)[None, :]
    state = tl.load(
        x + (stream * patch_size + row[:, None]) * latent + value[None, :], mask=is_row & is_value, other=0.0
    )
    w = tl.load(weight + column[:, None] * latent + value[None, :], mask=inside[:, None] & is_value, other=0.0)
    tokens = tl.dot(state.to(w.dtype), tl.trans(w), input_precision=precision)
    tokens += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    tokens = tokens.to(out.dtype.element_ty)
    place += (head + patch_size) * hidden
    tl.store(own[None, :] + place, tokens, mask=is_row & inside[None, :])
    tl.store(other[None, :] + place, tokens, mask=is_row & inside[None, :])


def flow_tokens(
    x: Tensor, mu: Tensor, time: Tensor, prefix: Tensor, weight: Tensor, bias: Tensor, *, separate_time: bool
) -> Tensor:
    """Return the DiT's rows for S streams: with their condition and then again without it.

    x [S, patch_size, latent] float32, mu [S, num_mu, hidden], time [hidden], prefix [S, patch_size, hidden] projected,
    weight [hidden, latent], bias [hidden] → [2 * S * length, hidden]: mu (zeros), time, prefix, projected x.
    """
    num_streams, num_mu, hidden = mu.shape
    patch_size, latent = x.shape[1:]
    length = num_mu + separate_time + 2 * patch_size
    out = torch.empty(2 * num_streams * length, hidden, device=mu.device, dtype=mu.dtype)
    tile = min(128, triton.next_power_of_2(hidden))
    _tokens[(num_streams, triton.cdiv(hidden, tile))](
        x, mu, time, prefix, weight, bias, out, num_streams, num_mu, separate_time, patch_size,
        max(16, triton.next_power_of_2(patch_size)), latent, max(16, triton.next_power_of_2(latent)), hidden, tile,
        "ieee" if mu.dtype == torch.float32 else "tf32", num_warps=4,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize_on_alignment=["cfg"])  # a slice of a step's streams may start at any address
def _euler(x, velocity, cfg, delta, num_streams, size: tl.constexpr, tile: tl.constexpr):
    stream = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, tile)
    inside = index < size
    step = tl.load(velocity + stream * size + index, mask=inside, other=0.0).to(tl.float32)
    negative = tl.load(velocity + (stream + num_streams) * size + index, mask=inside, other=0.0).to(tl.float32)
    scaled = negative * (tl.sum(step * negative) / (tl.sum(negative * negative) + 1e-8))
    step = scaled + tl.load(cfg + stream) * (step - scaled)
    place = x + stream * size + index
    tl.store(place, tl.load(place, mask=inside, other=0.0) - delta * step, mask=inside)


def euler_step(x: Tensor, velocity: Tensor, cfg: Tensor, delta: float) -> None:
    """Move x [S, patch_size, latent] float32 by `delta` against the guided velocity, in place.

    velocity [2 * S * patch_size, latent]: the part with the condition, then the part without. cfg [S] float32.
    """
    num_streams, size = x.shape[0], x[0].numel()
    _euler[(num_streams,)](x, velocity, cfg, delta, num_streams, size, triton.next_power_of_2(size), num_warps=2)
