"""config.json → `ModelConfig`, with every fault named."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from realtime_tts.errors import CheckpointError
from realtime_tts.model.config import AudioVAEConfig, ModelConfig, RopeConfig, TransformerConfig

logger = logging.getLogger(__name__)

ARCHITECTURES = ("voxcpm", "voxcpm2")
# Keys of real config.json files that do not change inference: training, the upstream runtime, the tokenizer.
_IGNORED_KEYS = frozenset(
    (
        *("architecture", "architectures", "auto_map", "model_type", "torch_dtype", "transformers_version", "version"),
        *("device", "bos_token_id", "eos_token_id", "pad_token_id", "dim_model_base", "initializer_range"),
        *("hidden_act", "attention_bias", "attention_dropout", "tie_word_embeddings", "use_cache", "cfm_config"),
    )
)


def read_config(path: str | Path) -> ModelConfig:
    """Read a config.json.

    Raises:
        CheckpointError: unreadable, no JSON object, another architecture, or a field missing or impossible.
    """
    try:
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"config.json cannot be read: {error}") from error
    return parse_config(raw)


def parse_config(raw: Any) -> ModelConfig:
    """The same from a parsed config.json."""
    if not isinstance(raw, Mapping):
        raise CheckpointError("config.json is not an object")
    architecture = str(raw.get("architecture", "voxcpm")).lower()
    if architecture not in ARCHITECTURES:
        raise CheckpointError(f"architecture {architecture!r} is not supported (only {', '.join(ARCHITECTURES)})")
    try:
        config = _model_config(_Section("", raw), is_v2=architecture == "voxcpm2")
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise CheckpointError(f"config.json is not a valid {architecture} config: {error!r}") from error
    _check(config)
    return config


class _Section:
    """A JSON object that remembers which of its keys were read, to name the ones nobody understood."""

    def __init__(self, name: str, raw: Mapping[str, Any]) -> None:
        if not isinstance(raw, Mapping):
            raise TypeError(f"{name} is not an object")
        self._name, self._raw, self._unread = name, raw, set(raw) - _IGNORED_KEYS

    def get(self, key: str, default: Any = None) -> Any:
        self._unread.discard(key)
        value = self._raw.get(key)
        return default if value is None else value

    def has(self, key: str) -> bool:
        return key in self._raw

    def __getitem__(self, key: str) -> Any:
        self._unread.discard(key)
        return self._raw[key]

    def section(self, key: str) -> _Section:
        return _Section(f"{self._name}{key}.", self[key])

    def warn_unread(self) -> None:
        for key in sorted(self._unread):
            logger.warning("config.json: unknown key %s%s is ignored", self._name, key)


def _model_config(raw: _Section, *, is_v2: bool) -> ModelConfig:
    lm = raw.section("lm_config")
    encoder, dit = raw.section("encoder_config"), raw.section("dit_config")
    base = _base_stack(lm)
    no_rope = bool(raw.get("residual_lm_no_rope", False)) if is_v2 else False
    num_residual = int(raw.get("residual_lm_num_layers", 8 if is_v2 else 6))
    use_mup = bool(lm.get("use_mup", True))
    config = ModelConfig(
        generation="voxcpm2" if is_v2 else "voxcpm",
        patch_size=int(raw.get("patch_size", 4 if is_v2 else 2)),
        latent_dim=int(raw.get("feat_dim", 64)),
        vocab_size=int(lm["vocab_size"]),
        max_length=int(raw.get("max_length", 8192 if is_v2 else 4096)),
        dtype=str(raw.get("dtype", "bfloat16")),
        embedding_scale=float(lm["scale_emb"]) if use_mup else 1.0,
        fsq_dim=int(raw.get("scalar_quantization_latent_dim", 512 if is_v2 else 256)),
        fsq_scale=int(raw.get("scalar_quantization_scale", 9)),
        base=base,
        residual=dataclasses.replace(
            base,
            num_layers=num_residual,
            residual_scale=_residual_scale(lm, num_residual),
            rope=None if no_rope else base.rope,
        ),
        encoder=_local_stack(encoder, lm, base),
        dit=_local_stack(dit, lm, base),
        dit_mean_mode=bool((dit if is_v2 else raw).get("dit_mean_mode", False)),
        vae=_vae_config(_Section("audio_vae_config.", raw.get("audio_vae_config", {})), is_v2=is_v2),
        concat_conditions=is_v2,
        supports_reference=is_v2,
        num_context_patches=3 if is_v2 else 2,
    )
    lm.get("scale_emb")  # not read without muP
    for section in (raw, lm, encoder, dit):
        section.warn_unread()
    return config


def _base_stack(lm: _Section) -> TransformerConfig:
    hidden, heads = int(lm["hidden_size"]), int(lm["num_attention_heads"])
    num_layers = int(lm["num_hidden_layers"])
    return TransformerConfig(
        num_layers=num_layers,
        hidden_size=hidden,
        intermediate_size=int(lm["intermediate_size"]),
        num_heads=heads,
        num_kv_heads=int(lm["num_key_value_heads"]),
        head_dim=int(lm.get("kv_channels", hidden // heads)),
        rms_norm_eps=float(lm["rms_norm_eps"]),
        residual_scale=_residual_scale(lm, num_layers),
        rope=None if lm.get("no_rope", False) else _rope(lm),
    )


def _local_stack(raw: _Section, lm: _Section, base: TransformerConfig) -> TransformerConfig:
    hidden, heads, num_layers = (
        int(raw.get(k, d)) for k, d in (("hidden_dim", 1024), ("num_heads", 16), ("num_layers", 4))
    )
    return dataclasses.replace(
        base,
        num_layers=num_layers,
        hidden_size=hidden,
        intermediate_size=int(raw.get("ffn_dim", 4096)),
        num_heads=heads,
        head_dim=int(raw.get("kv_channels", hidden // heads)),
        residual_scale=_residual_scale(lm, num_layers),
    )


def _residual_scale(lm: _Section, num_layers: int) -> float:
    depth = float(lm["scale_depth"])
    return depth / math.sqrt(num_layers) if lm.get("use_mup", True) else 1.0


def _rope(lm: _Section) -> RopeConfig:
    """LongRoPE: which factor list applies is decided by the configured maximum, never by the current length."""
    scaling = lm.section("rope_scaling")
    maximum, original = int(lm["max_position_embeddings"]), int(scaling["original_max_position_embeddings"])
    factors = scaling["long_factor" if maximum > original else "short_factor"]
    scale = math.sqrt(1 + math.log(maximum / original) / math.log(original))
    return RopeConfig(float(lm["rope_theta"]), tuple(float(f) for f in factors), scale, maximum)


def _vae_config(raw: _Section, *, is_v2: bool) -> AudioVAEConfig:
    if raw.get("use_noise_block", False):
        raise ValueError("audio_vae_config.use_noise_block is not supported")
    rate = int(raw.get("sample_rate", 16000))
    output_rate = int(raw.get("out_sample_rate", 48000)) if is_v2 else rate
    # An explicit null switches the condition off; a missing key means the default boundaries.
    boundaries = raw.get("sr_bin_boundaries") if raw.has("sr_bin_boundaries") else [20000, 30000, 40000]
    config = AudioVAEConfig(
        encoder_dim=int(raw.get("encoder_dim", 128)),
        encoder_rates=tuple(int(r) for r in raw.get("encoder_rates", [2, 5, 8, 8])),
        latent_dim=int(raw.get("latent_dim", 64)),
        decoder_dim=int(raw.get("decoder_dim", 2048 if is_v2 else 1536)),
        decoder_rates=tuple(int(r) for r in raw.get("decoder_rates", [8, 6, 5, 2, 2, 2] if is_v2 else [8, 8, 5, 2])),
        depthwise=bool(raw.get("depthwise", True)),
        encode_rate_hz=rate,
        output_rate_hz=output_rate,
        rate_boundaries_hz=tuple(sorted(boundaries)) if is_v2 and boundaries else (),
        condition_type=str(raw.get("cond_type", "scale_bias")),
        condition_dim=int(raw.get("cond_dim", 128)),
        condition_out_layer=bool(raw.get("cond_out_layer", False)),
        odd_stride_crop=is_v2,
    )
    raw.warn_unread()
    return config


def _check(config: ModelConfig) -> None:
    stacks = {"lm_config": config.base, "encoder_config": config.encoder, "dit_config": config.dit}
    for name, stack in stacks.items():
        numbers = dataclasses.astuple(stack)[:6]
        if min(numbers) <= 0:
            raise CheckpointError(f"{name}: sizes must be positive")
        if stack.num_heads % stack.num_kv_heads:
            raise CheckpointError(f"{name}: {stack.num_heads} heads cannot share {stack.num_kv_heads} KV heads")
        if stack.rope is not None and len(stack.rope.factors) * 2 != stack.head_dim:
            raise CheckpointError(f"{name}: {len(stack.rope.factors)} RoPE factors for head dim {stack.head_dim}")
    if config.latent_dim != config.vae.latent_dim:
        raise CheckpointError(f"feat_dim {config.latent_dim} differs from the VAE's latent_dim {config.vae.latent_dim}")
    if config.vae.condition_type not in ("scale_bias", "scale_bias_init", "add", "concat"):
        raise CheckpointError(f"audio_vae_config.cond_type {config.vae.condition_type!r} is not supported")
