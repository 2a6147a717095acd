"""Causal attention over rows packed end to end: no padding between them, one shape for every batch."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn


@dataclasses.dataclass(frozen=True, slots=True)
class PackedAttention:
    """Each position sees its own row so far. row_starts [rows + 1] int32 (empty rows allowed), row_index [N] int64,
    max_length: of any row."""

    row_starts: Tensor
    row_index: Tensor
    max_length: int

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [N, heads, head_dim], k and v [N, kv_heads, head_dim] → [N, heads * head_dim]."""
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        if q.is_cuda:
            ends = self.row_starts
            return varlen_attn(q, k, v, ends, ends, self.max_length, self.max_length, window_size=(-1, 0)).flatten(1)
        position = torch.arange(q.shape[0])
        mask = (self.row_index[:, None] == self.row_index) & (position[:, None] >= position)
        out = F.scaled_dot_product_attention(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), attn_mask=mask)
        return out.transpose(0, 1).flatten(1)
