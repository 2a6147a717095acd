"""Streams' noise in one kernel: the function of `engine.runtime.noise`, with its constants."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 128
_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = tl.constexpr(0xBF58476D1CE4E5B9), tl.constexpr(0x94D049BB133111EB)
_TURN, _STEP = tl.constexpr(2.0 * math.pi * 2.0**-24), tl.constexpr(2.0**-24)


@triton.jit
def _noise(keys, patch_index, out, num_values, num_pairs, tile: tl.constexpr):
    stream = tl.program_id(0).to(tl.int64)
    pair = tl.program_id(1) * tile + tl.arange(0, tile)
    counter = tl.load(patch_index + stream) * num_pairs + pair + 1
    bits = tl.load(keys + stream).to(tl.uint64) + counter.to(tl.uint64) * _GOLDEN
    bits = (bits ^ (bits >> 30)) * _MIX_1
    bits = (bits ^ (bits >> 27)) * _MIX_2
    bits = bits ^ (bits >> 31)
    high, low = (bits >> 40).to(tl.int32).to(tl.float32), (bits & 0xFFFFFF).to(tl.int32).to(tl.float32)
    radius = tl.sqrt(tl.maximum(-2.0 * tl.log((high + 1.0) * _STEP), 0.0))
    angle = low * _TURN
    target = out + stream * num_values + pair
    tl.store(target, radius * tl.cos(angle), mask=pair < num_pairs)
    tl.store(target + num_pairs, radius * tl.sin(angle), mask=pair + num_pairs < num_values)


def patch_noise(keys: Tensor, patch_index: Tensor, patch_size: int, latent_dim: int) -> Tensor:
    """Return standard normal noise: keys, patch_index [S] int64, contiguous → [S, patch_size, latent_dim] float32."""
    num_values, num_streams = patch_size * latent_dim, keys.shape[0]
    num_pairs = -(-num_values // 2)
    out = torch.empty(num_streams, patch_size, latent_dim, device=keys.device)
    grid = num_streams, triton.cdiv(num_pairs, _TILE)
    _noise[grid](keys, patch_index, out, num_values, num_pairs, _TILE, num_warps=4)
    return out
