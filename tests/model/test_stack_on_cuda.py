"""Whole stacks in one kernel against plain modules in float64, on fresh random weights and inputs, many times over.

That many: a ring slot that is filled too early, or a counter that lets a block go on too soon, shows as other bits in
one run of dozens.
"""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import Tensor

from realtime_tts.model.attention import AttentionMetadata, FullAttention, KVCache, PagedAttention, SDPABackend
from realtime_tts.model.config import RopeConfig, TransformerConfig
from realtime_tts.model.flow_matching import FlowMatching
from realtime_tts.model.local_transformers import LocDiT
from realtime_tts.model.minicpm import MiniCPM

pytest.importorskip("triton", reason="needs triton")
if not torch.cuda.is_available():
    pytest.skip("needs CUDA", allow_module_level=True)

from realtime_tts.model.kernels.stack import FlowStack, LocalStack, PagedStack, what_is_missing

if torch.cuda.get_device_capability()[0] != 9:
    pytest.skip("needs a Hopper device", allow_module_level=True)
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda_context")]

NUM_RUNS = 60
ROPE = RopeConfig(10000.0, tuple(1.0 + 0.01 * index for index in range(64)), 1.0, 512)
SMALL = TransformerConfig(3, 1024, 1024, 8, 1, 128, 1e-5, 1.0, ROPE)
WIDE = TransformerConfig(2, 2048, 3072, 16, 2, 128, 1e-6, 0.7, ROPE)
VOXCPM2_LOCAL = TransformerConfig(12, 1024, 4096, 16, 2, 128, 1e-5, 1.0, ROPE)
VOXCPM2_LM = TransformerConfig(4, 2048, 6144, 16, 2, 128, 1e-5, 1.0, ROPE)


@pytest.fixture(autouse=True)
def inference():
    with torch.inference_mode():
        yield


def random_stack(config: TransformerConfig) -> MiniCPM:
    return drawn(MiniCPM(config))


def drawn(module: torch.nn.Module) -> torch.nn.Module:
    for name, value in module.named_parameters():
        if value.dim() == 1:
            value.copy_(0.2 * torch.randn_like(value) + (0.0 if "bias" in name else 1.0))
        else:
            value.copy_(torch.randn_like(value) * value.shape[-1] ** -0.5)
    return module.requires_grad_(False).cuda().bfloat16()


def exact(module: torch.nn.Module) -> torch.nn.Module:
    return copy.deepcopy(module).double()


def bound(num_layers: int) -> float:
    """Relative error of rounding to bfloat16 at every layer: 0.4 % each, which add up as if at random."""
    return 6e-3 * num_layers**0.5


def check(run, expected: Tensor, num_layers: int, seed: int) -> None:
    runs = [run().clone() for _ in range(NUM_RUNS)]
    assert runs[0].isfinite().all()
    error = (runs[0].double() - expected).norm() / expected.norm()
    assert error < bound(num_layers), f"{error:.2e}, seed {seed}"
    assert all(torch.equal(runs[0], other) for other in runs)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda").bfloat16()


