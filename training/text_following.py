"""Teaches one attention head of the base LM to look at the character that is spoken.

Serving reads this head at the position that predicts a patch (`realtime_tts.model.text_head`). Its target is the
character in the middle of that patch, by the teacher's word times. The loss is taken over everything that the head may
attend to, not only over the text: serving also requires that much of the attention falls on the text.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from realtime_tts.model.minicpm import DecoderLayer, Rope, rotate
from training.starter_config import LETTER_IDS
from training.tts_batches import MAX_POSITIONS, Batch

# The target is 80 ms before the patch ends; the teacher's durations place a word 80 ms after it sounds (median of 420
# words, against a forced alignment); serving takes the place that it reads for a character's start, 35 ms earlier.
TAUGHT_LAG_MS = 195.0
_LETTERS = min(LETTER_IDS.values()), max(LETTER_IDS.values())  # token ids of characters
_BLOCK = 64  # queries that share a window of keys
_PAST = -(-MAX_POSITIONS // _BLOCK)  # blocks before their own that a row can reach into


def head_inputs(layer: DecoderLayer, x: Tensor, rope: Rope | None, head: int) -> tuple[Tensor, Tensor]:
    """Compute the rotated q and k [N, head_dim] of one head from the input x [N, hidden] of its layer."""
    attention = layer.self_attn
    size, key = attention.head_dim, attention.num_heads + head * attention.num_kv_heads // attention.num_heads
    weight = attention.qkv_proj.weight
    own = torch.cat([weight[n * size : (n + 1) * size] for n in (head, key)])
    heads = F.linear(layer.input_layernorm(x), own).unflatten(-1, (2, size))
    if rope is not None:
        heads = rotate(heads, rope)
    return heads[:, 0], heads[:, 1]


def windows(values: Tensor) -> Tensor:
    """For each block of positions, the values [N, ...] of it and of those before it that a row can reach:
    [N / block, window, ...]. N is a multiple of the block; zeros stand before the first position."""
    past = F.pad(values, (0, 0) * (values.dim() - 1) + (_PAST * _BLOCK, 0))
    return past.unfold(0, (_PAST + 1) * _BLOCK, _BLOCK).movedim(-1, 1)


def following(q: Tensor, k: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """How well a head with q and k [N, head_dim] follows the text: its loss, and the mean distance in characters
    between what serving would read and the character that is spoken.

    Every shape is fixed by the batch's: the attention is computed over blocks of the packed positions, each with a
    window of keys that holds the longest row.
    """
    count = q.shape[0]
    rest = -count % _BLOCK
    with torch.autocast(q.device.type, enabled=False):  # a score of some tens would be rounded by whole units
        q, k = q.float() / q.shape[-1] ** 0.5, k.float()
        rows = F.pad(batch.row_index, (0, rest), value=-1)
        position = torch.arange(count + rest, device=q.device)
        is_text = F.pad((batch.tokens >= _LETTERS[0]) & (batch.tokens <= _LETTERS[1]), (0, rest))
        scores = F.pad(q, (0, 0, 0, rest)).unflatten(0, (-1, _BLOCK)) @ windows(F.pad(k, (0, 0, 0, rest))).mT
        key_position = windows(position + 1)[:, None] - 1  # -1 before the first
        own_position = position.unflatten(0, (-1, _BLOCK))[..., None]
        is_own_row = windows(rows)[:, None] == rows.unflatten(0, (-1, _BLOCK))[..., None]
        is_seen = is_own_row & (key_position >= 0) & (key_position <= own_position)
        everything = scores.masked_fill(~is_seen, -1e9).logsumexp(-1).flatten()[:count]
        chosen = (q[batch.target_index] * k[batch.spoken_index.clamp(min=0)]).sum(-1)
        errors = everything[batch.target_index] - chosen
        with torch.no_grad():
            is_read = is_seen & windows(is_text)[:, None]
            weights = scores.masked_fill(~is_read, -1e9).softmax(-1)
            read = (weights * key_position).sum(-1).flatten()[:count]
            distances = (read[batch.target_index] - batch.spoken_index).abs()
    known = (batch.spoken_index >= 0).float()
    total = known.sum().clamp(min=1)
    return (known * errors).sum() / total, (known * distances).sum() / total
