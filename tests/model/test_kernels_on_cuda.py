"""Each kernel against plain torch in float64, on fresh random inputs of odd shapes, twice for the same bits."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from realtime_tts.engine.runtime import noise
from realtime_tts.model.attention import AttentionMetadata, KVCache
from realtime_tts.model.audio_vae import AudioVAE
from realtime_tts.model.config import AudioVAEConfig, RopeConfig, TransformerConfig
from realtime_tts.model.flow_matching import FlowMatching
from realtime_tts.model.local_transformers import LocDiT
from realtime_tts.model.text_head import HeadProbe, TextSpans, text_attention

pytest.importorskip("triton", reason="needs triton")
if not torch.cuda.is_available():
    pytest.skip("needs CUDA", allow_module_level=True)

from realtime_tts.model.fused import FusedFlow, FusedStack
from realtime_tts.model.fused_vae import FusedDecoder
from realtime_tts.model.kernels.attention import head_reading, local_attention, paged_attention
from realtime_tts.model.kernels.flow import euler_step, flow_tokens
from realtime_tts.model.kernels.gated import GatedProduct, has_gated_product
from realtime_tts.model.kernels.noise import patch_noise
from realtime_tts.model.kernels.patch_attention import PatchAttention
from realtime_tts.model.kernels.products import Product, choosing
from realtime_tts.model.kernels.rows import rms_norm, swiglu
from realtime_tts.model.kernels.stack import missing_on

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda_context")]

# Once here: what it compiles with keeps files open from its first use on.
with warnings.catch_warnings():  # of what it imports
    warnings.simplefilter("ignore")
    HAS_GATED = has_gated_product(torch.empty(512, 128, dtype=torch.bfloat16, device="cuda"))
needs_hopper = pytest.mark.skipif(missing_on(torch.device("cuda")) is not None, reason="needs a Hopper GPU")
DTYPES = [torch.float32, torch.bfloat16]
# What rounding alone may make of a result, relative, per dtype.
BOUND = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 1.5e-3}


@pytest.fixture(autouse=True)
def inference():
    with torch.inference_mode():
        yield


def draw(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
    """Fresh values in every run; a failure says which."""
    return (torch.randn(*shape, device="cuda") * scale).to(dtype)


def check(run: Callable[[], Tensor], expected: Tensor, dtype: torch.dtype) -> None:
    first, again = run().clone(), run()
    assert torch.equal(first, again)
    assert first.isfinite().all()
    error = (first.double() - expected).norm() / expected.norm()
    assert error < BOUND[dtype], f"{error:.2e}, seed {torch.initial_seed()}"


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [..., head_dim] float64; cos and signed sin [..., head_dim]."""
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin


