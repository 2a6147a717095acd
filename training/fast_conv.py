"""Faster training forms of the VAE's convolutions, on the same parameters.

Depthwise convolutions over long signals are slow in cuDNN, and its backward slower still. As a sum of shifted
products a compiler fuses them with the activation before; pointwise ones are matrix products.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from realtime_tts.model.audio_vae import CausalConv1d


class _ShiftedConv1d(CausalConv1d):
    def forward(self, x: Tensor, stream: object | None = None) -> Tensor:
        length, dilation = x.shape[-1], self.dilation[0]
        padded = F.pad(x, (self.context, 0))
        out = self.bias[:, None]
        for tap in range(self.kernel_size[0]):
            out = out + padded[..., tap * dilation : tap * dilation + length] * self.weight[:, 0, tap, None]
        return out


class _PointwiseConv1d(CausalConv1d):
    def forward(self, x: Tensor, stream: object | None = None) -> Tensor:
        return torch.matmul(self.weight[..., 0], x) + self.bias[:, None]


def use_fast_convolutions(module: nn.Module) -> None:
    """Make `module`'s depthwise and pointwise convolutions compute in these forms. Parameters and names stay."""
    for part in module.modules():
        if type(part) is CausalConv1d and part.stride[0] == 1:
            if part.groups > 1:
                part.__class__ = _ShiftedConv1d
            elif part.kernel_size[0] == 1:
                part.__class__ = _PointwiseConv1d
