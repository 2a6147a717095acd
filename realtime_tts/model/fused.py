"""The model's stacks through fused kernels, for serving on CUDA: the same parameters, fewer and larger operations.

`fuse` installs these in front of the plain modules, which stay available. Results are the same except for rounding.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from realtime_tts.model.adapted import adapted, is_adapting
from realtime_tts.model.attention import AttentionMetadata, FullAttention, KVCache
from realtime_tts.model.flow_matching import FlowMatching, FlowSchedule
from realtime_tts.model.fused_fp8 import MIN_ROWS as MIN_FP8_ROWS
from realtime_tts.model.fused_fp8 import Fp8Layers
from realtime_tts.model.fused_vae import FusedDecoder, can_fuse
from realtime_tts.model.kernels.attention import MAX_LOCAL_LENGTH, head_reading, local_attention, paged_attention
from realtime_tts.model.kernels.cuda.build import CudaError
from realtime_tts.model.kernels.flow import euler_step, flow_tokens
from realtime_tts.model.kernels.gated import MIN_ROWS, GatedProduct, has_gated_product
from realtime_tts.model.kernels.patch_attention import MIN_SEQUENCES, PatchAttention
from realtime_tts.model.kernels.products import Product
from realtime_tts.model.kernels.rows import rms_norm, swiglu
from realtime_tts.model.kernels.stack import FlowStack, LocalStack, PagedStack, what_is_missing
from realtime_tts.model.minicpm import DecoderLayer, MiniCPM, Rope
from realtime_tts.model.voxcpm import VoxCPM

logger = logging.getLogger(__name__)

Built = TypeVar("Built", LocalStack, PagedStack, FlowStack, PatchAttention)


class TritonBackend:
    """Paged attention in two kernels for any lengths: prefill and decode rows are treated alike."""

    name = "triton"
    is_static = True

    def forward(self, q: Tensor, k: Tensor, v: Tensor, kv: KVCache, layer: int, meta: AttentionMetadata) -> Tensor:
        qkv = torch.cat((q, k, v), dim=1).flatten(1)
        return paged_attention(qkv, None, kv, layer, meta, q.shape[1])


class FirstLayer:
    """First layer of a flow's evaluations, up to its attention, for many streams.

    Before it no operation mixes rows. Most rows are therefore the same in all evaluations, and the noisy patch is the
    same with its condition and without: 4 of 22 rows per stream remain to be projected each time.

    Made for one flow: its S streams' conditions mu [S, conditions, hidden], projected previous patches prefix
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

    def heads(self, rows: Tensor, index: int, rope: Rope | None) -> Tensor:
        """Return attention's output [rows, heads * head_dim]. rows: as `flow_tokens` returns them for `index`."""
        length = self._attention.length
        fresh = self._projected(rows[: self._num_streams * length], length, self._patch_size)
        return self._attention.shared(self._kept, self._times[index], self._zeros, fresh, rope)

    def _projected(self, rows: Tensor, length: int = 1, tail: int = 1) -> Tensor:
        """Return the projections of the last `tail` of each `length` rows."""
        return self._qkv(rms_norm(rows, self._norm.weight, self._norm.eps, length, tail), 0)


