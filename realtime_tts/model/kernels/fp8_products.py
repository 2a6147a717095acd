"""Products in eight bits on Hopper's fp8 units, each by the fastest of cuBLASLt's kernels, as in `products`."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from realtime_tts.model.fp8 import Rows8, in_eight_bits
from realtime_tts.model.kernels.products import Product

_HOPPER = (9, 0)
_MULTIPLE = 16  # of both dimensions of a weight


class Fp8Product(Product):
    """x · weightᵀ for weights [N, K], stored here in eight bits. Results are bfloat16.

    Scales are applied to the sums before `onto` is added. Sums have the precision of the units, about 14 bits, as in
    all fp8 products that are faster.
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        rows = [in_eight_bits(weight) for weight in weights]
        super().__init__([weight.values for weight in rows])
        self._scales, self._out_dtype = [weight.scales for weight in rows], torch.bfloat16

    def of(self, x: Rows8, layer: int, onto: Tensor | None = None, scale: float = 1.0) -> Tensor:
        """Return x [M, K] → [M, N]; with onto [M, N] contiguous: `onto` + scale * product."""
        return self._multiply(x.values, x.scales, layer, onto, scale)


def what_is_missing(weights: Sequence[Tensor]) -> str | None:
    """Return the reason why there are no such products for weights; None if there are."""
    for weight in weights:
        if weight.dtype != torch.bfloat16:
            return f"the weights are {str(weight.dtype).removeprefix('torch.')}, not bfloat16"
        if any(size % _MULTIPLE for size in weight.shape):
            return f"a weight of {' × '.join(map(str, weight.shape))} is not of multiples of {_MULTIPLE}"
    return missing_on(weights[0].device)


def missing_on(device: torch.device) -> str | None:
    """Return the reason why a device has no such products; None if it has."""
    if device.type != "cuda":
        return f"the device is {device}"
    if torch.cuda.get_device_capability(device) != _HOPPER:
        return f"products scaled by row are for Hopper GPUs, not for {torch.cuda.get_device_name(device)}"
    return _missing_in_the_library(device.index or 0)


@functools.cache
def _missing_in_the_library(device: int) -> str | None:
    """Return the reason why a trial fails, None if it works: older versions of cuBLAS do not support scales by row."""
    with torch.cuda.device(device), torch.inference_mode():
        weight, x = torch.randn(64, 128, device="cuda").bfloat16(), torch.randn(32, 128, device="cuda").bfloat16()
        try:
            product = Fp8Product([weight]).of(in_eight_bits(x), 0, x[:, :64].contiguous(), 0.5)
        except RuntimeError as error:
            return f"torch's cuBLAS has no products scaled by row: {error}"
        expected = x[:, :64].double() + 0.5 * (x.double() @ weight.double().t())
        distance = ((product.double() - expected).norm() / expected.norm()).item()
    return None if distance < 0.06 else f"torch's cuBLAS is wrong by {distance:.0%} in products scaled by row"
