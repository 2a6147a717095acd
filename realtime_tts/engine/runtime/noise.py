"""Noise as a pure function of (seed, patch index): the same in any batch, slot and order, and on any device.


SplitMix64 evaluated at a counter, then Box–Muller. It uses only int64 arithmetic (which wraps) and float32 functions,
without generator state and host synchronisation, so a CUDA graph can capture it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def noise_key(seed: int, segment: int = 0) -> int:
    """Return a stream's key, a signed 64-bit integer, for a seed (any integer) and a segment's number. Keys of nearby
    seeds are unrelated."""
    key = _mixed(seed)
    return _signed(key if segment == 0 else _mixed(key + segment))


def _mixed(seed: int) -> int:
    value = (seed + 1) * _GOLDEN & _MASK
    value = (value ^ (value >> 30)) * _MIX[0] & _MASK
    value = (value ^ (value >> 27)) * _MIX[1] & _MASK
    return value ^ (value >> 31)


def patch_noise(keys: Tensor, patch_index: Tensor, patch_size: int, latent_dim: int) -> Tensor:
    """Return standard normal noise.

    keys [S] int64 (from `noise_key`), patch_index [S] int64 → [S, patch_size, latent_dim] float32.
    """
    num_values = patch_size * latent_dim
    num_pairs = -(-num_values // 2)
    pair = torch.arange(num_pairs, device=keys.device)
    counter = patch_index[:, None] * num_pairs + pair + 1
    bits = _mix(keys[:, None] + counter * _signed(_GOLDEN))
    high, low = _shift(bits, 40), bits & 0xFFFFFF  # 24 bits each, which float32 represents exactly
    radius = torch.sqrt(-2.0 * torch.log((high.float() + 1.0) * 2.0**-24))  # in (0, 1]: the logarithm is finite
    angle = low.float() * (2.0 * math.pi * 2.0**-24)
    values = torch.cat((radius * torch.cos(angle), radius * torch.sin(angle)), dim=1)
    return values[:, :num_values].view(-1, patch_size, latent_dim)


def _mix(value: Tensor) -> Tensor:
    value = (value ^ _shift(value, 30)) * _signed(_MIX[0])
    value = (value ^ _shift(value, 27)) * _signed(_MIX[1])
    return value ^ _shift(value, 31)


def _shift(value: Tensor, num_bits: int) -> Tensor:
    """Return a logical shift right; torch's own keeps the sign."""
    return (value >> num_bits) & ((1 << (64 - num_bits)) - 1)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