class FusedStack:
    """A `MiniCPM` whose residual additions are part of the products, and whose other operations are kernels.

    few_rows_kernel: takes a few rows through all layers at once.
    patch_attention: attention kernel for many short sequences, all of its length; faster than the general one.
    gated_epilogue: for many rows, compute SwiGLU in the epilogue of the product before it, if supported.
    fp8: `tail` uses products in eight bits for many rows. Raises ValueError if they are not supported.
    """

    def __init__(
        self,
        stack: MiniCPM,
        few_rows_kernel: LocalStack | PagedStack | None = None,
        patch_attention: PatchAttention | None = None,
        *,
        gated_epilogue: bool = False,
        fp8: bool = False,
    ) -> None:
        layers = list(stack.layers)
        self._layers, self._norm = layers, stack.norm
        self.few_rows_kernel, self.patch_attention = few_rows_kernel, patch_attention
        self._qkv = Product([layer.self_attn.qkv_proj.weight for layer in layers])
        self._o = Product([layer.self_attn.o_proj.weight for layer in layers])
        self._gate_up = Product([layer.mlp.gate_up_proj.weight for layer in layers])
        self._down = Product([layer.mlp.down_proj.weight for layer in layers])
        self.gated: list[GatedProduct] = []
        if gated_epilogue and has_gated_product(layers[0].mlp.gate_up_proj.weight):
            self.gated = [GatedProduct(layer.mlp.gate_up_proj.weight) for layer in layers]
        self.fp8 = Fp8Layers(layers) if fp8 else None

    def forward(self, x: Tensor, rope: Rope | None, attend: Any) -> Tensor:
        """Return the same as `MiniCPM.forward`, for bidirectional attention within short sequences, and for attention
        over a paged cache without a probe or with a `HeadProbe`."""
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        kernel = self.few_rows_kernel
        if kernel is not None and len(rows) <= kernel.max_rows and not self.is_adapting:
            rows = self._at_once(kernel, rows, rope, attend)
        else:
            for index in range(len(self._layers)):
                heads = self._attend(index, self.project(index, rows), rope, attend, x.shape[-2])
                rows = self.finish(index, rows, heads)
        return self._normed(self._norm, rows).view(x.shape)

    def _at_once(self, kernel: LocalStack | PagedStack, rows: Tensor, rope: Rope | None, attend: Any) -> Tensor:
        """Run all layers in one kernel."""
        if isinstance(kernel, LocalStack):
            return kernel.forward(rows, rope)
        probe, meta, first = attend.probe, attend.meta, attend.first_layer
        probed = probe.layer if probe is not None else None
        done, queries = kernel.forward(rows, rope, attend.kv, first, meta, probed)
        if queries is not None:
            keys, _ = attend.kv.layer(first + probe.layer)
            probe.readings = head_reading(queries, None, keys, meta, kernel.heads, probe)
        return done

    def _attend(self, index: int, qkv: Tensor, rope: Rope | None, attend: Any, length: int) -> Tensor:
        """Return attention from packed projections, [rows, heads * head_dim]."""
        if isinstance(attend, FullAttention):
            assert not attend.causal, "the kernel for whole sequences is bidirectional"
            return self._attend_locally(qkv, rope, length, length)
        layer, meta, heads = attend.first_layer + index, attend.meta, self._layers[0].self_attn.num_heads
        out = paged_attention(qkv, rope, attend.kv, layer, meta, heads)
        if attend.probe is not None and attend.probe.layer == index:
            attend.probe.readings = head_reading(qkv, rope, attend.kv.layer(layer)[0], meta, heads, attend.probe)
        return out

    def first_layer(self, mu: Tensor, prefix: Tensor, times: Tensor) -> FirstLayer | None:
        """Return the precomputed first layer of a flow if it is faster, else None: see `FirstLayer`."""
        is_more = len(self._layers) > 1 and not self.is_adapting
        patch_attention = self.patch_attention
        if patch_attention is None or not is_more or 2 * len(mu) < MIN_SEQUENCES:
            return None
        return FirstLayer(self._layers[0], self._qkv, patch_attention, mu, prefix, times)

    def tail(self, rows: Tensor, rope: Rope | None, length: int, num_tail: int, first: Tensor | None = None) -> Tensor:
        """Return the same as `MiniCPM.forward_tail`, flat: rows [N * length, hidden] → [N * num_tail, hidden].

        first: output of the first layer's attention, if it is known.
        """
        layers: FusedStack | Fp8Layers = self
        if self.fp8 is not None and len(rows) >= MIN_FP8_ROWS and not self.is_adapting:
            layers = self.fp8
        for index in range(len(self._layers)):
            is_last = index == len(self._layers) - 1
            num_queries = num_tail if is_last else length
            if first is not None and index == 0:
                heads = first
            else:
                heads = self._attend_locally(layers.project(index, rows), rope, length, num_queries)
            if is_last:
                rows = rows.view(-1, length, rows.shape[1])[:, -num_tail:].reshape(-1, rows.shape[1])
            rows = layers.finish(index, rows, heads)
        return self._normed(self._norm, rows)

    def _attend_locally(self, qkv: Tensor, rope: Rope | None, length: int, num_queries: int) -> Tensor:
        """Return attention within whole short sequences, for the last positions of each."""
        patch_attention = self.patch_attention
        if patch_attention is not None and len(qkv) >= MIN_SEQUENCES * length:
            return patch_attention(qkv, rope, num_queries)
        attention = self._layers[0].self_attn
        return local_attention(qkv, rope, length, num_queries, attention.num_heads, attention.num_kv_heads)

    @property
    def is_adapting(self) -> bool:
        """True if rows of the current pass have adapters, so that no kernel may combine several products."""
        attention, mlp = self._layers[0].self_attn, self._layers[0].mlp
        return is_adapting(attention.qkv_proj, attention.o_proj, mlp.gate_up_proj, mlp.down_proj)

    def project(self, index: int, rows: Tensor) -> Tensor:
        """Compute a layer from its input to attention."""
        layer = self._layers[index]
        normed = self._normed(layer.input_layernorm, rows)
        return adapted(layer.self_attn.qkv_proj, self._qkv(normed, index), normed)

    def finish(self, index: int, rows: Tensor, heads: Tensor) -> Tensor:
        """Compute a layer from its attention to its output."""
        layer = self._layers[index]
        scale, mlp = layer.residual_scale, layer.mlp
        rows = adapted(layer.self_attn.o_proj, self._o(heads, index, rows, scale), heads, scale)
        normed = self._normed(layer.post_attention_layernorm, rows)
        if self.gated and rows.shape[0] >= MIN_ROWS and not is_adapting(mlp.gate_up_proj):
            wide = self.gated[index](normed)
        else:
            wide = swiglu(adapted(mlp.gate_up_proj, self._gate_up(normed, index), normed))
        return adapted(mlp.down_proj, self._down(wide, index, rows, scale), wide, scale)

    @staticmethod
    def _normed(norm: Any, rows: Tensor) -> Tensor:
        return rms_norm(rows, norm.weight, norm.eps)


