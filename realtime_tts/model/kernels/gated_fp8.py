"""SwiGLU in the epilogue of a product in eight bits: QuACK's GEMM as in `gated`, with the tensor cores' own sums.

By default QuACK accumulates more precisely than the library, which takes three times as long.
"""

from __future__ import annotations

import functools
import logging

import torch
from torch import Tensor

from realtime_tts.model.fp8 import Rows8, in_eight_bits
from realtime_tts.model.kernels.gated import best_config, has_gated_product, interleaved

logger = logging.getLogger(__name__)


class GatedFp8Product:
    """silu(x · gateᵀ) * (x · upᵀ) for weight [2 * size, hidden], the gates first, stored here in eight bits."""

    def __init__(self, weight: Tensor) -> None:
        rows = in_eight_bits(interleaved(weight))
        self._weight, self._scales = rows.values, rows.scales[None]

    def __call__(self, x: Rows8) -> Tensor:
        """Return x [M, hidden] → [M, size] bfloat16."""
        from realtime_tts.model.kernels.epilogues import scaled_swiglu

        num_rows, size = len(x.values), len(self._weight) // 2
        out = torch.empty(num_rows, size, device=x.values.device, dtype=torch.bfloat16)
        config = best_config(num_rows, size)
        scaled_swiglu().gemm(
            x.values,
            self._weight,
            None,
            epi_args={"out": out, "rows": x.scales[None], "columns": self._scales},
            tile_M=config.tile_m,
            tile_N=config.tile_n,
            cluster_M=config.cluster_m,
            cluster_N=config.cluster_n,
            pingpong=config.pingpong,
            post_init_attrs=(("fp8_slow_accum", False),),
        )
        return out


def has_gated_fp8_product(weight: Tensor) -> bool:
    """Return whether `GatedFp8Product` supports a weight here."""
    return has_gated_product(weight) and _works()


@functools.cache
def _works() -> bool:
    """Return whether a trial works: another version of QuACK may have other internal names."""
    try:
        weight, x = (torch.randn(size, 128, device="cuda").bfloat16() for size in (512, 256))
        gate, up = (in_eight_bits(x).exact.double() @ in_eight_bits(weight).exact.double().t()).chunk(2, dim=1)
        expected = torch.nn.functional.silu(gate) * up
        distance = (GatedFp8Product(weight)(in_eight_bits(x)).double() - expected).norm() / expected.norm()
    except Exception as error:
        logger.warning("quack-kernels has no gated product of eight bits that works: %s", error)
        return False
    return bool(distance < 0.01)
