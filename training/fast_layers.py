"""Faster training forms of the VAE's layers, on the same parameters.

cuDNN is slow at depthwise convolutions over long signals, slower at their gradients, and converts layouts for pointwise
ones, which are plain matrix products.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from realtime_tts.model.audio_vae import CausalConv1d, Snake1d


class _Depthwise(CausalConv1d):
    def forward(self, x: Tensor, stream: object | None = None) -> Tensor:
        if not x.is_cuda:
            return super().forward(x)
        from training.triton_convs import depthwise  # Triton comes with CUDA builds of torch only

        return depthwise(x, self.weight, self.bias, self.dilation[0])


class _Pointwise(CausalConv1d):
    def forward(self, x: Tensor, stream: object | None = None) -> Tensor:
        return torch.matmul(self.weight[..., 0], x) + self.bias[:, None]


class _Snake(Snake1d):
    def forward(self, x: Tensor, stream: object | None = None) -> Tensor:
        if not x.is_cuda:
            return super().forward(x)
        from training.triton_convs import snake

        return snake(x, self.alpha)


def use_fast_layers(module: nn.Module) -> None:
    """Make `module`'s activations and its depthwise and pointwise convolutions compute in these forms."""
    for part in module.modules():
        if type(part) is Snake1d:
            part.__class__ = _Snake
        elif type(part) is CausalConv1d and part.stride[0] == 1:
            if part.groups > 1:
                part.__class__ = _Depthwise
            elif part.kernel_size[0] == 1:
                part.__class__ = _Pointwise
