"""The two small bidirectional stacks of a patch: LocEnc (patch → one embedding) and LocDiT (velocity of a patch).

Both have sequences of a fixed length, so no padding or masks are necessary.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from realtime_tts.model.attention import FullAttention
from realtime_tts.model.config import TransformerConfig
from realtime_tts.model.minicpm import MiniCPM


class LocEnc(nn.Module):
    """Encodes a patch into the final state of a learned first token."""

    def __init__(self, config: TransformerConfig, latent_dim: int) -> None:
        super().__init__()
        self.special_token = nn.Parameter(nn.init.normal_(torch.empty(1, 1, 1, config.hidden_size)))
        self.in_proj = nn.Linear(latent_dim, config.hidden_size)
        self.encoder = MiniCPM(config)

    def forward(self, patches: Tensor) -> Tensor:
        """Return embeddings: patches [N, patch_size, latent_dim] → [N, hidden]."""
        tokens = self.in_proj(patches)
        tokens = torch.cat((self.special_token[0].expand(tokens.shape[0], -1, -1), tokens), dim=1)
        rope = self.encoder.first_rotary(tokens.shape[1])
        return self.encoder(tokens, rope, FullAttention(causal=False))[:, 0]


class TimestepEmbedding(nn.Module):
    """Embedding of a flow time: a sinusoid through two linear layers."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(size, size)
        self.linear_2 = nn.Linear(size, size)

    def forward(self, t: Tensor) -> Tensor:
        """Return embeddings: t [N] in [0, 1] → [N, hidden]. The sinusoid is float32, whatever the weights are."""
        half = self.linear_1.in_features // 2
        rates = torch.exp(torch.arange(half, device=t.device) * (-math.log(10000) / (half - 1)))
        angles = 1000 * t.float()[:, None] * rates
        waves = torch.cat((angles.sin(), angles.cos()), dim=-1).to(self.linear_1.weight.dtype)
        return self.linear_2(F.silu(self.linear_1(waves)))


class LocDiT(nn.Module):
    """Velocity field of one patch. Token order: condition mu, time, previous patch, noisy patch.

    With `separate_time` (VoxCPM2), the time is a token of its own after two mu tokens. In earlier generations it is
    added to the single mu token.
    """

    def __init__(self, config: TransformerConfig, latent_dim: int, *, separate_time: bool) -> None:
        super().__init__()
        self.separate_time = separate_time
        self.in_proj = nn.Linear(latent_dim, config.hidden_size)
        self.cond_proj = nn.Linear(latent_dim, config.hidden_size)
        self.out_proj = nn.Linear(config.hidden_size, latent_dim)
        self.time_mlp = TimestepEmbedding(config.hidden_size)
        self.delta_time_mlp = TimestepEmbedding(config.hidden_size)
        self.decoder = MiniCPM(config)

    def embed_time(self, t: Tensor, dt: Tensor) -> Tensor:
        """Return time embeddings: t, dt [N] → [N, hidden]. dt is 0 unless the model predicts mean velocities."""
        return self.time_mlp(t) + self.delta_time_mlp(dt)

    def velocity(self, x: Tensor, mu: Tensor, time: Tensor, prefix: Tensor) -> Tensor:
        """Return velocities: x [N, patch_size, hidden], mu [N, num_mu, hidden], time [N or 1, hidden], prefix [N,
        patch_size, hidden] → [N, patch_size, latent_dim]. x and prefix are projected already; only x changes between
        steps."""
        time = time[:, None].expand(x.shape[0], -1, -1)
        head = (mu, time) if self.separate_time else (mu + time,)
        tokens = torch.cat((*head, prefix, x), dim=1)
        rope = self.decoder.first_rotary(tokens.shape[1])
        return self.out_proj(self.decoder.forward_tail(tokens, rope, x.shape[1]))

    def forward(self, x: Tensor, mu: Tensor, t: Tensor, prefix: Tensor, dt: Tensor) -> Tensor:
        """Return velocities like x: x, prefix [N, patch_size, latent_dim], mu [N, num_mu, hidden], t, dt [N]."""
        return self.velocity(self.in_proj(x), mu, self.embed_time(t, dt), self.cond_proj(prefix))
