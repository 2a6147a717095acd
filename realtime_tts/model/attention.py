"""Attention over a paged KV pool (serving) and over whole sequences (local stacks, training, tests).

Layers call an `Attend`: a function of the layer index and q, k, v. `PagedAttention` binds a backend, a cache and one
step's metadata; `FullAttention` needs neither. Metadata is an argument everywhere, never a global.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from realtime_tts.model.config import ModelConfig


class Attend(Protocol):
    """Maps q [..., heads, head_dim], k and v [..., kv_heads, head_dim] to [..., heads * head_dim]."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...


@dataclasses.dataclass(frozen=True, slots=True)
class FullAttention:
    """Attention within each whole sequence. q: [batch, length, heads, head_dim]."""

    causal: bool

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return full_attention(q, k, v, causal=self.causal)


def full_attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """Return attention: q [B, L, heads, head_dim], k and v [B, M, kv_heads, head_dim] → [B, L, heads * head_dim].

    L may be smaller than M only without `causal`.
    """
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=causal, enable_gqa=q.shape[2] != k.shape[2]
    )
    return out.transpose(1, 2).flatten(2)


@dataclasses.dataclass(frozen=True, slots=True)
class KVCache:
    """KV pool for both LMs, with one block table: base layers first, then residual layers.

    pool: [num_layers, 2, num_blocks, block_size, kv_heads, head_dim].
    """

    pool: Tensor

    @classmethod
    def allocate(
        cls, config: ModelConfig, num_blocks: int, block_size: int, device: torch.device | str, dtype: torch.dtype
    ) -> KVCache:
        shape = (config.num_kv_layers, 2, num_blocks, block_size, config.base.num_kv_heads, config.base.head_dim)
        # zeros, not empty: a masked NaN in unwritten memory would still poison a softmax-weighted sum
        return cls(torch.zeros(shape, device=device, dtype=dtype))

    @property
    def block_size(self) -> int:
        return self.pool.shape[3]

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of one layer, views of [num_blocks, block_size, kv_heads, head_dim]."""
        return self.pool[index, 0], self.pool[index, 1]


@dataclasses.dataclass(frozen=True, slots=True)
class AttentionMetadata:
    """Places of T new positions of several sequences in the pool. Multi-position sequences come first.

    positions, slot_mapping: [T] int64; a slot is block * block_size + offset. A padded row (for a captured batch size)
        points at a block that the caller reserves as scratch.
    sequences: [T] int64, the row of `block_tables` with each position's blocks.
    block_tables: [N, max_blocks] integers, padded with any valid block.
    prefill_lens: (query_len, context_len) of each sequence with several new positions, on the host.
    max_context_len: a host bound on the context of the other sequences.

    The last two are for backends whose work depends on lengths; a captured step does not set them.
    """

    positions: Tensor
    slot_mapping: Tensor
    sequences: Tensor
    block_tables: Tensor
    prefill_lens: tuple[tuple[int, int], ...] = ()
    max_context_len: int = 0

    @classmethod
    def build(
        cls,
        query_lens: Sequence[int],
        context_lens: Sequence[int],
        block_tables: Sequence[Sequence[int]],
        block_size: int,
        device: torch.device | str = "cpu",
    ) -> AttentionMetadata:
        """Return metadata from host integers. Raises ValueError if a multi-position sequence follows a single one."""
        positions: list[int] = []
        slots: list[int] = []
        sequences: list[int] = []
        for number, (query_len, context_len) in enumerate(zip(query_lens, context_lens, strict=True)):
            table, new = block_tables[number], range(context_len - query_len, context_len)
            positions += new
            slots += [table[p // block_size] * block_size + p % block_size for p in new]
            sequences += [number] * query_len
        width = max(len(table) for table in block_tables)
        padded = [[*table, *[table[0]] * (width - len(table))] for table in block_tables]

        def on_device(values: Sequence[object]) -> Tensor:
            return torch.from_numpy(np.asarray(values, dtype=np.int64)).to(device)

        lens = host_lens(query_lens, context_lens)
        return cls(on_device(positions), on_device(slots), on_device(sequences), on_device(padded), *lens)

    def last_rows(self, hidden: Tensor) -> Tensor:
        """Return each sequence's last position: [T, hidden] → [S, hidden]."""
        if not self.prefill_lens:
            return hidden
        last = list(itertools.accumulate((query_len for query_len, _ in self.prefill_lens), initial=-1))[1:]
        rows = torch.tensor([*last, *range(last[-1] + 1, hidden.shape[0])], device=hidden.device)
        return hidden.index_select(0, rows)


