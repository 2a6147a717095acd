"""Attention from packed projections: [rows, (heads + 2 * kv_heads) * head_dim], queries first, then keys, values.

Rotation is applied where a query or key is read. The heads that share a KV head are one tile. Sums run in an order of
their own row: what else is in the batch changes no bit.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from realtime_tts.model.attention import AttentionMetadata, KVCache
from realtime_tts.model.text_head import HeadProbe

MAX_LOCAL_LENGTH = 16
_MANY, _MEMBERS = 32, 4
_MIN_TILE = 16  # minimum rows of a matrix product


@triton.jit
def _rotated(values, cos, sin, first, second, dim: tl.constexpr, mask):
    """Return the values at `values + first`, rotated. `second`: offsets of their partners, half a head away."""
    x = tl.load(values + first, mask=mask, other=0.0).to(tl.float32)
    partner = tl.load(values + second, mask=mask, other=0.0).to(tl.float32)
    return x * tl.load(cos + dim, mask=mask, other=0.0) + partner * tl.load(sin + dim, mask=mask, other=0.0)


@triton.jit
def _local(
    qkv, cos, sin, out, length, first_query, width, kv_offset, value_offset, heads,
    half: tl.constexpr, group: tl.constexpr, members: tl.constexpr, rotates: tl.constexpr, precision: tl.constexpr,
    scale,
):  # fmt: skip
    """Attention of `members` heads that share a KV head, in one sequence: at most sixteen rows of each. Heads are read
    in halves, so that rotation needs no exchange."""
    sequence, first_head = tl.program_id(0).to(tl.int64), tl.program_id(1) * members
    place = tl.arange(0, 16 * members)[:, None]
    row, head = place % 16, first_head + place // 16
    key_row = tl.arange(0, 16)[:, None]
    dim = tl.arange(0, half)[None, :]
    inside, is_key = row < length, key_row < length
    base = qkv + sequence * length * width + dim
    query = base + row * width + head * 2 * half
    key = base + key_row * width + kv_offset + first_head // group * 2 * half
    value = key + value_offset
    q1 = tl.load(query, mask=inside, other=0.0)
    q2 = tl.load(query + half, mask=inside, other=0.0)
    k1 = tl.load(key, mask=is_key, other=0.0)
    k2 = tl.load(key + half, mask=is_key, other=0.0)
    v1 = tl.load(value, mask=is_key, other=0.0)
    v2 = tl.load(value + half, mask=is_key, other=0.0)
    if rotates:
        table, key_table = row * 2 * half + dim, key_row * 2 * half + dim
        c, s = tl.load(cos + table, mask=inside, other=0.0), tl.load(sin + table + half, mask=inside, other=0.0)
        qa, qb = q1.to(tl.float32), q2.to(tl.float32)
        q1, q2 = (qa * c - qb * s).to(v1.dtype), (qb * c + qa * s).to(v1.dtype)
        c, s = tl.load(cos + key_table, mask=is_key, other=0.0), tl.load(sin + key_table + half, mask=is_key, other=0.0)
        ka, kb = k1.to(tl.float32), k2.to(tl.float32)
        k1, k2 = (ka * c - kb * s).to(v1.dtype), (kb * c + ka * s).to(v1.dtype)
    scores = tl.dot(q1, tl.trans(k1), input_precision=precision)
    scores = tl.dot(q2, tl.trans(k2), scores, input_precision=precision) * scale
    scores = tl.where((tl.arange(0, 16) < length)[None, :], scores, -1e30)
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    weights = (weights / tl.sum(weights, 1)[:, None]).to(v1.dtype)
    wanted = inside & (row >= first_query)
    target = out + ((sequence * (length - first_query) + row - first_query) * heads + head) * 2 * half + dim
    tl.store(target, tl.dot(weights, v1, input_precision=precision).to(out.dtype.element_ty), mask=wanted)
    tl.store(target + half, tl.dot(weights, v2, input_precision=precision).to(out.dtype.element_ty), mask=wanted)


def local_attention(
    qkv: Tensor, rope: tuple[Tensor, Tensor] | None, length: int, num_queries: int, heads: int, kv_heads: int
) -> Tensor:
    """Return attention within whole short sequences, each position to all of its own.

    qkv [N * length, width]; rope: cosine and signed sine [length, 1, head_dim] float32 → each sequence's last
    `num_queries` positions, [N * num_queries, heads * head_dim].
    """
    width = qkv.shape[1]
    head_dim = width // (heads + 2 * kv_heads)
    num_sequences, group = qkv.shape[0] // length, heads // kv_heads
    out = torch.empty(num_sequences * num_queries, heads * head_dim, device=qkv.device, dtype=qkv.dtype)
    cos, sin = rope if rope is not None else (qkv, qkv)
    # Few sequences: many small programs, for latency. Many: several heads share each read of a key.
    members = 1 if num_sequences < _MANY or group % _MEMBERS else _MEMBERS
    _local[(num_sequences, heads // members)](
        qkv, cos, sin, out, length, length - num_queries, width, heads * head_dim, kv_heads * head_dim, heads,
        head_dim // 2, group, members, rope is not None, _precision(qkv), head_dim**-0.5, num_warps=members,
    )  # fmt: skip
    return out


@triton.jit
def _store(
    qkv, cos, sin, slots, keys, values,
    heads: tl.constexpr, kv_heads: tl.constexpr, head_dim: tl.constexpr, rotates: tl.constexpr,
):  # fmt: skip
    row, kv_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    width: tl.constexpr = (heads + 2 * kv_heads) * head_dim
    dim = tl.arange(0, head_dim)
    source = qkv + row * width + (heads + kv_head) * head_dim
    if rotates:
        table = row * head_dim
        k = _rotated(source, cos + table, sin + table, dim, (dim + head_dim // 2) % head_dim, dim, dim < head_dim)
    else:
        k = tl.load(source + dim).to(tl.float32)
    place = (tl.load(slots + row) * kv_heads + kv_head) * head_dim + dim
    tl.store(keys + place, k.to(keys.dtype.element_ty))
    tl.store(values + place, tl.load(source + kv_heads * head_dim + dim))


@triton.jit
def _paged(
    qkv, cos, sin, keys, values, tables, sequences, positions, out, table_width,
    heads: tl.constexpr, kv_heads: tl.constexpr, head_dim: tl.constexpr, group: tl.constexpr, group_tile: tl.constexpr,
    block_size: tl.constexpr, tile: tl.constexpr, rotates: tl.constexpr, precision: tl.constexpr, scale,
):  # fmt: skip
    row, kv_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    width: tl.constexpr = (heads + 2 * kv_heads) * head_dim
    member, dim = tl.arange(0, group_tile)[:, None], tl.arange(0, head_dim)[None, :]
    is_head = member < group
    source = qkv + row * width + (kv_head * group + member) * head_dim
    if rotates:
        table = row * head_dim
        q = _rotated(source, cos + table, sin + table, dim, (dim + head_dim // 2) % head_dim, dim, is_head)
    else:
        q = tl.load(source + dim, mask=is_head, other=0.0).to(tl.float32)
    q = q.to(keys.dtype.element_ty)
    end = tl.load(positions + row) + 1
    blocks = tables + tl.load(sequences + row) * table_width
    best = tl.full([group_tile], -1e30, tl.float32)
    total = tl.zeros([group_tile], tl.float32)
    result = tl.zeros([group_tile, head_dim], tl.float32)
    for start in range(0, end, tile):
        position = start + tl.arange(0, tile)
        inside = position < end
        block = tl.load(blocks + position // block_size, mask=inside, other=0)
        place = ((block * block_size + position % block_size) * kv_heads + kv_head)[:, None] * head_dim + dim
        k = tl.load(keys + place, mask=inside[:, None], other=0.0)
        v = tl.load(values + place, mask=inside[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision=precision) * scale
        scores = tl.where(inside[None, :], scores, -1e30)
        peak = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp(scores - peak[:, None])
        fade = tl.exp(best - peak)
        total = total * fade + tl.sum(weights, 1)
        result = result * fade[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=precision)
        best = peak
    place = (row * heads + kv_head * group + member) * head_dim + dim
    tl.store(out + place, (result / total[:, None]).to(out.dtype.element_ty), mask=is_head)


def paged_attention(
    qkv: Tensor, rope: tuple[Tensor, Tensor] | None, kv: KVCache, layer: int, meta: AttentionMetadata, heads: int
) -> Tensor:
    """Write keys and values, then return attention of each new position to its sequence so far, itself included.

    qkv [T, width], not rotated; rope: cosine and signed sine [T, 1, head_dim] float32 → [T, heads * head_dim].
    """
    keys, values = kv.layer(layer)
    block_size, kv_heads, head_dim = keys.shape[1:]
    num_rows, group = qkv.shape[0], heads // kv_heads
    cos, sin = rope if rope is not None else (qkv, qkv)
    rotates = rope is not None
    _store[(num_rows, kv_heads)](
        qkv, cos, sin, meta.slot_mapping, keys, values, heads, kv_heads, head_dim, rotates, num_warps=1
    )
    out = torch.empty(num_rows, heads * head_dim, device=qkv.device, dtype=qkv.dtype)
    group_tile = max(_MIN_TILE, triton.next_power_of_2(group))
    tile = 32 if qkv.dtype == torch.float32 else 64
    _paged[(num_rows, kv_heads)](
        qkv, cos, sin, keys, values, meta.block_tables, meta.sequences, meta.positions, out,
        meta.block_tables.stride(0), heads, kv_heads, head_dim, group, group_tile, block_size, tile, rotates,
        _precision(qkv), head_dim**-0.5, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def _head_reading(
    qkv, cos, sin, keys, tables, sequences, positions, rows, starts, lens, out, table_width, head, kv_head,
    width: tl.constexpr, kv_heads: tl.constexpr, head_dim: tl.constexpr, block_size: tl.constexpr, tile: tl.constexpr,
    rotates: tl.constexpr, scale,
):  # fmt: skip
    stream = tl.program_id(0)
    row = tl.load(rows + stream).to(tl.int64)
    first, length = tl.load(starts + stream), tl.load(lens + stream)
    end = tl.where(length > 0, tl.load(positions + row) + 1, 0)  # a padded row reads nothing
    dim = tl.arange(0, head_dim)
    source = qkv + row * width + head * head_dim
    if rotates:
        table = row * head_dim
        q = _rotated(source, cos + table, sin + table, dim, (dim + head_dim // 2) % head_dim, dim, dim < head_dim)
    else:
        q = tl.load(source + dim).to(tl.float32)
    q = q.to(keys.dtype.element_ty).to(tl.float32)[None, :]
    blocks = tables + tl.load(sequences + row) * table_width
    # Two softmaxes: over everything, and over the text alone, which gives a place even with almost no mass on the text.
    none, nothing = tl.full([], -1e30, tl.float32), tl.full([], 0.0, tl.float32)
    best, best_text, total, on_text, text, index = none, none, nothing, nothing, nothing, nothing
    for start in range(0, end, tile):
        position = start + tl.arange(0, tile)
        inside = position < end
        block = tl.load(blocks + position // block_size, mask=inside, other=0)
        place = ((block * block_size + position % block_size) * kv_heads + kv_head)[:, None] * head_dim + dim[None, :]
        k = tl.load(keys + place, mask=inside[:, None], other=0.0).to(tl.float32)
        scores = tl.where(inside, tl.sum(q * k, 1) * scale, -1e30)
        is_text = inside & (position >= first) & (position < first + length)
        text_scores = tl.where(is_text, scores, -1e30)
        peak = tl.maximum(best, tl.max(scores, 0))
        weights, fade = tl.where(inside, tl.exp(scores - peak), 0.0), tl.exp(best - peak)
        total = total * fade + tl.sum(weights, 0)
        on_text = on_text * fade + tl.sum(tl.where(is_text, weights, 0.0), 0)
        text_peak = tl.maximum(best_text, tl.max(text_scores, 0))
        weights, fade = tl.where(is_text, tl.exp(text_scores - text_peak), 0.0), tl.exp(best_text - text_peak)
        text = text * fade + tl.sum(weights, 0)
        index = index * fade + tl.sum(weights * (position - first).to(tl.float32), 0)
        best, best_text = peak, text_peak
    tl.store(out + 2 * stream, index / text)
    tl.store(out + 2 * stream + 1, on_text / total)


def head_reading(
    qkv: Tensor, rope: tuple[Tensor, Tensor] | None, keys: Tensor, meta: AttentionMetadata, heads: int, probe: HeadProbe
) -> Tensor:
    """Return the reading of a probe's head, [S, 2] float32, after `paged_attention` has written the layer's keys.

    qkv [T, heads and more * head_dim]; rope: None if they are rotated already.
    """
    block_size, kv_heads, head_dim = keys.shape[1:]
    head, spoken = probe.head, probe.spoken
    num_streams = spoken.rows.shape[0]
    out = torch.empty(num_streams, 2, device=qkv.device)
    cos, sin = rope if rope is not None else (qkv, qkv)
    _head_reading[(num_streams,)](
        qkv, cos, sin, keys, meta.block_tables, meta.sequences, meta.positions, spoken.rows, spoken.starts, spoken.lens,
        out, meta.block_tables.stride(0), head, head * kv_heads // heads, qkv.shape[1], kv_heads, head_dim, block_size,
        32, rope is not None, head_dim**-0.5, num_warps=4,
    )  # fmt: skip
    return out


def _precision(x: Tensor) -> str:
    """Return the precision of matrix products: float32 stays float32."""
    return "ieee" if x.dtype == torch.float32 else "tf32"
