"""The flow's layers with products in eight bits, for many rows: see `fused`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from realtime_tts.model.kernels.fp8_products import Fp8Product, what_is_missing
from realtime_tts.model.kernels.fp8_rows import rms_norm_fp8, rows_fp8, swiglu_fp8
from realtime_tts.model.kernels.gated_fp8 import GatedFp8Product, has_gated_fp8_product
from realtime_tts.model.kernels.products import Product
from realtime_tts.model.minicpm import DecoderLayer

MIN_ROWS = 1000  # with 704 (32 streams), a step is 1 % shorter, which is not worth the rounding


class Fp8Layers:
    """Products of these layers in eight bits, except the one after attention, whose kernel has no whole row to scale.

    Raises:
        ValueError: there are no such products for these weights on their device.
    """

    def __init__(self, layers: Sequence[DecoderLayer]) -> None:
        qkv = [layer.self_attn.qkv_proj.weight for layer in layers]
        o = [layer.self_attn.o_proj.weight for layer in layers]
        gate_up = [layer.mlp.gate_up_proj.weight for layer in layers]
        down = [layer.mlp.down_proj.weight for layer in layers]
        missing = what_is_missing([*qkv, *gate_up, *down])
        if missing:
            raise ValueError(missing)
        self._layers = layers
        self._qkv, self._down, self._o = Fp8Product(qkv), Fp8Product(down), Product(o)
        # One of the two is set: SwiGLU is part of the product where that is supported.
        self._gated: list[GatedFp8Product] = []
        self._gate_up: Fp8Product | None = None
        if has_gated_fp8_product(gate_up[0]):
            self._gated = [GatedFp8Product(weight) for weight in gate_up]
        else:
            self._gate_up = Fp8Product(gate_up)

    def project(self, index: int, rows: Tensor) -> Tensor:
        """Compute a layer from its input to attention."""
        norm = self._layers[index].input_layernorm
        return self._qkv.of(rms_norm_fp8(rows, norm.weight, norm.eps), index)

    def finish(self, index: int, rows: Tensor, heads: Tensor) -> Tensor:
        """Compute a layer from its attention to its output."""
        norm, scale = self._layers[index].post_attention_layernorm, self._layers[index].residual_scale
        rows = self._o(heads, index, rows, scale)
        normed = rms_norm_fp8(rows, norm.weight, norm.eps)
        if self._gate_up is None:
            wide = rows_fp8(self._gated[index](normed))
        else:
            wide = swiglu_fp8(self._gate_up.of(normed, index))
        return self._down.of(wide, index, rows, scale)