def rope_of(positions: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    half = torch.arange(head_dim // 2, device="cuda") / (head_dim // 2)
    angles = positions[:, None].float() * 100.0**-half
    cos, sin = angles.cos().repeat(1, 2), torch.cat((-angles.sin(), angles.sin()), dim=1)
    return cos[:, None].contiguous(), sin[:, None].contiguous()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size"), [(1, 64), (7, 320), (301, 1024), (13, 2048)])
def test_rms_norm(rows: int, size: int, dtype: torch.dtype) -> None:
    x, weight = draw(rows, size, dtype=dtype, scale=3.0), draw(size, dtype=dtype)
    exact = x.double()
    expected = exact * (exact.square().mean(1, keepdim=True) + 1e-5).rsqrt() * weight.double()
    check(lambda: rms_norm(x, weight, 1e-5), expected, dtype)
    some = torch.arange(3 * rows, device="cuda").view(rows, 3)[:, 1:].flatten()  # of each three the last two
    x = draw(3 * rows, size, dtype=dtype, scale=3.0)
    exact = x.double()[some]
    expected = exact * (exact.square().mean(1, keepdim=True) + 1e-5).rsqrt() * weight.double()
    check(lambda: rms_norm(x, weight, 1e-5, 3, 2), expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size"), [(1, 80), (22, 4096), (301, 640)])
def test_swiglu(rows: int, size: int, dtype: torch.dtype) -> None:
    x = draw(rows, 2 * size, dtype=dtype, scale=4.0)
    gate, up = x.double().chunk(2, dim=1)
    check(lambda: swiglu(x), F.silu(gate) * up, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize(
    ("rows", "depth", "size"), [(1, 320, 640), (8, 2048, 2560), (176, 4096, 1024), (1409, 64, 48), (5, 70, 30)]
)
def test_products(rows: int, depth: int, size: int, timed: bool, dtype: torch.dtype) -> None:
    x, onto = draw(rows, depth, dtype=dtype), draw(rows, size, dtype=dtype)
    weights = [draw(size, depth, dtype=dtype, scale=depth**-0.5) for _ in range(3)]
    product, before = Product(weights), onto.clone()
    with choosing() if timed else contextlib.nullcontext():
        product(x, 0)
        product(x, 0, onto)
    expected = x.double() @ weights[2].double().t()
    check(lambda: product(x, 2), expected, dtype)
    check(lambda: product(x, 2, onto, 0.3), onto.double() + 0.3 * expected, dtype)
    assert torch.equal(onto, before)


@pytest.mark.skipif(not HAS_GATED, reason="needs quack-kernels and a Hopper GPU")
@pytest.mark.parametrize(
    ("rows", "hidden", "size"), [(513, 1024, 4096), (704, 1024, 4096), (1409, 320, 640), (2817, 1024, 4096)]
)
def test_the_gated_product(rows: int, hidden: int, size: int) -> None:
    dtype = torch.bfloat16
    x, weight = draw(rows, hidden, dtype=dtype), draw(2 * size, hidden, dtype=dtype, scale=hidden**-0.5)
    gate, up = (x.double() @ weight.double().t()).chunk(2, dim=1)
    check(lambda: GatedProduct(weight)(x), F.silu(gate) * up, dtype)


def local_expected(
    qkv: Tensor, rope: tuple[Tensor, Tensor] | None, length: int, queries: int, heads: int, kv_heads: int
) -> Tensor:
    """Attention of each sequence's last positions, in float64."""
    split = qkv.double().view(-1, length, heads + 2 * kv_heads, qkv.shape[1] // (heads + 2 * kv_heads)).transpose(1, 2)
    qk, v = split.split((heads + kv_heads, kv_heads), dim=1)
    if rope is not None:
        qk = rotated(qk, rope[0][:, 0].double(), rope[1][:, 0].double())
    q, k = qk.split((heads, kv_heads), dim=1)
    k, v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
    weights = (q[:, :, -queries:] @ k.transpose(2, 3) / math.sqrt(q.shape[-1])).softmax(-1)
    return (weights @ v).transpose(1, 2).reshape(split.shape[0] * queries, -1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rotates", [True, False])
@pytest.mark.parametrize(
    ("sequences", "length", "queries", "heads", "kv_heads", "head_dim"),
    [(1, 11, 11, 16, 2, 128), (3, 11, 4, 16, 2, 128), (5, 5, 5, 6, 2, 64), (2, 9, 4, 4, 4, 32), (130, 16, 2, 8, 1, 32)],
)
def test_local_attention(
    sequences: int,
    length: int,
    queries: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    rotates: bool,
    dtype: torch.dtype,
) -> None:
    qkv = draw(sequences * length, (heads + 2 * kv_heads) * head_dim, dtype=dtype)
    rope = rope_of(torch.arange(length, device="cuda"), head_dim) if rotates else None
    expected = local_expected(qkv, rope, length, queries, heads, kv_heads)
    check(lambda: local_attention(qkv, rope, length, queries, heads, kv_heads), expected, dtype)


@needs_hopper
@pytest.mark.parametrize("rotates", [True, False])
@pytest.mark.parametrize("sequences", [1, 3, 257])
@pytest.mark.parametrize(
    ("length", "queries", "heads", "kv_heads"),
    [(11, 11, 16, 2), (11, 4, 16, 2), (5, 5, 6, 2), (16, 1, 3, 3), (16, 16, 18, 1)],
)
def test_patch_attention(sequences: int, length: int, queries: int, heads: int, kv_heads: int, rotates: bool) -> None:
    attention = PatchAttention(length, heads, kv_heads, torch.device("cuda"))
    qkv = draw(sequences * length, (heads + 2 * kv_heads) * 128, dtype=torch.bfloat16)
    rope = rope_of(torch.arange(length, device="cuda"), 128) if rotates else None
    expected = local_expected(qkv, rope, length, queries, heads, kv_heads)
    check(lambda: attention(qkv, rope, queries), expected, torch.bfloat16)


@needs_hopper
@pytest.mark.parametrize(("streams", "conditions", "patch"), [(1, 2, 4), (67, 2, 4), (130, 1, 3)])
def test_patch_attention_to_shared_rows(streams: int, conditions: int, patch: int) -> None:
    heads, kv_heads, length, dtype = 16, 2, conditions + 1 + 2 * patch, torch.bfloat16
    attention = PatchAttention(length, heads, kv_heads, torch.device("cuda"))
    width = (heads + 2 * kv_heads) * 128
    kept, fresh = draw(streams, conditions + patch, width, dtype=dtype), draw(streams, patch, width, dtype=dtype)
    time, zeros = draw(width, dtype=dtype), torch.zeros(width, device="cuda", dtype=dtype)
    shared = kept.view(-1, width), time, zeros, fresh.view(-1, width)
    rope = rope_of(torch.arange(length, device="cuda"), 128)
    given = torch.cat((kept[:, :conditions], time.expand(streams, 1, -1), kept[:, conditions:], fresh), dim=1)
    left_out = given.clone()
    left_out[:, :conditions] = 0
    whole = torch.cat((given, left_out)).view(-1, width)
    expected = local_expected(whole, rope, length, length, heads, kv_heads)
    check(lambda: attention.shared(*shared, rope), expected, dtype)


@needs_hopper
@pytest.mark.parametrize("streams", [71, 20])
def test_a_flow_of_many_streams(streams: int) -> None:
    """What is projected once in its first layer, against plain modules in float64."""
    config = TransformerConfig(3, 256, 512, 4, 2, 128, 1e-5, 0.8, RopeConfig(10000.0, (1.0,) * 64, 1.0, 64))
    dit = LocDiT(config, 32, separate_time=True).cuda().bfloat16().requires_grad_(False)
    for layer in dit.decoder.layers:
        layer.input_layernorm.weight.copy_(0.5 + torch.rand(256))
    flow = FlowMatching(dit, mean_mode=False)
    exact = copy.deepcopy(flow).double()
    mu, prefix = draw(streams, 2, 256, dtype=torch.bfloat16), draw(streams, 4, 32)
    noise, cfg = draw(streams, 4, 32), 1 + 2 * torch.rand(streams, device="cuda")
    patches = PatchAttention(11, 4, 2, torch.device("cuda"))
    fused = FusedFlow(flow, FusedStack(dit.decoder, patch_attention=patches))

    def moved(solver: FlowMatching | FusedFlow, dtype: torch.dtype) -> Tensor:
        schedule = flow.schedule(6)
        typed = dataclasses.replace(schedule, embeddings=schedule.embeddings.to(dtype))
        return solver.forward(mu.to(dtype), prefix.to(dtype), noise, typed, cfg) - noise

    ours, expected = moved(fused, torch.bfloat16), moved(exact, torch.float64).double()
    assert torch.equal(ours, moved(fused, torch.bfloat16))
    assert ((ours - expected).norm() / expected.norm()).item() < 0.02, torch.initial_seed()


class Paged:
    """Sequences of these new and whole lengths in blocks that lie anywhere, in tables at slots of their own."""

    def __init__(
        self,
        spans: list[tuple[int, int]],
        heads: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        block_size: int,
    ) -> None:
        self.spans, self.heads, self.kv_heads, self.head_dim = spans, heads, kv_heads, head_dim
        num_blocks = sum(-(-whole // block_size) for _, whole in spans) + 3
        order = torch.randperm(num_blocks).tolist()
        width = max(-(-whole // block_size) for _, whole in spans) + 2
        tables = [[order.pop() for _ in range(-(-whole // block_size))] for _, whole in spans]
        meta = AttentionMetadata.build(
            [new for new, _ in spans], [whole for _, whole in spans], tables, block_size, "cuda"
        )
        slots = torch.randperm(len(spans) + 2)[: len(spans)].cuda()
        by_slot = torch.full((len(spans) + 2, width), order[0], device="cuda")
        by_slot[slots, : meta.block_tables.shape[1]] = meta.block_tables
        self.meta = AttentionMetadata(meta.positions, meta.slot_mapping, slots[meta.sequences], by_slot)
        # NaN wherever nothing was written: what is read of it shows.
        shape = (1, 2, num_blocks, block_size, kv_heads, head_dim)
        self.kv = KVCache(torch.full(shape, math.nan, device="cuda", dtype=dtype))
        keys, values = self.kv.layer(0)
        self.qkv = draw(len(meta.positions), (heads + 2 * kv_heads) * head_dim, dtype=dtype)
        self.rope = rope_of(meta.positions, head_dim)
        self.past = [draw(2, whole - new, kv_heads, head_dim, dtype=dtype) for new, whole in spans]
        for table, (k, v) in zip(tables, self.past, strict=True):
            for position in range(k.shape[0]):
                block, offset = table[position // block_size], position % block_size
                keys[block, offset], values[block, offset] = k[position], v[position]

    def run(self, rotates: bool) -> Tensor:
        return paged_attention(self.qkv, self.rope if rotates else None, self.kv, 0, self.meta, self.heads)

    def expected(self, rotates: bool) -> Tensor:
        out = []
        start = 0
        for (new, _), (past_k, past_v) in zip(self.spans, self.past, strict=True):
            rows = slice(start, start + new)
            start += new
            split = self.qkv[rows].double().view(new, -1, self.head_dim)
            qk, v = split.split((self.heads + self.kv_heads, self.kv_heads), dim=1)
            if rotates:
                qk = rotated(qk, self.rope[0][rows].double(), self.rope[1][rows].double())
            q, k = qk.split((self.heads, self.kv_heads), dim=1)
            k = torch.cat((past_k.double(), k.to(self.qkv.dtype).double()))
            v = torch.cat((past_v.double(), v))
            for row in range(new):
                end = len(k) - new + row + 1
                group = self.heads // self.kv_heads
                scores = torch.einsum("hd,lhd->hl", q[row], k[:end].repeat_interleave(group, 1))
                weights = (scores / math.sqrt(self.head_dim)).softmax(-1)
                out.append(torch.einsum("hl,lhd->hd", weights, v[:end].repeat_interleave(group, 1)).flatten())
        return torch.stack(out)


SPANS = [(9, 9), (4, 131), (1, 1), (1, 64), (1, 65), (1, 300), (1, 17)]
SHAPES = [(16, 2, 128, 16), (6, 2, 64, 16), (8, 8, 32, 32), (5, 1, 16, 16)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rotates", [True, False])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim", "block_size"), SHAPES)
def test_paged_attention(
    heads: int, kv_heads: int, head_dim: int, block_size: int, rotates: bool, dtype: torch.dtype
) -> None:
    """Cold and continued prefills beside decodes of all ages."""
    paged = Paged(SPANS, heads, kv_heads, head_dim, dtype, block_size)
    check(lambda: paged.run(rotates), paged.expected(rotates), dtype)


def test_a_row_is_the_same_in_any_batch() -> None:
    paged = Paged(SPANS, 16, 2, 128, torch.bfloat16, 16)
    together = paged.run(True)
    rows = torch.tensor([15, 3], device="cuda")
    cos, sin = (table[rows].contiguous() for table in paged.rope)
    all_rows = paged.meta
    meta = AttentionMetadata(
        all_rows.positions[rows], all_rows.slot_mapping[rows], all_rows.sequences[rows], all_rows.block_tables
    )
    some = paged_attention(paged.qkv[rows], (cos, sin), paged.kv, 0, meta, 16)
    assert torch.equal(some, together[rows])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reading_of_a_head(dtype: torch.dtype) -> None:
    paged = Paged(SPANS, 16, 2, 128, dtype, 16)
    rows, starts, lens = [8, 12, 16, 13, 0], [1, 40, 250, 0, 0], [5, 60, 31, 1, 0]  # the last one: a padded row
    spoken = TextSpans(*(torch.tensor(values, device="cuda") for values in (rows, starts, lens)))
    paged.run(True)
    keys, _ = paged.kv.layer(0)
    probe = HeadProbe(0, 11, spoken)
    made = [head_reading(paged.qkv, paged.rope, keys, paged.meta, 16, probe) for _ in range(2)]
    assert torch.equal(made[0][:-1], made[1][:-1])
    assert made[0][-1, 0].isnan()
    q = paged.qkv.double().view(-1, 20, 128)[:, 11:12]
    q = rotated(q, paged.rope[0].double(), paged.rope[1].double()).to(dtype)
    weights, index, mass = text_attention(q, keys.nan_to_num(0.0)[:, :, 1:], paged.meta, spoken)
    torch.testing.assert_close(made[0][:-1, 0], (weights * index).sum(-1)[:-1, 0], atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(made[0][:-1, 1], mass[:-1, 0], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("separate_time", [True, False])
@pytest.mark.parametrize(
    ("streams", "num_mu", "patch_size", "latent", "hidden"), [(1, 2, 4, 64, 1024), (5, 1, 2, 48, 320)]
)
def test_flow_tokens(
    streams: int, num_mu: int, patch_size: int, latent: int, hidden: int, separate_time: bool, dtype: torch.dtype
) -> None:
    x, mu = draw(streams, patch_size, latent), draw(streams, num_mu, hidden, dtype=dtype)
    time, prefix = draw(hidden, dtype=dtype), draw(streams, patch_size, hidden, dtype=dtype)
    weight, bias = draw(hidden, latent, dtype=dtype, scale=latent**-0.5), draw(hidden, dtype=dtype)
    both = torch.cat((mu, torch.zeros_like(mu))).double()
    times = time.double().expand(2 * streams, 1, -1)
    head = (both, times) if separate_time else (both + times,)
    tokens = (x.to(dtype).double() @ weight.double().t() + bias.double()).repeat(2, 1, 1)
    expected = torch.cat((*head, prefix.double().repeat(2, 1, 1), tokens), dim=1).flatten(0, 1)
    given = x, mu, time, prefix, weight, bias
    check(lambda: flow_tokens(*given, separate_time=separate_time), expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("streams", "patch_size", "latent"), [(1, 4, 64), (7, 2, 48)])
def test_euler_step(streams: int, patch_size: int, latent: int, dtype: torch.dtype) -> None:
    x, velocity = draw(streams, patch_size, latent), draw(2 * streams * patch_size, latent, dtype=dtype)
    cfg = 1 + 2 * torch.rand(streams, device="cuda")
    positive, negative = velocity.double().view(2, streams, patch_size, latent)
    share = (positive * negative).sum((1, 2)) / (negative.square().sum((1, 2)) + 1e-8)
    scaled = negative * share[:, None, None]
    expected = x.double() - 0.3 * (scaled + cfg.double()[:, None, None] * (positive - scaled))

    def run() -> Tensor:
        moved = x.clone()
        euler_step(moved, velocity, cfg, 0.3)
        return moved

    check(run, expected, torch.float32)


@pytest.mark.parametrize(("patch_size", "latent"), [(4, 64), (3, 7)])
def test_patch_noise(patch_size: int, latent: int) -> None:
    """The same integers as in plain torch, and functions of them that differ by rounding at most."""
    keys = torch.tensor([noise.noise_key(seed) for seed in (0, 1, 12345, -7, 1 << 70)], device="cuda")
    index = torch.tensor([0, 3, 100_000, 77, 1], device="cuda")
    made = patch_noise(keys, index, patch_size, latent)
    assert torch.equal(made, patch_noise(keys, index, patch_size, latent))
    assert torch.equal(made[2:3], patch_noise(keys[2:3], index[2:3], patch_size, latent))
    expected = noise.patch_noise(keys, index, patch_size, latent)
    torch.testing.assert_close(made, expected, atol=1e-5, rtol=1e-5)


def random_vae(decoder_dim: int, rates: tuple[int, ...], boundaries: tuple[int, ...]) -> AudioVAE:
    config = AudioVAEConfig(
        8, (2, 2), 48, decoder_dim, rates, True, 16000, 48000, boundaries, "scale_bias", 8, False, False
    )  # fmt: skip
    vae = AudioVAE(config).requires_grad_(False)
    for name, value in vae.named_parameters():
        gain = "alpha" in name or "scale_embed" in name
        size = 0.1 if value.dim() == 1 or "bias" in name else value[0].numel() ** -0.5
        value.copy_(1 + 0.2 * torch.rand_like(value) if gain else 0.7 * size * torch.randn_like(value))
    vae.decoder.model[-2].weight.mul_(0.2)  # its tanh would hide differences
    return vae.cuda()


# Of torch's own float32 against float64 on such weights: 1e-6 to 1e-5. Half precision is rounded at every layer.
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-4), (torch.float16, 1e-2)])
@pytest.mark.parametrize(("dim", "rates", "bounds"), [(512, (3, 2, 2), ()), (1024, (8, 6, 5, 2, 2), (20000, 40000))])
def test_the_streamed_decoder(
    dim: int, rates: tuple[int, ...], bounds: tuple[int, ...], dtype: torch.dtype, bound: float
) -> None:
    """Patch by patch in slots of their own, against the whole decode in float64; other slots are left alone."""
    vae = random_vae(dim, rates, bounds)
    z = draw(3, 24, 48)
    expected = vae.double().decode(z.double())
    fused = FusedDecoder(vae.float(), 4, dtype)
    slots = torch.tensor([4, 0, 2], device="cuda")
    runs = []
    for _ in range(2):
        state = fused.new_state(6, "cuda")
        (contexts,) = state.tensors
        contexts.fill_(7.0)
        state.reset(slots)
        parts = [fused.decode_stream(patch, state, slots) for patch in z.split([4, 8, 4, 8], dim=1)]
        runs.append(torch.cat(parts, dim=1))
        assert (contexts[[1, 3, 5]] == 7.0).all()
    assert torch.equal(runs[0], runs[1])
    assert (runs[0].double() - expected).norm() / expected.norm() < bound
