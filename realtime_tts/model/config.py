"""The shape of a model, frozen; `config_file` makes one from a checkpoint's config.json.

Three generations share one implementation: `voxcpm` (0.5B and 1.5) and `voxcpm2`. Everything that differs between them
is a field here; no other module asks which generation it serves.
"""

from __future__ import annotations

import dataclasses
import math


@dataclasses.dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding: `factors` divide the positions per frequency, `scale` multiplies cosine and sine."""

    theta: float
    factors: tuple[float, ...]
    scale: float
    max_position: int


@dataclasses.dataclass(frozen=True, slots=True)
class TransformerConfig:
    """One stack of MiniCPM layers. `residual_scale` is the muP depth scale, 1.0 without muP."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    residual_scale: float
    rope: RopeConfig | None


@dataclasses.dataclass(frozen=True, slots=True)
class AudioVAEConfig:
    """Only in the second VAE generation may `output_rate_hz` differ from `encode_rate_hz`, and is the decoder
    conditioned on it."""

    encoder_dim: int
    encoder_rates: tuple[int, ...]
    latent_dim: int
    decoder_dim: int
    decoder_rates: tuple[int, ...]
    depthwise: bool
    encode_rate_hz: int
    output_rate_hz: int
    rate_boundaries_hz: tuple[int, ...]  # empty: the decoder is not conditioned on the output rate
    condition_type: str
    condition_dim: int
    condition_out_layer: bool
    odd_stride_crop: bool  # second generation: the encoder's odd strides pad one sample less

    @property
    def num_rate_buckets(self) -> int:
        return len(self.rate_boundaries_hz) + 1 if self.rate_boundaries_hz else 0

    @property
    def rate_bucket(self) -> int:
        """Index of the condition embedding for `output_rate_hz`."""
        return sum(boundary < self.output_rate_hz for boundary in self.rate_boundaries_hz)

    @property
    def encode_hop(self) -> int:
        """Number of samples at `encode_rate_hz` for one latent frame."""
        return math.prod(self.encoder_rates)

    @property
    def decode_hop(self) -> int:
        """Number of samples at `output_rate_hz` for one latent frame."""
        return math.prod(self.decoder_rates)


@dataclasses.dataclass(frozen=True, slots=True)
class ModelConfig:
    """One checkpoint. Lengths in positions or patches, rates in Hz."""

    patch_size: int
    latent_dim: int
    vocab_size: int
    max_length: int
    dtype: str
    embedding_scale: float
    fsq_dim: int
    fsq_scale: int
    base: TransformerConfig
    residual: TransformerConfig
    encoder: TransformerConfig
    dit: TransformerConfig
    dit_mean_mode: bool
    vae: AudioVAEConfig
    concat_conditions: bool  # fusion projection and two condition tokens, instead of sums
    supports_reference: bool
    num_context_patches: int  # trailing prompt patches that prime the VAE decoder
    min_patches: int = 2  # stop is ignored while the step index is at most this

    @property
    def sample_rate(self) -> int:
        """Sample rate of generated audio in Hz."""
        return self.vae.output_rate_hz

    @property
    def encode_rate_hz(self) -> int:
        """Sample rate in Hz to which recordings must be resampled."""
        return self.vae.encode_rate_hz

    @property
    def patch_samples(self) -> int:
        """Number of samples at `sample_rate` in one patch."""
        return self.patch_size * self.vae.decode_hop

    @property
    def patch_encode_samples(self) -> int:
        """Number of samples at `encode_rate_hz` in one patch."""
        return self.patch_size * self.vae.encode_hop

    @property
    def num_kv_layers(self) -> int:
        """Number of layers of the KV pool: the base LM's first, then the residual LM's."""
        return self.base.num_layers + self.residual.num_layers
