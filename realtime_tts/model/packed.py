"""Linear layers for float32 on x86 processors, with the weights in the order of oneDNN's products.

`F.linear` calls MKL there, which takes up to three times as long on AMD's processors. Steps of the starter voice take
a fifth less time with one stream, a quarter less with three (two EPYC cores of the fifth generation).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PackedLinear(nn.Linear):
    """A linear layer that has its weights in this order only. `weight` is empty; it has the device and dtype."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.contiguous(), None)
        self.weight = nn.Parameter(linear.weight.new_empty(0), requires_grad=False)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return out


def pack(model: nn.Module) -> None:
    """Replace a model's plain linear layers where that is of use: float32 on a processor with AVX. Layers with adapters
    stay as they are, since adapters read the weights."""
    if not (torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability().startswith("AVX")):
        return
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear and child.weight.device.type == "cpu" and child.weight.dtype == torch.float32:
                setattr(module, name, PackedLinear(child))
