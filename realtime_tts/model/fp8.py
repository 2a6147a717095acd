"""Rows in eight bits: e4m3 values, each row with its own scale. Operands of an fp8 product."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LARGEST = 448.0  # the largest value of e4m3
SMALLEST_PEAK = 1e-12  # a row of zeros has a scale, too


class Rows8(NamedTuple):
    """values [M, K] float8_e4m3fn, scales [M] float32: row m is values[m] * scales[m]."""

    values: Tensor
    scales: Tensor

    @property
    def exact(self) -> Tensor:
        """The rows as [M, K] float32."""
        return self.values.float() * self.scales[:, None]


def in_eight_bits(x: Tensor) -> Rows8:
    """Return x [M, K], such as a weight's output channels or a product's input, in eight bits."""
    scales = x.float().abs().amax(dim=1).clamp(min=SMALLEST_PEAK) / LARGEST
    return Rows8((x.float() / scales[:, None]).to(torch.float8_e4m3fn), scales)
