"""The model's place in its text while it speaks: the attention of base-LM heads, computed beside the backend.

Attention kernels do not return their weights. For one head and one position per stream, the weights are a few thousand
products. All shapes depend only on the batch and its block tables, and nothing waits for the device, so that it can be
captured with the step.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from realtime_tts.model.attention import AttentionMetadata


@dataclasses.dataclass(frozen=True, slots=True)
class TextSpans:
    """Positions of the spoken text in the sequences of S streams.

    rows: [S] int64, the row among the step's T new positions whose attention is read for each stream. starts, lens: [S]
    int64. For a length of 0 (a padded row), the reading is NaN.
    """

    rows: Tensor
    starts: Tensor
    lens: Tensor


def text_attention(
    q: Tensor, keys: Tensor, meta: AttentionMetadata, spoken: TextSpans
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the attention of H heads on each stream's text, from one new position of each.

    q [T, H, head_dim], keys [num_blocks, block_size, kv_heads, head_dim] (H a multiple of kv_heads) →
    weights [S, H, C] float32 over the C positions of the block tables, with a sum of 1 in the text and 0 elsewhere;
    index [S, 1, C], each position's index in the text; mass [S, H], the share of all attention that is on the text.
    """
    num_heads, head_dim = q.shape[1:]
    num_kv_heads = keys.shape[2]
    tables = meta.block_tables.index_select(0, meta.sequences.index_select(0, spoken.rows))
    last = meta.positions.index_select(0, spoken.rows)
    k = keys.index_select(0, tables.view(-1)).view(tables.shape[0], -1, num_kv_heads, head_dim)
    grouped = q.index_select(0, spoken.rows).view(-1, num_kv_heads, num_heads // num_kv_heads, head_dim)
    # In float32: a score of some tens, rounded to bfloat16, would move the position by whole words.
    scores = torch.matmul(grouped.float() / math.sqrt(head_dim), k.float().permute(0, 2, 3, 1)).flatten(1, 2)
    position = torch.arange(k.shape[1], device=q.device)
    index = position - spoken.starts[:, None]
    is_text = ((index >= 0) & (index < spoken.lens[:, None]))[:, None]
    is_context = (position <= last[:, None])[:, None]
    everywhere = torch.where(is_context, scores, -math.inf).softmax(-1)
    # A separate softmax: even with almost no mass on the text, there is a place in it.
    weights = torch.where(is_text, scores, -math.inf).softmax(-1)
    return weights, index[:, None], (everywhere * is_text).sum(-1)


class HeadProbe:
    """Reads one head of one layer of the base LM in one step; an `AttentionProbe`.

    readings: [S, 2] float32 once the layer has run: the expected index in the text, and the attention's mass on it.
    """

    def __init__(self, layer: int, head: int, spoken: TextSpans) -> None:
        self.layer, self.head, self.spoken = layer, head, spoken
        self.readings = torch.empty(0)

    def observe(self, layer: int, q: Tensor, keys: Tensor, meta: AttentionMetadata) -> None:
        if layer != self.layer:
            return
        kv_head = self.head * keys.shape[2] // q.shape[1]
        own_q, own_keys = q[:, self.head : self.head + 1], keys[:, :, kv_head : kv_head + 1]
        weights, index, mass = text_attention(own_q, own_keys, meta, self.spoken)
        self.readings = torch.cat(((weights * index).sum(-1), mass), dim=1)


class AllHeadsProbe:
    """Reads every head of the base LM in one step; an `AttentionProbe`.

    readings: [S, heads, 3] float32 of each layer that has run: the index, its standard deviation under the attention,
    and the attention's mass on the text.
    """

    def __init__(self, spoken: TextSpans) -> None:
        self._spoken = spoken
        self.readings: list[Tensor] = []

    def observe(self, layer: int, q: Tensor, keys: Tensor, meta: AttentionMetadata) -> None:
        weights, index, mass = text_attention(q, keys, meta, self._spoken)
        mean = (weights * index).sum(-1)
        spread = (weights * (index - mean[..., None]) ** 2).sum(-1).sqrt()
        self.readings.append(torch.stack((mean, spread, mass), dim=-1))
