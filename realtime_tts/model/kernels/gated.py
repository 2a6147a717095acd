"""SwiGLU in the epilogue of the product before it: QuACK's GEMM for Hopper, which is optional (`quack-kernels`)."""

from __future__ import annotations

import functools
import logging
import os
from typing import Any

import torch
from torch import Tensor

from realtime_tts.model.kernels.cuda.build import cache_directory

logger = logging.getLogger(__name__)

_HOPPER = (9, 0)
_PROCESSORS = 132
# Rows and columns of a tile, blocks of a cluster along them: what was fastest somewhere for the DiT's shape on an H200.
_TILES = ((128, 192, 2, 1), (128, 128, 1, 1))
MIN_ROWS = 500  # with fewer the library's product and a kernel of its own are faster


class GatedProduct:
    """silu(x · gateᵀ) * (x · upᵀ). weight [2 * size, hidden] as `swiglu` takes its product: the gates first."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = interleaved(weight).t()

    def __call__(self, x: Tensor) -> Tensor:
        """x [M, hidden] contiguous → [M, size]."""
        from quack.gemm_interface import gemm_act

        out = torch.empty(x.shape[0], self._weight.shape[1] // 2, device=x.device, dtype=x.dtype)
        config = best_config(*out.shape)
        gemm_act(x, self._weight, activation="swiglu", store_preact=False, postact_out=out, config=config)
        return out


def interleaved(weight: Tensor) -> Tensor:
    """[2 * size, hidden], the gates first → row by row a gate and its value: an epilogue has both at hand."""
    return torch.stack(weight.chunk(2), dim=1).view(len(weight), -1).contiguous()


@functools.cache
def best_config(num_rows: int, size: int) -> Any:
    """QuACK's of the tile that leaves the busiest processor the least to do, which is what its time goes by."""
    from quack.gemm_config import GemmConfig

    def work(tile: tuple[int, int, int, int]) -> int:
        num_tiles = -(-num_rows // tile[0]) * -(-2 * size // tile[1])
        return -(-num_tiles // _PROCESSORS) * tile[0] * tile[1]

    rows, columns, cluster_rows, cluster_columns = min(_TILES, key=work)
    return GemmConfig(
        tile_m=rows,
        tile_n=columns,
        pingpong=True,
        is_dynamic_persistent=False,
        cluster_m=cluster_rows,
        cluster_n=cluster_columns,
    )


def has_gated_product(weight: Tensor) -> bool:
    """Whether `GatedProduct` is there for such weights."""
    fits = weight.dtype == torch.bfloat16 and weight.shape[1] % 64 == 0 and weight.shape[0] % 256 == 0
    return bool(fits and weight.is_cuda and torch.cuda.get_device_capability(weight.device) == _HOPPER and _works())


def keep_compiled() -> None:
    """Has QuACK keep what it compiles where our own kernels are kept, unless the environment says where. By itself it
    puts it among temporary files, which a service or a container has anew at each start. Before it is imported."""
    directory = cache_directory() / "quack"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(directory, os.W_OK):
        os.environ.setdefault("QUACK_CACHE_DIR", str(directory))
        os.environ.setdefault("CUTE_DSL_CACHE_DIR", str(directory / "cutlass"))


@functools.cache
def _works() -> bool:
    """Once tried, since what is installed may not fit the driver or the rest of what is installed."""
    keep_compiled()
    try:
        import quack.gemm_interface  # noqa: F401
    except ImportError:
        return False
    try:
        weight = torch.randn(512, 128, device="cuda").to(torch.bfloat16)
        x = torch.randn(256, 128, device="cuda").to(torch.bfloat16)
        gate, up = (x.double() @ weight.double().t()).chunk(2, dim=1)
        expected = torch.nn.functional.silu(gate) * up
        error = (GatedProduct(weight)(x).double() - expected).norm() / expected.norm()
    except Exception as error:
        logger.warning("quack-kernels is installed but does not work: %s", error)
        return False
    return bool(error < 0.01)
