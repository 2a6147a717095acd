"""Parses config.json into a `ModelConfig`. Errors name the faulty key."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeGuard

from realtime_tts.errors import CheckpointError
from realtime_tts.model.config import AudioVAEConfig, ModelConfig, RopeConfig, TransformerConfig
from realtime_tts.model.sequence import REFERENCE_END

logger = logging.getLogger(__name__)

ARCHITECTURES = ("voxcpm", "voxcpm2")
_CONDITION_TYPES = ("scale_bias", "scale_bias_init", "add", "concat")
_DTYPES = {name: name for name in ("float32", "bfloat16", "float16")}
_DTYPES |= {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
# Upper bound for sizes, counts and rates of a model, so that a damaged file cannot cause huge allocations.
_MAX_COUNT = 2**20
# Keys of real config.json files that no code may read: most are for training, the upstream runtime, the tokenizer.
_IGNORED_KEYS = frozenset(
    (
        *("architecture", "architectures", "auto_map", "model_type", "torch_dtype", "transformers_version", "version"),
        *("device", "bos_token_id", "eos_token_id", "pad_token_id", "dim_model_base", "initializer_range"),
        *("hidden_act", "attention_bias", "attention_dropout", "tie_word_embeddings", "use_cache", "cfm_config"),
        "dit_config.mean_mode",  # VoxCPM2's own file has it; upstream reads dit_mean_mode alone
        # Read only with muP, with RoPE, and in the second generation.
        *("lm_config.scale_emb", "lm_config.scale_depth", "lm_config.rope_scaling", "lm_config.rope_theta"),
        *("lm_config.max_position_embeddings", "audio_vae_config.sr_bin_boundaries"),
    )
)


def read_config(path: str | Path) -> ModelConfig:
    """Read a config.json.

    Raises:
        CheckpointError: unreadable, not a JSON object, another architecture, or a field that is missing or invalid.
    """
    try:
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"config.json cannot be read: {error}") from error
    return parse_config(raw)


def parse_config(raw: object) -> ModelConfig:
    """Return the model's shape from a parsed config.json. Raises as `read_config`."""
    section = _Section("", raw)
    architecture = str(section.get("architecture", "voxcpm")).lower()
    if architecture not in ARCHITECTURES:
        raise CheckpointError(f"architecture {architecture!r} is not supported (only {', '.join(ARCHITECTURES)})")
    config = _model_config(section, is_v2=architecture == "voxcpm2")
    _check(config)
    return config


def dtype_name(name: str) -> str:
    """Return a dtype's full name for a spelling in configs. Raises CheckpointError for any other."""
    if name not in _DTYPES:
        raise CheckpointError(f"dtype {name!r} is not one of {', '.join(_DTYPES)}")
    return _DTYPES[name]