def host_lens(query_lens: Sequence[int], context_lens: Sequence[int]) -> tuple[tuple[tuple[int, int], ...], int]:
    """Return `prefill_lens` and `max_context_len`. Raises ValueError if a multi-position sequence follows a single."""
    multi = [n > 1 for n in query_lens]
    if multi != sorted(multi, reverse=True):
        raise ValueError("sequences with several new positions must come first")
    num_prefills = sum(multi)
    prefills = tuple(zip(query_lens[:num_prefills], context_lens[:num_prefills], strict=True))
    return prefills, max(context_lens[num_prefills:], default=0)


class AttentionBackend(Protocol):
    """Writes k and v of T new positions into the pool, then attends each position to its sequence so far.

    is_static: its work depends only on tensor shapes, not on the lengths they hold, so a graph can capture it.
    """

    name: str
    is_static: bool

    def forward(self, q: Tensor, k: Tensor, v: Tensor, kv: KVCache, layer: int, meta: AttentionMetadata) -> Tensor:
        """Return attention: q [T, heads, head_dim], k and v [T, kv_heads, head_dim] → [T, heads * head_dim]."""


class AttentionProbe(Protocol):
    """Observer of a stack's attention; it stores its results."""

    def observe(self, layer: int, q: Tensor, keys: Tensor, meta: AttentionMetadata) -> None:
        """Observe a layer of the stack: q [T, heads, head_dim] of the new positions; keys [num_blocks, block_size,
        kv_heads, head_dim], which include the new positions."""


@dataclasses.dataclass(frozen=True, slots=True)
class PagedAttention:
    """The `Attend` of one step; `first_layer` is where this stack's layers start in the pool.

    probe: called with each layer's q and keys, since the backend's kernels do not return attention weights.
    """

    backend: AttentionBackend
    kv: KVCache
    meta: AttentionMetadata
    first_layer: int = 0
    probe: AttentionProbe | None = None

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = self.backend.forward(q, k, v, self.kv, self.first_layer + layer, self.meta)
        if self.probe is not None:
            self.probe.observe(layer, q, self.kv.layer(self.first_layer + layer)[0], self.meta)
        return out


class SDPABackend:
    """Plain torch, on any device. Single-position sequences run as one batch, the others one by one."""

    name = "sdpa"
    is_static = False

    def forward(self, q: Tensor, k: Tensor, v: Tensor, kv: KVCache, layer: int, meta: AttentionMetadata) -> Tensor:
        keys, values = kv.layer(layer)
        keys.view(-1, *k.shape[1:]).index_copy_(0, meta.slot_mapping, k)
        values.view(-1, *v.shape[1:]).index_copy_(0, meta.slot_mapping, v)
        outputs = []
        start = 0
        for query_len, context_len in meta.prefill_lens:
            rows = slice(start, start + query_len)
            if context_len == query_len:
                out = full_attention(q[None, rows], k[None, rows], v[None, rows], causal=True)[0]
            else:
                table = meta.block_tables.index_select(0, meta.sequences[start : start + 1])[0]
                out = _prefill(q[rows], keys, values, table, context_len)
            outputs.append(out)
            start += query_len
        if start < q.shape[0]:
            outputs.append(_decode(q[start:], keys, values, meta, start))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _prefill(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, context_len: int) -> Tensor:
    """Return attention of one sequence whose first positions are already cached. q: [query_len, heads, head_dim]."""
    num_blocks = -(-context_len // keys.shape[1])
    k = keys.index_select(0, table[:num_blocks]).flatten(0, 1)[:context_len]
    v = values.index_select(0, table[:num_blocks]).flatten(0, 1)[:context_len]
    positions = torch.arange(context_len, device=q.device)
    mask = positions <= positions[context_len - q.shape[0] :, None]
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        k.transpose(0, 1)[None],
        v.transpose(0, 1)[None],
        attn_mask=mask,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out[0].transpose(0, 1).flatten(1)


def _decode(q: Tensor, keys: Tensor, values: Tensor, meta: AttentionMetadata, first: int) -> Tensor:
    """Return attention of one new position in each sequence, from row `first` on. q: [S, heads, head_dim].

    The heads that share a KV head become the query dimension, so that keys and values need not be repeated.
    """
    num_seqs, num_heads, head_dim = q.shape
    block_size, num_kv_heads = keys.shape[1:3]
    num_blocks = -(-meta.max_context_len // block_size)
    tables = meta.block_tables.index_select(0, meta.sequences[first:])[:, :num_blocks].reshape(-1)
    shape = (num_seqs, num_blocks * block_size, num_kv_heads, head_dim)
    k = keys.index_select(0, tables).view(shape).transpose(1, 2)
    v = values.index_select(0, tables).view(shape).transpose(1, 2)
    position = torch.arange(shape[1], device=q.device)
    mask = (position <= meta.positions[first:, None])[:, None, None]
    out = F.scaled_dot_product_attention(q.view(num_seqs, num_kv_heads, -1, head_dim), k, v, attn_mask=mask)
    return out.reshape(num_seqs, num_heads * head_dim)
