"""What one head looks at in the text, read beside the backend, against attention written out in float64."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from realtime_tts.model.attention import AttentionMetadata, KVCache, PagedAttention, SDPABackend
from realtime_tts.model.text_head import AllHeadsProbe, HeadProbe, TextSpans, text_attention

HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE, NUM_BLOCKS = 6, 2, 8, 4, 64
LAYERS = 2


def reference(q: Tensor, k: Tensor, head: int, start: int, length: int) -> tuple[float, float, float]:
    """Return the last position's mean index in the text, its deviation, and the share of attention there. q [heads, d],
    k [context, kv_heads, d]."""
    scores = k[:, head * KV_HEADS // HEADS].double() @ q[head].double() / HEAD_DIM**0.5
    weights = scores.softmax(0)[start : start + length]
    index = torch.arange(length, dtype=torch.float64)
    mean = (weights * index).sum() / weights.sum()
    spread = ((weights * (index - mean) ** 2).sum() / weights.sum()).sqrt()
    return float(mean), float(spread), float(weights.sum())


class Batch:
    """Random sequences in blocks that lie anywhere, all but the new positions cached already.

    spans: (new positions, context length, first position of the text, its length) of each sequence.
    """

    def __init__(self, spans: list[tuple[int, int, int, int]], seed: int = 0, extra_columns: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.spans = spans
        self.q = [torch.randn(new, HEADS, HEAD_DIM, generator=generator) * 2 for new, *_ in spans]
        self.k = [torch.randn(context, KV_HEADS, HEAD_DIM, generator=generator) for _, context, *_ in spans]
        # What lies in other blocks, and behind a sequence's end in its last one, must not count, NaN neither.
        self.kv = KVCache(torch.full((LAYERS, 2, NUM_BLOCKS, BLOCK_SIZE, KV_HEADS, HEAD_DIM), 1e4))
        self.kv.pool[:, :, 0] = float("nan")
        order = (torch.randperm(NUM_BLOCKS - 1, generator=generator) + 1).tolist()
        tables = []
        for k, (new, context, *_) in zip(self.k, spans, strict=True):
            table = [order.pop() for _ in range(-(-context // BLOCK_SIZE))]
            for position in range(context - new):
                block, offset = table[position // BLOCK_SIZE], position % BLOCK_SIZE
                self.kv.pool[:, 0, block, offset] = k[position]
                self.kv.pool[:, 1, block, offset] = 0.0
            tables.append([*table, *[order[0]] * extra_columns])
        self.meta = AttentionMetadata.build([s[0] for s in spans], [s[1] for s in spans], tables, BLOCK_SIZE)

    def spoken(self, sequences: list[int]) -> TextSpans:
        starts, lens = ([self.spans[s][part] for s in sequences] for part in (2, 3))
        ends = list(itertools.accumulate(new for new, *_ in self.spans))
        return TextSpans(torch.tensor([ends[s] - 1 for s in sequences]), torch.tensor(starts), torch.tensor(lens))

    def attend(self, probe: HeadProbe | AllHeadsProbe, layers: int = LAYERS) -> None:
        k = torch.cat([k[len(k) - len(q) :] for q, k in zip(self.q, self.k, strict=True)])
        attend = PagedAttention(SDPABackend(), self.kv, self.meta, probe=probe)
        for layer in range(layers):
            # another q in the other layer: reading the wrong one would show
            attend(layer, torch.cat(self.q) * (1 if layer == 1 else -1), k, torch.zeros_like(k))

    def expected(self, sequence: int, head: int) -> tuple[float, float, float]:
        _, _, start, length = self.spans[sequence]
        return reference(self.q[sequence][-1], self.k[sequence], head, start, length)


RAGGED = [(9, 9, 1, 5), (4, 30, 11, 13), (1, 17, 0, 16), (1, 26, 20, 3), (1, 5, 2, 1), (1, 8, 4, 3)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("head", [0, 2, 5])
def test_the_reading_of_a_ragged_batch_is_the_heads_attention(head: int, seed: int) -> None:
    """Cold and continued prefills beside decodes; the streams in an order of their own, one of them not speaking."""
    batch = Batch(RAGGED, seed)
    order = [5, 0, 3, 1, 4]
    probe = HeadProbe(1, head, batch.spoken(order))
    batch.attend(probe)
    for (index, mass), sequence in zip(probe.readings.tolist(), order, strict=True):
        mean, _, share = batch.expected(sequence, head)
        assert index == pytest.approx(mean, abs=1e-4)
        assert mass == pytest.approx(share, abs=1e-5)


def test_a_stream_reads_the_same_alone_as_in_a_batch() -> None:
    batch = Batch(RAGGED)
    together = HeadProbe(1, 3, batch.spoken(list(range(len(RAGGED)))))
    batch.attend(together)
    for sequence in range(len(RAGGED)):
        alone = HeadProbe(1, 3, batch.spoken([sequence]))
        batch.attend(alone)
        torch.testing.assert_close(alone.readings[0], together.readings[sequence])


def test_wider_tables_change_nothing() -> None:
    """A captured graph has more columns than a context needs."""
    readings = []
    for extra_columns in (0, 5):
        batch = Batch(RAGGED, extra_columns=extra_columns)
        probe = HeadProbe(1, 1, batch.spoken([0, 1, 2]))
        batch.attend(probe)
        readings.append(probe.readings)
    torch.testing.assert_close(*readings)


def test_a_row_without_text_reads_no_number_and_leaves_the_others_alone() -> None:
    batch = Batch([*RAGGED, (1, 1, 0, 0)])
    probe = HeadProbe(1, 0, batch.spoken([6, 2]))
    batch.attend(probe)
    assert probe.readings[0, 0].isnan()
    assert probe.readings[1, 0] == pytest.approx(batch.expected(2, 0)[0], abs=1e-4)


def test_text_that_hardly_anything_looks_at_still_has_a_position() -> None:
    batch = Batch([(1, 12, 3, 6)])
    for position in (0, 1, 2):  # attention sinks: everything else is e⁻¹⁰⁰⁰ of it
        batch.kv.pool[1, 0, batch.meta.block_tables[0, 0], position] = 200 * batch.q[0][0, ::3]
    probe = HeadProbe(1, 0, batch.spoken([0]))
    batch.attend(probe)
    index, mass = probe.readings[0].tolist()
    assert index == pytest.approx(batch.expected(0, 0)[0], abs=1e-4)
    assert mass == 0.0


def test_half_precision_costs_no_words() -> None:
    batch = Batch(RAGGED)
    q, keys = torch.cat(batch.q).bfloat16(), batch.kv.layer(1)[0].nan_to_num(0.0).bfloat16()
    spoken = batch.spoken([2, 3])
    weights, *_ = text_attention(q, keys, batch.meta, spoken)
    exact, *_ = text_attention(q.float(), keys.float(), batch.meta, spoken)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights, exact)


def test_all_heads_are_read_as_each_alone() -> None:
    batch = Batch(RAGGED)
    spoken = batch.spoken([0, 1, 2])
    probe = AllHeadsProbe(spoken)
    batch.attend(probe)
    assert len(probe.readings) == LAYERS
    for sequence in range(3):
        for head in range(HEADS):
            mean, spread, mass = batch.expected(sequence, head)
            readings = probe.readings[1][sequence, head].tolist()
            assert readings[0] == pytest.approx(mean, abs=1e-4)
            assert readings[1] == pytest.approx(spread, abs=1e-3)
            assert readings[2] == pytest.approx(mass, abs=1e-5)


def test_only_its_own_layer_is_read() -> None:
    batch = Batch(RAGGED)
    probe = HeadProbe(1, 0, batch.spoken([0]))
    batch.attend(probe, layers=1)
    assert probe.readings.numel() == 0
