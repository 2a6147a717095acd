"""MiniCPM transformer stack: pre-norm layers, LongRoPE, grouped-query attention, SwiGLU.

Query, key and value weights are one matrix, gate and up weights another; `weights` maps them to upstream's names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from realtime_tts.model.attention import Attend, FullAttention, full_attention
from realtime_tts.model.config import RopeConfig, TransformerConfig

Rope = tuple[Tensor, Tensor]  # cosine and signed sine, [..., 1, head_dim] float32


class RMSNorm(nn.Module):
    """Normalisation by the root mean square of the last dimension, with a gain."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps
        self._eps = torch.tensor(eps, device="cpu")  # even if the model is under construction on the meta device

    def forward(self, x: Tensor) -> Tensor:
        """Return x [..., size] normed, in the same shape."""
        if x.is_cuda or x.dtype != torch.float32:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        # Torch's implementation is one kernel on CUDA, but on CPUs it takes more operations than this.
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = torch.addcmul(self._eps, norm, norm, value=1 / x.shape[-1]).rsqrt()
        return x * scale * self.weight


class RotaryEmbedding(nn.Module):
    """Tables for all positions. The sine's first half is negated, so that rotating is a roll and a multiply-add."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: RopeConfig) -> None:
        super().__init__()
        head_dim = 2 * len(config.factors)
        # Explicitly on the CPU: the model may be under construction on the meta device.
        frequencies = 1.0 / (config.theta ** (torch.arange(0, head_dim, 2, device="cpu").float() / head_dim))
        positions = torch.arange(config.max_position, device="cpu").float()
        angles = torch.outer(positions, 1.0 / torch.tensor(config.factors, device="cpu")) * frequencies
        self.register_buffer("cos", (angles.cos() * config.scale).repeat(1, 2), persistent=False)
        sin = angles.sin() * config.scale
        self.register_buffer("sin", torch.cat((-sin, sin), dim=-1), persistent=False)

    def forward(self, positions: Tensor) -> Rope:
        """Return cosine and sine [..., 1, head_dim] for positions [...] int64."""
        return F.embedding(positions, self.cos).unsqueeze(-2), F.embedding(positions, self.sin).unsqueeze(-2)

    def first(self, length: int) -> Rope:
        """Return the tables of positions 0 … length - 1, without a lookup."""
        return self.cos[:length].unsqueeze(-2), self.sin[:length].unsqueeze(-2)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # `.to(bfloat16)` must move the tables but never round them: angles need float32 at large positions.
        cos, sin = self.cos, self.sin
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.cos, self.sin = cos.to(self.cos.device), sin.to(self.sin.device)
        return self


def rotate(x: Tensor, rope: Rope) -> Tensor:
    """Return x [..., heads, head_dim] rotated in float32."""
    cos, sin = rope
    x32 = x.float()
    return torch.addcmul(x32 * cos, x32.roll(x.shape[-1] // 2, -1), sin).to(x.dtype)


class Attention(nn.Module):
    """Projections around attention, with grouped queries."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.num_heads, self.num_kv_heads = config.num_heads, config.num_kv_heads
        total_heads = config.num_heads + 2 * config.num_kv_heads
        self.qkv_proj = nn.Linear(config.hidden_size, total_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.num_heads * config.head_dim, config.hidden_size, bias=False)

    def project(self, x: Tensor, rope: Rope | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return x [..., hidden] → q [..., heads, head_dim], k and v [..., kv_heads, head_dim], rotated."""
        heads = self.qkv_proj(x).unflatten(-1, (-1, self.head_dim))
        qk, v = heads.split((self.num_heads + self.num_kv_heads, self.num_kv_heads), dim=-2)
        if rope is not None:
            qk = rotate(qk, rope)
        q, k = qk.split((self.num_heads, self.num_kv_heads), dim=-2)
        return q, k, v

    def forward(self, x: Tensor, rope: Rope | None, attend: Attend, layer: int) -> Tensor:
        q, k, v = self.project(x, rope)
        return self.o_proj(attend(layer, q, k, v))


class MLP(nn.Module):
    """SwiGLU: [..., hidden] in the same shape."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(F.silu(gate) * up)


class DecoderLayer(nn.Module):
    """Pre-norm layer: attention, then SwiGLU, each added to its input times `residual_scale`."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)
        self.residual_scale = config.residual_scale

    def forward(self, x: Tensor, rope: Rope | None, attend: Attend, layer: int) -> Tensor:
        x = torch.add(x, self.self_attn(self.input_layernorm(x), rope, attend, layer), alpha=self.residual_scale)
        return torch.add(x, self.mlp(self.post_attention_layernorm(x)), alpha=self.residual_scale)

    def forward_tail(self, x: Tensor, rope: Rope | None, num_tail: int) -> Tensor:
        """Compute the same for a bidirectional sequence, but only its last `num_tail` rows.

        x [N, L, hidden] → [N, num_tail, hidden]. Keys and values still come from every row.
        """
        q, k, v = self.self_attn.project(self.input_layernorm(x), rope)
        out = self.self_attn.o_proj(full_attention(q[:, -num_tail:], k, v, causal=False))
        x = torch.add(x[:, -num_tail:], out, alpha=self.residual_scale)
        return torch.add(x, self.mlp(self.post_attention_layernorm(x)), alpha=self.residual_scale)


class FusedForward(Protocol):
    """Replacement for a stack's forward pass: see `fused`."""

    def forward(self, x: Tensor, rope: Rope | None, attend: Attend) -> Tensor: ...


class MiniCPM(nn.Module):
    """A stack of layers and a final norm; `vocab_size` 0 has no embedding."""

    fused: FusedForward | None = None

    def __init__(self, config: TransformerConfig, vocab_size: int = 0) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab_size, config.hidden_size) if vocab_size else None
        self.layers: Sequence[DecoderLayer] = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))  # type: ignore[assignment]
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rope = RotaryEmbedding(config.rope) if config.rope else None

    def rotary(self, positions: Tensor) -> Rope | None:
        """Return `forward`'s `rope` for these positions; None for a stack without RoPE."""
        return self.rope(positions) if self.rope is not None else None

    def first_rotary(self, length: int) -> Rope | None:
        """Return `rotary` of positions 0 … length - 1."""
        return self.rope.first(length) if self.rope is not None else None

    def forward(self, x: Tensor, rope: Rope | None, attend: Attend) -> Tensor:
        """Return the normed output: x [..., hidden] → [..., hidden]."""
        if self.fused is not None:
            return self.fused.forward(x, rope, attend)
        for index, layer in enumerate(self.layers):
            x = layer(x, rope, attend, index)
        return self.norm(x)

    def forward_tail(self, x: Tensor, rope: Rope | None, num_tail: int) -> Tensor:
        """Return x [N, L, hidden] → [N, num_tail, hidden], bidirectional, normed; the last layer skips other rows."""
        attend = FullAttention(causal=False)
        *layers, last = self.layers
        for index, layer in enumerate(layers):
            x = layer(x, rope, attend, index)
        return self.norm(last.forward_tail(x, rope, num_tail))