class _Section:
    """A JSON object read by type. It records the keys that were read, to report those that no code understands.

    Where a default is given, a missing key and an explicit null mean it; without one they are errors.
    """

    def __init__(self, name: str, raw: object) -> None:
        if not isinstance(raw, Mapping):
            raise CheckpointError(f"config.json: {name.rstrip('.') or 'the whole'} is not an object")
        self._name, self._raw = name, raw
        self._unread = {key for key in raw if not {key, f"{name}{key}"} & _IGNORED_KEYS}

    def get(self, key: str, default: object = None) -> object:
        self._unread.discard(key)
        value = self._raw.get(key)
        if value is None and default is None:
            raise CheckpointError(f"config.json: {self._name}{key} is missing")
        return default if value is None else value

    def is_null(self, key: str) -> bool:
        """Return whether the key exists with an explicit null."""
        return key in self._raw and self._raw[key] is None

    def count(self, key: str, default: int | None = None) -> int:
        """Return a whole number from 1 to `_MAX_COUNT`."""
        return self._count(key, self.get(key, default))

    def counts(self, key: str, default: Sequence[int]) -> tuple[int, ...]:
        """Return a non-empty list of whole numbers from 1 to `_MAX_COUNT`."""
        return tuple(self._count(key, value) for value in self._list(key, self.get(key, default)))

    def number(self, key: str) -> float:
        """Return a finite number above 0."""
        return self._number(key, self.get(key))

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return a non-empty list of finite numbers above 0."""
        return tuple(self._number(key, value) for value in self._list(key, self.get(key)))

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false", value)
        return value

    def choice(self, key: str, default: str, choices: Sequence[str]) -> str:
        value = self.get(key, default)
        if value not in choices:
            raise self.wrong(key, f"one of {', '.join(choices)}", value)
        return str(value)

    def section(self, key: str, default: Mapping[str, object] | None = None) -> _Section:
        return _Section(f"{self._name}{key}.", self.get(key, default))

    def warn_unread(self) -> None:
        for key in sorted(self._unread):
            logger.warning("config.json: unknown key %s%s is ignored", self._name, key)

    def wrong(self, key: str, what: str, value: object) -> CheckpointError:
        return CheckpointError(f"config.json: {self._name}{key} must be {what}, not {value!r:.40}")

    def _count(self, key: str, value: object) -> int:
        if not _is_number(value) or not 1 <= value <= _MAX_COUNT or value != int(value):
            raise self.wrong(key, f"a whole number from 1 to {_MAX_COUNT}", value)
        return int(value)

    def _number(self, key: str, value: object) -> float:
        if not _is_number(value) or not 0 < value <= sys.float_info.max:
            raise self.wrong(key, "a finite number above 0", value)
        return float(value)

    def _list(self, key: str, value: object) -> Sequence[object]:
        if not isinstance(value, (list, tuple)) or not value:
            raise self.wrong(key, "a list that is not empty", value)
        return value


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _model_config(raw: _Section, *, is_v2: bool) -> ModelConfig:
    lm = raw.section("lm_config")
    encoder, dit = raw.section("encoder_config"), raw.section("dit_config")
    base = _base_stack(lm)
    no_rope = raw.flag("residual_lm_no_rope", False) if is_v2 else base.rope is None
    num_residual = raw.count("residual_lm_num_layers", 8 if is_v2 else 6)
    config = ModelConfig(
        patch_size=raw.count("patch_size", 4 if is_v2 else 2),
        latent_dim=raw.count("feat_dim", 64),
        vocab_size=lm.count("vocab_size"),
        max_length=raw.count("max_length", 8192 if is_v2 else 4096),
        dtype=_DTYPES[raw.choice("dtype", "bfloat16", tuple(_DTYPES))],
        embedding_scale=lm.number("scale_emb") if lm.flag("use_mup", True) else 1.0,
        fsq_dim=raw.count("scalar_quantization_latent_dim", 512 if is_v2 else 256),
        fsq_scale=raw.count("scalar_quantization_scale", 9),
        base=base,
        residual=dataclasses.replace(
            base,
            num_layers=num_residual,
            residual_scale=_residual_scale(lm, num_residual),
            rope=None if no_rope else _rope(lm),
        ),
        encoder=_local_stack(encoder, lm, base),
        dit=_local_stack(dit, lm, base),
        dit_mean_mode=(dit if is_v2 else raw).flag("dit_mean_mode", False),
        vae=_vae_config(raw.section("audio_vae_config", {}), is_v2=is_v2),
        concat_conditions=is_v2,
        supports_reference=is_v2,
        num_context_patches=3 if is_v2 else 2,
    )
    for section in (raw, lm, encoder, dit):
        section.warn_unread()
    return config


def _base_stack(lm: _Section) -> TransformerConfig:
    hidden, heads = lm.count("hidden_size"), lm.count("num_attention_heads")
    num_layers = lm.count("num_hidden_layers")
    return TransformerConfig(
        num_layers=num_layers,
        hidden_size=hidden,
        intermediate_size=lm.count("intermediate_size"),
        num_heads=heads,
        num_kv_heads=lm.count("num_key_value_heads"),
        head_dim=lm.count("kv_channels", hidden // heads),
        rms_norm_eps=lm.number("rms_norm_eps"),
        residual_scale=_residual_scale(lm, num_layers),
        rope=None if lm.flag("no_rope", False) else _rope(lm),
    )


def _local_stack(raw: _Section, lm: _Section, base: TransformerConfig) -> TransformerConfig:
    hidden, heads = raw.count("hidden_dim", 1024), raw.count("num_heads", 16)
    num_layers = raw.count("num_layers", 4)
    return dataclasses.replace(
        base,
        num_layers=num_layers,
        hidden_size=hidden,
        intermediate_size=raw.count("ffn_dim", 4096),
        num_heads=heads,
        head_dim=raw.count("kv_channels", hidden // heads),
        residual_scale=_residual_scale(lm, num_layers),
    )


def _residual_scale(lm: _Section, num_layers: int) -> float:
    return lm.number("scale_depth") / math.sqrt(num_layers) if lm.flag("use_mup", True) else 1.0


def _rope(lm: _Section) -> RopeConfig:
    """Return LongRoPE's parameters. The configured maximum selects the list of factors, never the current length."""
    scaling = lm.section("rope_scaling")
    maximum, original = lm.count("max_position_embeddings"), scaling.count("original_max_position_embeddings")
    if min(maximum, original) < 2:
        raise lm.wrong("max_position_embeddings", "at least 2, also the original one", min(maximum, original))
    factors = scaling.numbers("long_factor" if maximum > original else "short_factor")
    scale = math.sqrt(1 + math.log(maximum / original) / math.log(original))
    return RopeConfig(lm.number("rope_theta"), factors, scale, maximum)


