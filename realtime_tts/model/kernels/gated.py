"""SwiGLU in the epilogue of the product before it: QuACK's GEMM for Hopper, which is optional (`quack-kernels`)."""

from __future__ import annotations

import functools
import logging
import os
from typing import Any

import torch
from torch import Tensor

from realtime_tts.contract.files import cache_directory

logger = logging.getLogger(__name__)

_HOPPER = (9, 0)
_PROCESSORS = 132
# Tile rows and columns, blocks of a cluster along both: each was fastest at some number of rows on an H200.
_TILES = ((128, 192, 2, 1), (128, 128, 1, 1))
MIN_ROWS = 500  # with fewer, the library's product and a separate kernel are faster


class GatedProduct:
    """silu(x · gateᵀ) * (x · upᵀ) for weight [2 * size, hidden], the gates first, as in `swiglu`."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = interleaved(weight).t()

    def __call__(self, x: Tensor) -> Tensor:
        """Return x [M, hidden] contiguous → [M, size]."""
        from quack.gemm_interface import gemm_act

        out = torch.empty(x.shape[0], self._weight.shape[1] // 2, device=x.device, dtype=x.dtype)
        config = best_config(*out.shape)
        gemm_act(x, self._weight, activation="swiglu", store_preact=False, postact_out=out, config=config)
        return out


def interleaved(weight: Tensor) -> Tensor:
    """Return [2 * size, hidden], the gates first, with each gate next to its value, as the epilogue needs them."""
    return torch.stack(weight.chunk(2), dim=1).view(len(weight), -1).contiguous()


@functools.cache
def best_config(num_rows: int, size: int) -> Any:
    """Return QuACK's configuration with the tile that minimises the work of the busiest processor."""
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
    """Return whether `GatedProduct` supports a weight here."""
    fits = weight.dtype == torch.bfloat16 and weight.shape[1] % 64 == 0 and weight.shape[0] % 256 == 0
    return bool(fits and weight.is_cuda and torch.cuda.get_device_capability(weight.device) == _HOPPER and _works())


def keep_compiled() -> None:
    """Store QuACK's compiled kernels beside this package's, unless the environment names a directory. QuACK's default
    is a temporary directory, which is empty at each start of a service or container. Call it before QuACK's import."""
    directory = cache_directory("kernels") / "quack"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(directory, os.W_OK):
        os.environ.setdefault("QUACK_CACHE_DIR", str(directory))
        os.environ.setdefault("CUTE_DSL_CACHE_DIR", str(directory / "cutlass"))


@functools.cache
def _works() -> bool:
    """Return whether a trial works: QuACK may not fit the driver or other packages."""
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
        distance = (GatedProduct(weight)(x).double() - expected).norm() / expected.norm()
    except Exception as error:
        logger.warning("quack-kernels is installed but does not work: %s", error)
        return False
    return bool(distance < 0.01)
