"""The first layer of a flow's evaluations, up to its attention, for many streams: see `fused`.

Before it no operation mixes rows. Most rows are therefore the same in all evaluations, and the noisy patch is the same
with its condition and without: 4 of 22 rows per stream remain to be projected each time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from realtime_tts.model.kernels.patch_attention import MIN_SEQUENCES, PatchAttention, SharedRows
from realtime_tts.model.kernels.products import Product
from realtime_tts.model.kernels.rows import rms_norm
from realtime_tts.model.minicpm import DecoderLayer, Rope


class FirstLayer:
    """First layer for one flow: its S streams' conditions mu [S, conditions, hidden], projected previous patches prefix
    [S, patch_size, hidden], and the times [E, hidden] of its evaluations. Entry 0 of `qkv` is the layer's product."""

    def __init__(
        self, layer: DecoderLayer, qkv: Product, attention: PatchAttention, mu: Tensor, prefix: Tensor, times: Tensor
    ) -> None:
        self._norm, self._qkv, self._attention = layer.input_layernorm, qkv, attention
        self._num_streams, self._patch_size = prefix.shape[:2]
        hidden, num_times = mu.shape[2], len(times)
        kept = torch.cat((mu, prefix), dim=1).view(-1, hidden)
        rows = self._projected(torch.cat((kept, times, mu.new_zeros(1, hidden))))
        self._kept, self._times, self._zeros = rows.split((len(kept), num_times, 1))

    def heads(self, rows: Tensor, index: int, rope: Rope | None, *, guided: bool) -> Tensor:
        """Return attention's output [rows, heads * head_dim]. rows: as `flow_tokens` returns them for `index`."""
        length = self._attention.length
        fresh = self._projected(rows[: self._num_streams * length], length, self._patch_size)
        shared = SharedRows(self._kept, self._times[index], self._zeros, fresh, self._num_streams)
        return self._attention.shared(shared, rope, guided=guided)

    def _projected(self, rows: Tensor, length: int = 1, tail: int = 1) -> Tensor:
        """Return the projections of the last `tail` of each `length` rows."""
        return self._qkv(rms_norm(rows, self._norm.weight, self._norm.eps, length, tail), 0)


def is_worth_it(attention: PatchAttention, length: int, num_sequences: int) -> bool:
    """Return whether this attention kernel is faster for that many sequences of this length."""
    return attention.length == length and num_sequences >= MIN_SEQUENCES