def _vae_config(raw: _Section, *, is_v2: bool) -> AudioVAEConfig:
    if raw.flag("use_noise_block", False):
        raise CheckpointError("config.json: audio_vae_config.use_noise_block is not supported")
    rate = raw.count("sample_rate", 16000)
    # An explicit null switches the condition off; a missing key means the default boundaries.
    has_condition = is_v2 and not raw.is_null("sr_bin_boundaries")
    boundaries = raw.counts("sr_bin_boundaries", (20000, 30000, 40000)) if has_condition else ()
    config = AudioVAEConfig(
        encoder_dim=raw.count("encoder_dim", 128),
        encoder_rates=raw.counts("encoder_rates", (2, 5, 8, 8)),
        latent_dim=raw.count("latent_dim", 64),
        decoder_dim=raw.count("decoder_dim", 2048 if is_v2 else 1536),
        decoder_rates=raw.counts("decoder_rates", (8, 6, 5, 2, 2, 2) if is_v2 else (8, 8, 5, 2)),
        depthwise=raw.flag("depthwise", True),
        encode_rate_hz=rate,
        output_rate_hz=raw.count("out_sample_rate", 48000) if is_v2 else rate,
        rate_boundaries_hz=boundaries,
        condition_type=raw.choice("cond_type", "scale_bias", _CONDITION_TYPES),
        condition_dim=raw.count("cond_dim", 128),
        condition_out_layer=raw.flag("cond_out_layer", False),
        odd_stride_crop=is_v2,
    )
    raw.warn_unread()
    return config


def _check(config: ModelConfig) -> None:
    """Check that the fields fit each other."""
    lms = (("lm_config", config.base), ("lm_config", config.residual))
    for name, stack in (*lms, ("encoder_config", config.encoder), ("dit_config", config.dit)):
        if stack.num_heads % stack.num_kv_heads:
            raise CheckpointError(f"{name}: {stack.num_heads} heads cannot share {stack.num_kv_heads} KV heads")
        if stack.rope is not None and len(stack.rope.factors) * 2 != stack.head_dim:
            raise CheckpointError(f"{name}: {len(stack.rope.factors)} RoPE factors for head dim {stack.head_dim}")
    if config.dit.hidden_size < 4 or config.dit.hidden_size % 2:
        raise CheckpointError(f"dit_config.hidden_dim {config.dit.hidden_size} is not even and at least 4")
    if config.vocab_size <= REFERENCE_END:
        raise CheckpointError(f"lm_config.vocab_size {config.vocab_size} has no room for token {REFERENCE_END}")
    if config.latent_dim != config.vae.latent_dim:
        raise CheckpointError(f"feat_dim {config.latent_dim} differs from the VAE's latent_dim {config.vae.latent_dim}")
    rope = config.base.rope or config.residual.rope
    if rope is not None:
        _check_positions(config, rope.max_position)
    _check_vae(config.vae)


def _check_positions(config: ModelConfig, max_position: int) -> None:
    if config.max_length > max_position:
        raise CheckpointError(f"max_length {config.max_length} is beyond max_position_embeddings {max_position}")
    num_local = 2 * config.patch_size + 3  # the flow's tokens: condition, time, the patch before and the patch
    if num_local > max_position:
        raise CheckpointError(f"patch_size {config.patch_size} is too large for {max_position} positions")


def _check_vae(vae: AudioVAEConfig) -> None:
    if vae.decoder_dim % 2 ** len(vae.decoder_rates):
        raise CheckpointError(
            f"audio_vae_config.decoder_dim {vae.decoder_dim} cannot be halved {len(vae.decoder_rates)} times"
        )
    if list(vae.rate_boundaries_hz) != sorted(set(vae.rate_boundaries_hz)):
        raise CheckpointError(f"audio_vae_config.sr_bin_boundaries {list(vae.rate_boundaries_hz)} do not rise")
    if vae.num_rate_buckets and vae.condition_type == "concat" and not vae.condition_out_layer:
        raise CheckpointError("audio_vae_config.cond_type 'concat' needs cond_out_layer")
