"""The shapes of the published checkpoints, as their config.json has them. Pure.

RoPE's factors are all one here: they change values, not work.
"""

from __future__ import annotations

from collections.abc import Sequence

Fields = dict[str, object]


def _language_model(hidden: int, ffn: int, layers: int, head_dim: int, **fields: object) -> Fields:
    factors, positions = [1.0] * (head_dim // 2), 32768
    sizes = {"hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers, "kv_channels": head_dim}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 2, "rms_norm_eps": 1e-5}
    tokens = {"vocab_size": 73_448, "bos_token_id": 1, "eos_token_id": 2}
    scaling = {"type": "longrope", "long_factor": factors, "short_factor": factors}
    rope = {"rope_scaling": {**scaling, "original_max_position_embeddings": positions}, "rope_theta": 10000.0}
    scales = {"use_mup": False, "scale_emb": 12, "dim_model_base": 256, "scale_depth": 1.4}
    return {**sizes, **heads, **tokens, **rope, "max_position_embeddings": positions, **scales, **fields}


def _shape(
    second: bool, lm: Fields, local: Sequence[int], vae: Sequence[object], quantised: int, **fields: object
) -> Fields:
    """Return the shape of a checkpoint of the first or the second generation.

    Args:
        local: of the encoder and the flow: width, width of the feed-forward layers, layers, heads, width of a head.
        vae: width and rates of the encoder, width and rates of the decoder, sample rates of encoder and decoder.
        quantised: width of the scalar quantisation.
    """
    sizes = dict(zip(("hidden_dim", "ffn_dim", "num_layers", "num_heads", "kv_channels"), local, strict=True))
    names = ("encoder_dim", "encoder_rates", "decoder_dim", "decoder_rates", "sample_rate", "out_sample_rate")
    flow = {"sigma_min": 1e-6, "solver": "euler", "t_scheduler": "log-norm", "inference_cfg_rate": 2.0}
    own: Fields = {"architecture": "voxcpm2", "residual_lm_no_rope": True} if second else {"architecture": "voxcpm"}
    dit = {**sizes, **({"dit_mean_mode": False} if second else {}), "cfm_config": flow}
    parts = {"lm_config": lm, "residual_lm_num_layers": 8, "encoder_config": sizes, "dit_config": dit}
    patches = {"patch_size": 4, "feat_dim": 64, "scalar_quantization_latent_dim": quantised}
    limits = {"scalar_quantization_scale": 9, "max_length": 8192, "device": "cuda", "dtype": "bfloat16"}
    shape = {**own, **parts, **patches, **limits, **fields}
    decoder = dict(zip(names, vae, strict=False)) | {"latent_dim": shape["feat_dim"]} | (_SECOND_VAE if second else {})
    return {**shape, "audio_vae_config": decoder}


_SECOND_VAE: Fields = {"depthwise": True, "use_noise_block": False, "sr_bin_boundaries": [20000, 30000, 40000]}
_SECOND_VAE |= {"cond_type": "scale_bias", "cond_dim": 128, "cond_out_layer": False}
_RATES = [2, 5, 8, 8]  # of an encoder for 16 kHz
_RATES2 = [8, 6, 5, 2, 2, 2]  # of a decoder for 48 kHz
_FIRST_LM = (1024, 4096, 24, 64)
_TINY_LM, _TINY = _language_model(64, 96, 2, 16, num_attention_heads=4, vocab_size=2048), (64, 80, 1, 4, 16)
_SMALL: Fields = {"residual_lm_num_layers": 1, "dtype": "float32"}
_TINY_VAE = (4, _RATES[::-1], 32, _RATES[::-1], 16000, 16000)
_HOLLOW_VAE = (4, _RATES, 64, _RATES2, 16000, 48000)
_VAE2 = (128, _RATES, 2048, _RATES2, 16000, 48000)
_VAE15 = (64, [2, 3, 6, 7, 7], 2048, [7, 7, 6, 3, 2], 44100)
_VAE05 = (128, _RATES, 1536, _RATES[::-1], 16000)

SHAPES = {
    "voxcpm2": _shape(True, _language_model(2048, 6144, 28, 128), (1024, 4096, 12, 16, 128), _VAE2, 512),
    "voxcpm1.5": _shape(False, _language_model(*_FIRST_LM), (1024, 4096, 8, 16, 64), _VAE15, 256),
    "voxcpm-0.5b": _shape(False, _language_model(*_FIRST_LM, use_mup=True), (1024, 4096, 4, 16, 64), _VAE05, 256)
    | {"residual_lm_num_layers": 6, "patch_size": 2, "max_length": 4096},
    # VoxCPM2 in everything but size: to try things out on any machine, in seconds.
    "tiny": _shape(True, _TINY_LM, _TINY, _TINY_VAE, 16, feat_dim=8, max_length=1024, **_SMALL),
    # VoxCPM2's patches and sound from models of hardly any size: to measure the host's work alone.
    "hollow": _shape(True, _TINY_LM, _TINY, _HOLLOW_VAE, 16, **_SMALL),
}
