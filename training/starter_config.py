"""The starter voice's architecture: a VoxCPM2 of 32 million parameters, as an ordinary config.json and tokenizer.

The latent rate (25 Hz), the patch (4 frames, 160 ms) and the special tokens are VoxCPM2's. The VAE's encoder leaves
24 kHz early (it divides the rate by 8 first). Its decoder halves its channels while the rate rises about fourfold, so
that each of its five blocks costs about the same.
"""

from __future__ import annotations

from typing import Any

from realtime_tts.model.config import ModelConfig
from realtime_tts.model.config_file import parse_config
from realtime_tts.model.sequence import AUDIO_END, AUDIO_START, REFERENCE_END, REFERENCE_START
from training.speakers import SAMPLE_RATE_HZ, VOICES

LETTER_IDS = {char: 3 + index for index, char in enumerate("abcdefghijklmnopqrstuvwxyz ,.?!'-")}
VOICE_IDS = {f"<{voice}>": 40 + index for index, voice in enumerate(VOICES)}
_HEAD_DIM = 64


def config_map() -> dict[str, Any]:
    """The starter voice's config.json."""
    factors = [1.0] * (_HEAD_DIM // 2)
    return {
        "architecture": "voxcpm2",
        "lm_config": {
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_size": 448,
            "intermediate_size": 1152,
            "max_position_embeddings": 2048,
            "num_attention_heads": 8,
            "num_hidden_layers": 6,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-5,
            "rope_scaling": {
                "type": "longrope",
                "long_factor": factors,
                "short_factor": factors,
                "original_max_position_embeddings": 2048,
            },
            "vocab_size": 128,
            "use_mup": False,
            "scale_emb": 1,
            "dim_model_base": 256,
            "scale_depth": 1.4,
            "rope_theta": 10000.0,
            "kv_channels": _HEAD_DIM,
        },
        "patch_size": 4,
        "feat_dim": 64,
        "residual_lm_num_layers": 1,
        "residual_lm_no_rope": True,
        "scalar_quantization_latent_dim": 64,
        "scalar_quantization_scale": 9,
        "encoder_config": {
            "hidden_dim": 256,
            "ffn_dim": 512,
            "num_heads": 4,
            "num_layers": 1,
            "kv_channels": _HEAD_DIM,
        },
        "dit_config": {
            "hidden_dim": 320,
            "ffn_dim": 896,
            "num_heads": 6,
            "num_layers": 5,
            "kv_channels": _HEAD_DIM,
            "dit_mean_mode": False,
            "cfm_config": {"sigma_min": 1e-6, "solver": "euler", "t_scheduler": "log-norm", "inference_cfg_rate": 2.0},
        },
        "audio_vae_config": {
            "encoder_dim": 32,
            "encoder_rates": [8, 6, 5, 4],
            "latent_dim": 64,
            "decoder_dim": 1024,
            "decoder_rates": [4, 4, 4, 5, 3],
            "depthwise": True,
            "sample_rate": SAMPLE_RATE_HZ,
            "out_sample_rate": SAMPLE_RATE_HZ,
            "use_noise_block": False,
            "sr_bin_boundaries": None,
            "cond_type": "scale_bias",
            "cond_dim": 128,
            "cond_out_layer": False,
        },
        "max_length": 1024,
        "device": "cpu",
        "dtype": "float32",
    }


def toy_config_map() -> dict[str, Any]:
    """The same shape at a size that trains a step in milliseconds on a CPU, for tests."""
    raw = config_map()
    raw["lm_config"] |= {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_hidden_layers": 2}
    raw["lm_config"] |= {"num_key_value_heads": 1, "kv_channels": 16}
    raw["lm_config"]["rope_scaling"] |= {"long_factor": [1.0] * 8, "short_factor": [1.0] * 8}
    for name in ("encoder_config", "dit_config"):
        raw[name] |= {"hidden_dim": 32, "ffn_dim": 48, "num_heads": 2, "num_layers": 1, "kv_channels": 16}
    raw["feat_dim"] = 8
    raw["audio_vae_config"] |= {"encoder_dim": 4, "latent_dim": 8, "decoder_dim": 64}
    return raw


def starter_config(*, toy: bool = False) -> ModelConfig:
    return parse_config(toy_config_map() if toy else config_map())


def taught_head(config: ModelConfig) -> tuple[int, int]:
    """Layer and head of the base LM that training teaches to follow the text (`text_following`).

    The layers before it find the place in the text, and those after it use what it reads.
    """
    return 2 * config.base.num_layers // 3, 0


def tokenizer_map() -> dict[str, Any]:
    """tokenizer.json: one token a character, lower-cased; voices and audio marks are special tokens."""
    special = {"<unk>": 0, "<s>": 1, "</s>": 2, **VOICE_IDS}
    special |= {"<|audio_start|>": AUDIO_START, "<|audio_end|>": AUDIO_END}
    special |= {"<|ref_audio_start|>": REFERENCE_START, "<|ref_audio_end|>": REFERENCE_END}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": content, **flags} for content, index in special.items()],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": dict(sorted((special | LETTER_IDS).items(), key=lambda item: item[1])),
            "merges": [],
        },
    }
