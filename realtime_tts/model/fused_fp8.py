"""The flow's layers with products in eight bits, for many rows: see `fused`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from realtime_tts.model.fp8 import Rows8
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

    def tail(
        self,
        rows: Tensor,
        length: int,
        num_tail: int,
        attend: Callable[[Tensor, int], Tensor],
        first: Tensor | None = None,
    ) -> Tensor:
        """Return bidirectional sequences [N * length, hidden] → [N * num_tail, hidden], not normed.

        attend: maps packed queries, keys and values to attention's output for that many last positions per sequence.
        first: output of the first layer's attention, if it is known.
        """
        for index, layer in enumerate(self._layers):
            norm, behind, scale = layer.input_layernorm, layer.post_attention_layernorm, layer.residual_scale
            num_queries = num_tail if index == len(self._layers) - 1 else length
            if first is not None and index == 0:
                heads = first
            else:
                heads = attend(self._qkv.of(rms_norm_fp8(rows, norm.weight, norm.eps), index), num_queries)
            if num_queries < length:
                rows = rows.view(-1, length, rows.shape[1])[:, -num_tail:].reshape(-1, rows.shape[1])
            rows = self._o(heads, index, rows, scale)
            wide = self._wide(rms_norm_fp8(rows, behind.weight, behind.eps), index)
            rows = self._down.of(wide, index, rows, scale)
        return rows

    def _wide(self, normed: Rows8, index: int) -> Rows8:
        if self._gate_up is None:
            return rows_fp8(self._gated[index](normed))
        return swiglu_fp8(self._gate_up.of(normed, index))
