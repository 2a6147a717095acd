"""The shapes of the published checkpoints, as their config.json has them. Pure.

RoPE's factors are all one here: they change values, not work.
"""

from __future__ import annotations

from typing import Any

_VOCAB_SIZE = 73_448
_FLOW = {"sigma_min": 1e-6, "solver": "euler", "t_scheduler": "log-norm", "inference_cfg_rate": 2.0}


def _language_model(hidden: int, ffn: int, layers: int, head_dim: int, **fields: Any) -> dict[str, Any]:
    factors = [1.0] * (head_dim // 2)
    return {
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "kv_channels": head_dim,
        "vocab_size": _VOCAB_SIZE,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 32768,
        "rope_scaling": {
            "type": "longrope",
            "long_factor": factors,
            "short_factor": factors,
            "original_max_position_embeddings": 32768,
        },
        "use_mup": False,
        "scale_emb": 12,
        "dim_model_base": 256,
        "scale_depth": 1.4,
        **fields,
    }


def _local(hidden: int, ffn: int, layers: int, heads: int, head_dim: int, **fields: Any) -> dict[str, Any]:
    sizes = {"hidden_dim": hidden, "ffn_dim": ffn, "num_layers": layers, "num_heads": heads, "kv_channels": head_dim}
    return {**sizes, **fields}


_VOXCPM2: dict[str, Any] = {
    "architecture": "voxcpm2",
    "lm_config": _language_model(2048, 6144, 28, 128),
    "patch_size": 4,
    "feat_dim": 64,
    "residual_lm_num_layers": 8,
    "residual_lm_no_rope": True,
    "scalar_quantization_latent_dim": 512,
    "scalar_quantization_scale": 9,
    "encoder_config": _local(1024, 4096, 12, 16, 128),
    "dit_config": _local(1024, 4096, 12, 16, 128, dit_mean_mode=False, cfm_config=_FLOW),
    "audio_vae_config": {
        "encoder_dim": 128,
        "encoder_rates": [2, 5, 8, 8],
        "latent_dim": 64,
        "decoder_dim": 2048,
        "decoder_rates": [8, 6, 5, 2, 2, 2],
        "depthwise": True,
        "sample_rate": 16000,
        "out_sample_rate": 48000,
        "use_noise_block": False,
        "sr_bin_boundaries": [20000, 30000, 40000],
        "cond_type": "scale_bias",
        "cond_dim": 128,
        "cond_out_layer": False,
    },
    "max_length": 8192,
    "device": "cuda",
    "dtype": "bfloat16",
}

_VOXCPM15: dict[str, Any] = {
    "architecture": "voxcpm",
    "lm_config": _language_model(1024, 4096, 24, 64),
    "patch_size": 4,
    "feat_dim": 64,
    "residual_lm_num_layers": 8,
    "scalar_quantization_latent_dim": 256,
    "scalar_quantization_scale": 9,
    "encoder_config": _local(1024, 4096, 8, 16, 64),
    "dit_config": _local(1024, 4096, 8, 16, 64, cfm_config=_FLOW),
    "audio_vae_config": {
        "encoder_dim": 64,
        "encoder_rates": [2, 3, 6, 7, 7],
        "latent_dim": 64,
        "decoder_dim": 2048,
        "decoder_rates": [7, 7, 6, 3, 2],
        "sample_rate": 44100,
    },
    "max_length": 8192,
    "device": "cuda",
    "dtype": "bfloat16",
}

_VOXCPM05: dict[str, Any] = {
    **_VOXCPM15,
    "lm_config": _language_model(1024, 4096, 24, 64, use_mup=True),
    "patch_size": 2,
    "residual_lm_num_layers": 6,
    "encoder_config": _local(1024, 4096, 4, 16, 64),
    "dit_config": _local(1024, 4096, 4, 16, 64, cfm_config=_FLOW),
    "audio_vae_config": {
        "encoder_dim": 128,
        "encoder_rates": [2, 5, 8, 8],
        "latent_dim": 64,
        "decoder_dim": 1536,
        "decoder_rates": [8, 8, 5, 2],
        "sample_rate": 16000,
    },
    "max_length": 4096,
}

# VoxCPM2 in everything but size: to try things out on any machine, in seconds.
_TINY: dict[str, Any] = {
    **_VOXCPM2,
    "lm_config": _language_model(64, 96, 2, 16, num_attention_heads=4, vocab_size=2048, max_position_embeddings=32768),
    "feat_dim": 8,
    "residual_lm_num_layers": 1,
    "scalar_quantization_latent_dim": 16,
    "encoder_config": _local(64, 80, 1, 4, 16),
    "dit_config": _local(64, 80, 1, 4, 16, dit_mean_mode=False, cfm_config=_FLOW),
    "audio_vae_config": {
        **_VOXCPM2["audio_vae_config"],
        "encoder_dim": 4,
        "encoder_rates": [8, 8, 5, 2],
        "latent_dim": 8,
        "decoder_dim": 32,
        "decoder_rates": [8, 8, 5, 2],
        "out_sample_rate": 16000,
    },
    "max_length": 1024,
    "dtype": "float32",
}

# VoxCPM2's patches and sound from models of hardly any size: to see what the host does for them.
_HOLLOW: dict[str, Any] = {
    **_TINY,
    "feat_dim": _VOXCPM2["feat_dim"],
    "audio_vae_config": {**_VOXCPM2["audio_vae_config"], "encoder_dim": 4, "decoder_dim": 64},
    "max_length": _VOXCPM2["max_length"],
}

SHAPES: dict[str, dict[str, Any]] = {
    "voxcpm2": _VOXCPM2,
    "voxcpm1.5": _VOXCPM15,
    "voxcpm-0.5b": _VOXCPM05,
    "tiny": _TINY,
    "hollow": _HOLLOW,
}
