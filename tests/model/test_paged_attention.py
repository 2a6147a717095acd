from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from realtime_tts.model.attention import AttentionMetadata, FullAttention, KVCache, SDPABackend

HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 6, 2, 8, 4


def naive_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Last q.shape[0] positions of one causal sequence, head by head. q [L, heads, d], k and v [M, kv_heads, d]."""
    rows = []
    for i in range(q.shape[0]):
        visible = k.shape[0] - q.shape[0] + i + 1
        for head in range(HEADS):
            kv_head = head * KV_HEADS // HEADS
            weights = (k[:visible, kv_head] @ q[i, head] / HEAD_DIM**0.5).softmax(0)
            rows.append(weights @ v[:visible, kv_head])
    return torch.stack(rows).view(q.shape[0], -1)


class Sequences:
    """Random q, k, v of whole sequences and the pool they are written to, block by block."""

    def __init__(self, lengths: list[int]) -> None:
        generator = torch.Generator().manual_seed(0)
        shapes = [(HEADS, HEAD_DIM), (KV_HEADS, HEAD_DIM), (KV_HEADS, HEAD_DIM)]
        self.qkv = [[torch.randn(n, *shape, generator=generator) for shape in shapes] for n in lengths]
        # Large stale values everywhere: reading beyond a context would show.
        self.kv = KVCache(torch.full((2, 2, 64, BLOCK_SIZE, KV_HEADS, HEAD_DIM), 1e4))
        order = torch.randperm(64, generator=generator).tolist()
        self.tables = [order[8 * i : 8 * i + 8] for i in range(len(lengths))]

    def forward(self, spans: list[tuple[int, int, int]]) -> list[Tensor]:
        """(sequence, from, to) of each → the backend's outputs of these positions."""
        q, k, v = (torch.cat([self.qkv[s][i][a:b] for s, a, b in spans]) for i in range(3))
        lens = [b - a for _, a, b in spans]
        meta = AttentionMetadata.build(lens, [b for *_, b in spans], [self.tables[s] for s, *_ in spans], BLOCK_SIZE)
        return list(SDPABackend().forward(q, k, v, self.kv, 1, meta).split(lens))

    def expected(self, sequence: int, first: int, last: int) -> Tensor:
        q, k, v = self.qkv[sequence]
        return naive_attention(q[first:last], k[:last], v[:last])


def test_prefill_then_decode_then_a_mixed_batch_match_naive_attention():
    sequences = Sequences([11, 9, 17, 6])
    for spans in (
        [(0, 0, 9), (1, 0, 4)],  # two cold prefills
        [(0, 9, 10), (1, 4, 5)],  # two decodes
        [(2, 0, 13), (0, 10, 11), (1, 5, 6)],  # a prefill beside decodes of other ages
        [(2, 13, 17), (1, 6, 9), (3, 0, 1)],  # continued prefills, and a cold sequence of one position
    ):
        for span, output in zip(spans, sequences.forward(spans), strict=True):
            torch.testing.assert_close(output, sequences.expected(*span), atol=1e-5, rtol=1e-5)


def test_other_layers_of_the_pool_are_left_alone():
    sequences = Sequences([5])
    before = sequences.kv.pool[0].clone()
    sequences.forward([(0, 0, 5)])
    assert torch.equal(sequences.kv.pool[0], before)


def test_a_wider_static_context_bound_changes_nothing():
    """The longest of a batch decides for all; what lies behind a shorter one must not count."""
    sequences = Sequences([9, 5])
    sequences.forward([(0, 0, 8), (1, 0, 4)])
    q, k, v = (torch.cat([sequences.qkv[s][i][n : n + 1] for s, n in ((0, 8), (1, 4))]) for i in range(3))
    meta = AttentionMetadata.build([1, 1], [9, 5], sequences.tables, BLOCK_SIZE)
    wide = dataclasses.replace(meta, max_context_len=8 * BLOCK_SIZE)
    outputs = SDPABackend().forward(q, k, v, sequences.kv, 1, wide)
    expected = torch.cat([sequences.expected(0, 8, 9), sequences.expected(1, 4, 5)])
    torch.testing.assert_close(outputs, expected, atol=1e-5, rtol=1e-5)


def test_full_attention_matches_naive_attention():
    q, k, v = Sequences([7]).qkv[0]
    causal = FullAttention(causal=True)(0, q[None], k[None], v[None])[0]
    torch.testing.assert_close(causal, naive_attention(q, k, v), atol=1e-5, rtol=1e-5)
    bidirectional = FullAttention(causal=False)(0, q[None], k[None], v[None])[0]
    torch.testing.assert_close(bidirectional[-1], causal[-1], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(bidirectional[0], causal[0])


def test_metadata_from_host_integers():
    meta = AttentionMetadata.build([3, 1], [5, 7], [[9, 2], [4, 8]], BLOCK_SIZE)
    assert meta.positions.tolist() == [2, 3, 4, 6]
    assert meta.slot_mapping.tolist() == [38, 39, 8, 34]
    assert meta.sequences.tolist() == [0, 0, 0, 1]
    assert meta.last_rows(torch.arange(4.0)[:, None]).flatten().tolist() == [2, 3]
    assert meta.prefill_lens == ((3, 5),)
    assert meta.max_context_len == 7


def test_metadata_pads_short_tables_with_a_valid_block():
    assert AttentionMetadata.build([1, 1], [1, 5], [[3], [1, 2]], BLOCK_SIZE).block_tables.tolist() == [[3, 3], [1, 2]]


def test_metadata_insists_on_its_order():
    with pytest.raises(ValueError, match="first"):
        AttentionMetadata.build([1, 2], [1, 2], [[0], [1]], BLOCK_SIZE)


def test_sequences_may_lie_anywhere_in_the_tables():
    """As in serving, where there is a table for every slot: only `sequences` tells whose row is whose."""
    sequences = Sequences([9, 5])
    sequences.forward([(0, 0, 6), (1, 0, 4)])
    q, k, v = (torch.cat([sequences.qkv[0][i][6:9], sequences.qkv[1][i][4:5]]) for i in range(3))
    meta = AttentionMetadata.build([3, 1], [9, 5], sequences.tables, BLOCK_SIZE)
    unused = torch.full((1, 8), 63)
    apart = dataclasses.replace(
        meta,
        sequences=torch.tensor([3, 3, 3, 1]),
        block_tables=torch.cat((unused, meta.block_tables[1:], unused, meta.block_tables[:1])),
    )
    outputs = SDPABackend().forward(q, k, v, sequences.kv, 1, apart)
    expected = torch.cat([sequences.expected(0, 6, 9), sequences.expected(1, 4, 5)])
    torch.testing.assert_close(outputs, expected, atol=1e-5, rtol=1e-5)