class FusedFlow:
    """A `FlowMatching` with two kernels around each evaluation of its estimator.

    few_streams_kernel: takes a few streams through the whole loop at once.
    """

    def __init__(self, flow: FlowMatching, stack: FusedStack, few_streams_kernel: FlowStack | None = None) -> None:
        self._dit, self.stack, self.few_streams_kernel = flow.estimator, stack, few_streams_kernel

    def forward(self, mu: Tensor, prefix: Tensor, noise: Tensor, schedule: FlowSchedule, cfg: Tensor) -> Tensor:
        """Return the same as `FlowMatching.forward`, for schedules with guidance."""
        assert schedule.guided, "the kernels apply guidance"
        dit = self._dit
        dtype, patch_size = dit.in_proj.weight.dtype, noise.shape[1]
        length = mu.shape[1] + dit.separate_time + 2 * patch_size
        rope, cond = dit.decoder.first_rotary(length), dit.cond_proj(prefix.to(dtype))
        kernel = self.few_streams_kernel
        if kernel is not None and len(noise) <= kernel.MAX_STREAMS and not self.stack.is_adapting:
            return kernel.solve(mu, cond, noise, schedule, cfg, rope)
        x, mu, cfg = noise.float().clone(), mu.contiguous(), cfg.float().contiguous()
        weight, bias = dit.in_proj.weight.contiguous(), dit.in_proj.bias
        first = self.stack.first_layer(mu, cond, schedule.embeddings) if dit.separate_time else None
        for index, (delta, time) in enumerate(zip(schedule.deltas, schedule.embeddings, strict=True)):
            rows = flow_tokens(x, mu, time, cond, weight, bias, separate_time=dit.separate_time)
            heads = first.heads(rows, index, rope) if first is not None else None
            velocity = dit.out_proj(self.stack.tail(rows, rope, length, patch_size, heads))
            euler_step(x, velocity, cfg, delta)
        return x


def fuse(model: VoxCPM, *, fp8_flow: bool = False) -> None:
    """Install the kernels in a model's stacks. Stacks whose shapes do not fit stay plain.

    Stacks that are fused already are left as they are: captured graphs may point into them.

    Args:
        fp8_flow: use products in eight bits for many streams of the flow.

    Raises:
        ValueError: there are no such products for this model on this device.
    """
    patch_size, flow = model.config.patch_size, model.feat_decoder
    num_mu = 2 if model.config.concat_conditions else 1
    reasons: set[str] = set()
    for stack in (model.base_lm, model.residual_lm):
        if stack.fused is None and _fits(stack):
            stack.fused = FusedStack(stack, _built(stack, functools.partial(PagedStack, stack), reasons))
    encoder, dit = model.feat_encoder.encoder, flow.estimator
    if encoder.fused is None and _fits(encoder) and 1 + patch_size <= MAX_LOCAL_LENGTH:
        kernel = _built(encoder, lambda: LocalStack(encoder, 1 + patch_size), reasons)
        encoder.fused = FusedStack(encoder, kernel, _patch_attention(encoder, 1 + patch_size, reasons))
    length = num_mu + dit.separate_time + 2 * patch_size
    fits = _fits(dit.decoder) and length <= MAX_LOCAL_LENGTH
    if fp8_flow and not fits:
        raise ValueError("the model's flow does not run through fused kernels")
    if fits and (not isinstance(flow.fused, FusedFlow) or (flow.fused.stack.fp8 is not None) != fp8_flow):
        loop = _built(dit.decoder, lambda: FlowStack(dit, num_mu, patch_size), reasons)
        attention = _patch_attention(dit.decoder, length, reasons)
        layers = FusedStack(dit.decoder, patch_attention=attention, gated_epilogue=True, fp8=fp8_flow)
        flow.fused = FusedFlow(flow, layers, loop)
    if model.vae.fused is None and can_fuse(model.vae):
        model.vae.fused = FusedDecoder(model.vae, model.config.patch_size)
    if reasons:
        logger.info("kernels from CUDA sources are not used: %s", "; ".join(sorted(reasons)))


def _built(stack: MiniCPM, make: Callable[[], Built], reasons: set[str]) -> Built | None:
    """Return a kernel from CUDA sources for a stack; None if it cannot be built, with the reason added to `reasons`."""
    missing = what_is_missing(stack)
    if missing is None:
        try:
            return make()
        except CudaError as error:
            missing = str(error)
    reasons.add(missing)
    return None


def _patch_attention(stack: MiniCPM, length: int, reasons: set[str]) -> PatchAttention | None:
    attention, device = stack.layers[0].self_attn, stack.norm.weight.device
    heads, kv_heads = attention.num_heads, attention.num_kv_heads
    return _built(stack, lambda: PatchAttention(length, heads, kv_heads, device), reasons)


def _fits(stack: MiniCPM) -> bool:
    head_dim = stack.layers[0].self_attn.head_dim
    return bool(head_dim >= 32 and head_dim & (head_dim - 1) == 0)
