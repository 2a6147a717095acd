"""Small random checkpoints of every generation, the same on both sides of the comparison.

A weight's values depend only on its name and shape (NumPy's frozen legacy generator), so the goldens need not hold any.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

VOCAB_SIZE = 120
_FACTORS = [1.0, 1.1, 1.3, 1.7, 2.0, 2.4, 2.9, 3.5]


def _config(lm: dict[str, Any], **fields: Any) -> dict[str, Any]:
    rope = {"type": "longrope", "long_factor": _FACTORS, "short_factor": [1.0] * 8}
    lm_config = {
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": VOCAB_SIZE,
        "scale_emb": 12,
        "dim_model_base": 256,
        "scale_depth": 1.4,
        "rope_theta": 10000.0,
        "max_position_embeddings": 256,
        "rope_scaling": {**rope, "original_max_position_embeddings": 256},
        **lm,
    }
    if lm_config["max_position_embeddings"] == 512:  # longer than the original: long factors and an attention scale
        lm_config["rope_scaling"]["original_max_position_embeddings"] = 128
    local = {"hidden_dim": 64, "ffn_dim": 80, "num_heads": 4, "num_layers": 2, "kv_channels": 16}
    defaults = {
        "lm_config": lm_config,
        "feat_dim": 8,
        "residual_lm_num_layers": 2,
        "scalar_quantization_latent_dim": 16,
        "scalar_quantization_scale": 9,
        "encoder_config": {**local, "num_layers": 1},
        "dit_config": {**local, "cfm_config": {"sigma_min": 1e-6, "solver": "euler", "inference_cfg_rate": 2.0}},
        "max_length": 128,
        "device": "cpu",
        "dtype": "float32",
    }
    return {**defaults, **fields}


def _vae(**fields: Any) -> dict[str, Any]:
    return {"encoder_dim": 4, "latent_dim": 8, "decoder_dim": 24, "sample_rate": 16000, "depthwise": True, **fields}


_V2_VAE = _vae(encoder_rates=[2, 3], decoder_rates=[3, 2, 2], out_sample_rate=32000)

# The last two: small, room for speech of more than a hundred patches and for words in the tokenizer, odd rates only.
_LONG = {"hidden_size": 32, "intermediate_size": 48, "kv_channels": 16, "vocab_size": 512, "use_mup": True}

# name → config.json. Between them: muP and none in both architectures, both RoPE factor lists, head dim given and
# derived, a KV head for each, for some and for all heads, residual LM with and without RoPE, odd and even VAE rates,
# depthwise and dense VAE, three ways to condition on the rate and none, mean velocities in both architectures.
CONFIGS: dict[str, dict[str, Any]] = {
    "voxcpm_0_5b": _config(
        {"use_mup": True},
        architecture="voxcpm",
        patch_size=2,
        audio_vae_config=_vae(encoder_rates=[2, 3], decoder_rates=[3, 2]),
    ),
    "voxcpm_1_5": _config(
        {"use_mup": False, "max_position_embeddings": 512},
        architecture="voxcpm",
        patch_size=4,
        audio_vae_config=_vae(encoder_rates=[3, 4], decoder_rates=[4, 3], sample_rate=44100, depthwise=False),
    ),
    "voxcpm2": _config(
        {"use_mup": False, "kv_channels": 16, "num_attention_heads": 6},
        architecture="voxcpm2",
        patch_size=4,
        residual_lm_no_rope=True,
        audio_vae_config={**_V2_VAE, "sr_bin_boundaries": [20000, 30000, 40000], "cond_type": "scale_bias"},
    ),
    "voxcpm2_variant": _config(
        {"use_mup": False, "max_position_embeddings": 512},
        architecture="voxcpm2",
        patch_size=4,
        dit_config={
            "hidden_dim": 64,
            "ffn_dim": 80,
            "num_heads": 4,
            "num_layers": 2,
            "kv_channels": 16,
            "dit_mean_mode": True,
            "cfm_config": {"inference_cfg_rate": 2.0},
        },
        audio_vae_config={
            **_V2_VAE,
            "sr_bin_boundaries": [20000, 40000],
            "cond_type": "concat",
            "cond_dim": 5,
            "cond_out_layer": True,
        },
    ),
    "voxcpm2_no_rope": _config(  # the residual LM's positions are rotated although no other stack's are
        {"use_mup": False, "no_rope": True},
        architecture="voxcpm2",
        patch_size=2,
        residual_lm_no_rope=False,
        audio_vae_config=_vae(encoder_rates=[3], decoder_rates=[3], out_sample_rate=16000, sr_bin_boundaries=None),
    ),
    "voxcpm_mean": _config(
        {**_LONG, "num_key_value_heads": 4},
        architecture="voxcpm",
        patch_size=2,
        max_length=256,
        dit_mean_mode=True,
        audio_vae_config=_vae(encoder_rates=[3, 5], decoder_rates=[5, 3]),
    ),
    "voxcpm2_mup": _config(
        {**_LONG, "num_key_value_heads": 1},
        architecture="voxcpm2",
        patch_size=2,
        max_length=256,
        residual_lm_no_rope=True,
        audio_vae_config=_vae(
            encoder_rates=[3, 5],
            decoder_rates=[5, 3, 1],
            out_sample_rate=16000,
            sr_bin_boundaries=[10000, 20000],
            cond_type="add",
        ),
    ),
}


def random_weight(name: str, shape: tuple[int, ...]) -> Tensor:
    """Activations keep about their size from layer to layer; gains and snake rates scatter around their usual value."""
    values = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    leaf = name.rpartition(".")[2]
    if leaf == "weight_g":  # the last convolution stays small, or its tanh would hide differences
        values = (0.2 if shape == (1, 1, 1) else 0.7) * (1 + 0.2 * values)
    elif leaf == "alpha" or "norm" in name or "scale_embed" in name:
        values = 1 + 0.2 * values
    elif leaf == "bias" or "bias_embed" in name:
        values = 0.1 * values
    elif "embed" not in name and "special_token" not in name and leaf != "weight_v":
        values = values / np.sqrt(np.prod(shape[1:]))
    return torch.from_numpy(values.astype(np.float32).reshape(shape))


def random_weights(shapes: dict[str, list[int]]) -> dict[str, Tensor]:
    return {name: random_weight(name, tuple(shape)) for name, shape in shapes.items()}


def write_checkpoint(directory: Path, name: str, shapes: dict[str, list[int]]) -> Path:
    """A checkpoint directory in upstream's layout. `shapes`: of all weights, the VAE's prefixed with `audio_vae.`."""
    weights = random_weights({key: shape for key, shape in shapes.items() if "sr_bin_boundaries" not in key})
    vae = {key.removeprefix("audio_vae."): value for key, value in weights.items() if key.startswith("audio_vae.")}
    boundaries = CONFIGS[name]["audio_vae_config"].get("sr_bin_boundaries")
    if boundaries:
        vae["decoder.sr_bin_boundaries"] = torch.tensor(boundaries, dtype=torch.int32)
    rest = {key: value for key, value in weights.items() if not key.startswith("audio_vae.")}
    directory.mkdir(parents=True, exist_ok=True)
    save_file(rest, directory / "model.safetensors")
    save_file(vae, directory / "audiovae.safetensors")
    (directory / "config.json").write_text(json.dumps(CONFIGS[name]))
    write_tokenizer(directory / "tokenizer.json")
    return directory


def write_tokenizer(path: Path) -> None:
    """Characters only; both sides are given token ids, so this is here for completeness of the directory."""
    vocab = {"<unk>": 0, **{chr(ord("a") + i): 3 + i for i in range(26)}}
    model = {"type": "BPE", "unk_token": "<unk>", "vocab": vocab, "merges": []}
    path.write_text(json.dumps({"version": "1.0", "model": model}))