@pytest.mark.parametrize(
    ("config", "length", "sequences"),
    [
        (SMALL, 5, 1), (SMALL, 7, 3), (SMALL, 16, 2), (SMALL, 11, 3),
        (VOXCPM2_LOCAL, 5, 1), (VOXCPM2_LOCAL, 5, 4), (VOXCPM2_LOCAL, 5, 8),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rotates", [True, False])
def test_sequences_that_see_themselves(config: TransformerConfig, length: int, sequences: int, rotates: bool) -> None:
    stack = random_stack(config if rotates else dataclasses.replace(config, rope=None))
    x = draw(sequences, length, config.hidden_size)
    rope = stack.first_rotary(length)
    kernel = LocalStack(stack, length)
    reference = exact(stack)
    expected = reference(x.double(), reference.first_rotary(length), FullAttention(causal=False))
    rows = x.flatten(0, 1)
    check(
        lambda: stack.norm(kernel.forward(rows, rope)), expected.flatten(0, 1), config.num_layers, torch.initial_seed()
    )
    assert torch.equal(rows, x.flatten(0, 1))


class Caches:
    """Sequences of these new and whole lengths over a cache of random pasts, in blocks that lie anywhere."""

    def __init__(self, config: TransformerConfig, spans: list[tuple[int, int]], first_layer: int) -> None:
        block_size = 16
        counts = [-(-whole // block_size) for _, whole in spans]
        order = torch.randperm(sum(counts) + 3).tolist()
        tables = [[order.pop() for _ in range(count)] for count in counts]
        meta = AttentionMetadata.build([n for n, _ in spans], [w for _, w in spans], tables, block_size, "cuda")
        slots = torch.randperm(len(spans) + 2)[: len(spans)].cuda()
        by_slot = torch.full((len(spans) + 2, meta.block_tables.shape[1] + 2), order[0], device="cuda")
        by_slot[slots, : meta.block_tables.shape[1]] = meta.block_tables
        self.plain = meta
        self.meta = dataclasses.replace(meta, sequences=slots[meta.sequences], block_tables=by_slot)
        shape = (first_layer + config.num_layers, 2, sum(counts) + 3, block_size, config.num_kv_heads, config.head_dim)
        self.pool = draw(*shape)

    def cache(self) -> KVCache:
        return KVCache(self.pool.clone())


@pytest.mark.parametrize(("config", "first_layer"), [(SMALL, 2), (WIDE, 0), (VOXCPM2_LM, 1)])
@pytest.mark.parametrize("rotates", [True, False])
@pytest.mark.parametrize(
    "spans",
    [[(1, 1)], [(1, 300)], [(1, 17), (1, 64), (1, 2)], [(3, 3), (2, 50), (1, 400), (1, 16)], [(8, 70)]],
)
def test_rows_over_paged_caches(
    config: TransformerConfig, first_layer: int, rotates: bool, spans: list[tuple[int, int]]
) -> None:
    """Decodes of all ages beside prefills; the cache holds what plain modules write to it."""
    stack = random_stack(config if rotates else dataclasses.replace(config, rope=None))
    caches, kernel, reference = Caches(config, spans, first_layer), PagedStack(stack), exact(stack)
    positions = caches.meta.positions
    x = draw(len(positions), config.hidden_size)
    exact_kv = KVCache(caches.pool.double())
    attend = PagedAttention(SDPABackend(), exact_kv, caches.plain, first_layer)
    expected = reference(x.double(), reference.rotary(positions), attend)
    rope, kv = stack.rotary(positions), caches.cache()
    queries = []

    def run() -> Tensor:
        kv.pool.copy_(caches.pool)
        h, probed = kernel.forward(x, rope, kv, first_layer, caches.meta, 1)
        queries.append(probed)
        return stack.norm(h)

    check(run, expected, config.num_layers, torch.initial_seed())
    assert (kv.pool.double() - exact_kv.pool).norm() / exact_kv.pool.norm() < bound(config.num_layers)
    written = (kv.pool != caches.pool).any(-1).any(-1).any(1).flatten(1)  # [layers, slots]
    assert not written[:first_layer].any()
    assert set(written[first_layer:].any(0).nonzero()[:, 0].tolist()) <= set(caches.meta.slot_mapping.tolist())
    assert all(torch.equal(queries[0], other) for other in queries)
    assert queries[0].isfinite().all()


def test_a_row_is_the_same_in_any_batch() -> None:
    stack = random_stack(WIDE)
    caches, kernel = Caches(WIDE, [(1, 9), (1, 200), (1, 33)], 0), PagedStack(stack)
    x, meta = draw(3, 2048), caches.meta
    together, _ = kernel.forward(x, stack.rotary(meta.positions), caches.cache(), 0, meta, None)
    for row in range(3):
        own = slice(row, row + 1)
        alone = dataclasses.replace(
            meta, positions=meta.positions[own], slot_mapping=meta.slot_mapping[own], sequences=meta.sequences[own]
        )
        result, _ = kernel.forward(x[own], stack.rotary(alone.positions), caches.cache(), 0, alone, None)
        assert torch.equal(result[0], together[row])


@pytest.mark.parametrize(
    ("config", "separate_time", "patch_size", "streams", "steps"),
    [(SMALL, True, 4, 1, 10), (SMALL, True, 4, 2, 4), (SMALL, False, 2, 1, 3), (VOXCPM2_LOCAL, True, 4, 1, 10),
     (VOXCPM2_LOCAL, True, 4, 2, 10)],
)  # fmt: skip
def test_the_flow_of_few_streams(
    config: TransformerConfig, separate_time: bool, patch_size: int, streams: int, steps: int
) -> None:
    dit = drawn(LocDiT(config, 64, separate_time=separate_time))
    dit.out_proj.weight.mul_(0.5)
    flow = FlowMatching(dit, mean_mode=False)
    num_mu = 2 if separate_time else 1
    kernel = FlowStack(dit, num_mu, patch_size)
    mu, prefix = draw(streams, num_mu, config.hidden_size), draw(streams, patch_size, 64)
    noise, cfg = torch.randn(streams, patch_size, 64, device="cuda"), 1 + 2 * torch.rand(streams, device="cuda")
    schedule = flow.schedule(steps)
    reference = exact(flow)
    exact_schedule = dataclasses.replace(schedule, embeddings=schedule.embeddings.double())
    expected = reference_flow(reference, mu.double(), prefix.double(), noise, exact_schedule, cfg)
    plain = flow(mu, prefix, noise, schedule, cfg)
    rope = dit.decoder.first_rotary(num_mu + separate_time + 2 * patch_size)

    runs = [kernel.solve(mu, dit.cond_proj(prefix), noise, schedule, cfg, rope).clone() for _ in range(NUM_RUNS)]
    error, usual = ((x.double() - expected).norm() / expected.norm() for x in (runs[0], plain))
    assert runs[0].isfinite().all()
    assert error < 1.3 * usual + 1e-3, f"{error:.2e}, plain modules {usual:.2e}, seed {torch.initial_seed()}"
    assert all(torch.equal(runs[0], other) for other in runs)
    if streams > 1:  # each is what it is alone
        for one in range(streams):
            own = slice(one, one + 1)
            alone = kernel.solve(mu[own], dit.cond_proj(prefix[own]), noise[own], schedule, cfg[own], rope)
            torch.testing.assert_close(alone[0], runs[0][one], atol=2e-2, rtol=2e-2)


def reference_flow(flow: FlowMatching, mu: Tensor, prefix: Tensor, noise: Tensor, schedule, cfg: Tensor) -> Tensor:
    """`FlowMatching.forward` rounds its state to float32, which is exact enough."""
    return flow(mu, prefix, noise, schedule, cfg).double()


def test_replays_of_a_graph_are_what_launches_are() -> None:
    stack = random_stack(SMALL)
    kernel, rope = LocalStack(stack, 5), stack.first_rotary(5)
    x = draw(10, 1024)
    expected = kernel.forward(x, rope).clone()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel.forward(x, rope)
        again = kernel.forward(out, rope)
    for _ in range(20):
        graph.replay()
    assert torch.equal(out, expected)
    assert torch.equal(again, kernel.forward(expected, rope))


def test_nan_in_a_sequence_ends_the_kernel_and_stays_there() -> None:
    """Blocks wait for results other than all bits set, and these are a NaN as well."""
    stack = random_stack(SMALL)
    kernel, rope = LocalStack(stack, 5), stack.first_rotary(5)
    x = draw(10, 1024)
    expected = kernel.forward(x, rope).clone()
    x[7] = torch.full_like(x[7].view(torch.int16), -1).view(torch.bfloat16)
    made = kernel.forward(x, rope)
    assert torch.equal(made[:5], expected[:5])
    assert made[5:].isnan().all()


def test_what_does_not_fit_is_told() -> None:
    assert what_is_missing(random_stack(SMALL)) is None
    assert "bfloat16" in (what_is_missing(random_stack(SMALL).float()) or "")
    assert "1024" in (what_is_missing(random_stack(dataclasses.replace(SMALL, intermediate_size=1280))) or "")
