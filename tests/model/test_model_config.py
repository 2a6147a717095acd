from __future__ import annotations

import contextlib
import copy
import json
import logging
import math
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_checkpoints import CONFIGS

from realtime_tts.errors import CheckpointError
from realtime_tts.model.config_file import parse_config, read_config


def voxcpm2_map() -> dict:
    """The published VoxCPM2 config, as far as it matters."""
    local = {"hidden_dim": 1024, "ffn_dim": 4096, "num_heads": 16, "num_layers": 12, "kv_channels": 128}
    return {
        "architecture": "voxcpm2",
        "lm_config": {
            **CONFIGS["voxcpm2"]["lm_config"],
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_attention_heads": 16,
            "num_hidden_layers": 28,
            "kv_channels": 128,
            "vocab_size": 73448,
            "rope_scaling": {
                "type": "longrope",
                "long_factor": [2.0] * 64,
                "short_factor": [1.0] * 64,
                "original_max_position_embeddings": 32768,
            },
            "max_position_embeddings": 32768,
        },
        "residual_lm_no_rope": True,
        "encoder_config": local,
        "dit_config": {**local, "cfm_config": {}},
    }


def with_change(path: str, value) -> dict:
    raw = copy.deepcopy(CONFIGS["voxcpm2"])
    *parents, key = path.split(".")
    section = raw
    for parent in parents:
        section = section[parent]
    section[key] = value
    return raw


def test_voxcpm2_defaults_and_derived_sizes():
    config = parse_config(voxcpm2_map())
    assert (config.patch_size, config.latent_dim, config.max_length, config.fsq_dim) == (4, 64, 8192, 512)
    assert (config.sample_rate, config.encode_rate_hz) == (48000, 16000)
    assert (config.patch_samples, config.patch_encode_samples) == (7680, 2560)
    assert config.num_kv_layers == 36
    assert config.residual.rope is None
    assert config.base.rope is not None
    assert config.base.rope.factors == (1.0,) * 64
    assert config.base.rope.scale == 1.0
    assert config.vae.rate_bucket == 3  # 48 kHz is above all boundaries


def test_half_billion_model_defaults():
    raw = {key: value for key, value in CONFIGS["voxcpm_0_5b"].items() if key not in ("audio_vae_config", "feat_dim")}
    config = parse_config({**raw, "architecture": "voxcpm"})
    assert (config.patch_size, config.vae.decoder_dim, config.vae.decoder_rates) == (2, 1536, (8, 8, 5, 2))
    assert config.sample_rate == config.encode_rate_hz == 16000
    assert not config.supports_reference
    assert config.num_context_patches == 2


def test_a_missing_architecture_means_the_first_one():
    raw = {key: value for key, value in CONFIGS["voxcpm_1_5"].items() if key != "architecture"}
    assert not parse_config(raw).concat_conditions


def test_head_dim_is_kv_channels_and_only_without_them_hidden_over_heads():
    assert parse_config(CONFIGS["voxcpm2"]).base.head_dim == 16  # 64 hidden / 6 heads is not even whole
    assert parse_config(CONFIGS["voxcpm_0_5b"]).base.head_dim == 64 // 4


def test_mup_scales_apply_only_if_mup_is_used():
    with_mup, without = parse_config(CONFIGS["voxcpm_0_5b"]), parse_config(CONFIGS["voxcpm2"])
    assert with_mup.embedding_scale == 12
    assert with_mup.base.residual_scale == pytest.approx(1.4 / 3**0.5)
    assert with_mup.dit.residual_scale == pytest.approx(1.4 / 2**0.5)  # by each stack's own depth
    assert without.embedding_scale == without.base.residual_scale == 1.0


def test_long_factors_are_chosen_by_the_configured_maximum():
    config = parse_config(CONFIGS["voxcpm_1_5"])
    assert config.base.rope is not None
    assert config.base.rope.factors[-1] == 3.5
    assert config.base.rope.scale > 1


def test_an_explicit_null_switches_the_rate_condition_off():
    assert parse_config(with_change("audio_vae_config.sr_bin_boundaries", None)).vae.num_rate_buckets == 0
    assert parse_config(CONFIGS["voxcpm2"]).vae.num_rate_buckets == 4


def test_the_first_architecture_has_no_rate_condition_whatever_its_config_says(caplog):
    raw = copy.deepcopy(CONFIGS["voxcpm_1_5"])
    raw["audio_vae_config"]["sr_bin_boundaries"] = []
    with caplog.at_level(logging.WARNING):
        assert parse_config(raw) == parse_config(CONFIGS["voxcpm_1_5"])
    assert not caplog.records


def test_the_residual_lm_of_the_second_architecture_has_a_rope_flag_of_its_own():
    both = {
        (lm, residual): parse_config({**with_change("lm_config.no_rope", lm), "residual_lm_no_rope": residual})
        for lm in (False, True)
        for residual in (False, True)
    }
    assert {key: (config.base.rope is None, config.residual.rope is None) for key, config in both.items()} == {
        key: key for key in both
    }
    first = copy.deepcopy(CONFIGS["voxcpm_1_5"])
    first["lm_config"]["no_rope"] = True
    assert parse_config(first).residual.rope is None


def test_rope_keys_that_do_not_apply_are_not_called_unknown(caplog):
    raw = {**with_change("lm_config.no_rope", True), "residual_lm_no_rope": True}
    with caplog.at_level(logging.WARNING):
        parse_config(raw)
    assert not caplog.records


def test_the_residual_lms_positions_are_checked_too():
    raw = {**with_change("lm_config.no_rope", True), "residual_lm_no_rope": False, "max_length": 257}
    with pytest.raises(CheckpointError, match="max_length 257 is beyond max_position_embeddings 256"):
        parse_config(raw)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("architecture", "voxcpm3", "voxcpm3"),
        ("lm_config", [], "lm_config"),
        ("lm_config.hidden_size", "large", "large"),
        ("lm_config.num_attention_heads", 5, "5 heads"),
        ("lm_config.kv_channels", 24, "RoPE factors"),
        ("feat_dim", 16, "latent_dim"),
        ("dtype", "int3", "dtype must be one of .* not 'int3'"),
        ("dtype", 32, "dtype"),
        ("max_length", 257, "max_length 257 is beyond max_position_embeddings 256"),
        ("patch_size", 200, "patch_size 200 is too large"),
        ("lm_config.vocab_size", 104, "vocab_size 104 has no room for token 104"),
        ("lm_config.use_mup", "no", "lm_config.use_mup must be true or false"),
        ("lm_config.max_position_embeddings", 1, "at least 2"),
        ("lm_config.rope_scaling.short_factor", [], "short_factor must be a list"),
        ("lm_config.rope_scaling.short_factor", "11111111", "short_factor must be a list"),
        ("lm_config.rope_scaling.short_factor", [1.0] * 7 + [0.0], "short_factor must be a finite number above 0"),
        ("dit_config.hidden_dim", 65, "hidden_dim 65 is not even"),
        ("audio_vae_config.decoder_rates", [], "decoder_rates must be a list that is not empty"),
        ("audio_vae_config.decoder_rates", [3, 0], "decoder_rates must be a whole number from 1"),
        ("audio_vae_config.decoder_dim", 20, "decoder_dim 20 cannot be halved 3 times"),
        ("audio_vae_config.sr_bin_boundaries", [30000, 20000], "do not rise"),
        ("audio_vae_config.sr_bin_boundaries", [20000, 20000], "do not rise"),
        ("audio_vae_config.sr_bin_boundaries", [], "sr_bin_boundaries"),
        ("audio_vae_config.use_noise_block", True, "use_noise_block"),
        ("audio_vae_config.cond_type", "film", "film"),
        ("audio_vae_config.cond_type", "concat", "cond_out_layer"),
    ],
)
def test_an_impossible_config_is_refused_by_name(path, value, named):
    with pytest.raises(CheckpointError, match=named):
        parse_config(with_change(path, value))


def number_paths() -> list[str]:
    """Every number of a config that some model reads, as a path."""
    unread = {"bos_token_id", "eos_token_id", "dim_model_base", "scale_emb", "scale_depth"}

    def walk(section: dict, prefix: str) -> Iterator[str]:
        for key, value in section.items():
            if isinstance(value, dict) and key != "cfm_config":
                yield from walk(value, f"{prefix}{key}.")
            elif isinstance(value, (int, float)) and not isinstance(value, bool) and key not in unread:
                yield prefix + key

    return list(walk(CONFIGS["voxcpm2"], ""))


@pytest.mark.parametrize(
    "value", [0, -1, True, "7", [7], {}, math.nan, math.inf, -math.inf, 10**400], ids=lambda v: repr(v)[:8]
)
def test_every_number_must_be_one_and_above_zero(value):
    assert len(number_paths()) > 25
    for path in number_paths():
        with pytest.raises(CheckpointError, match=rf"config\.json: {re.escape(path)} must be"):
            parse_config(with_change(path, value))


@pytest.mark.parametrize("value", [0, -1.5, True, "12", math.nan, math.inf])
@pytest.mark.parametrize("key", ["scale_emb", "scale_depth"])
def test_mup_scales_are_checked_where_they_apply(key, value):
    raw = with_change(f"lm_config.{key}", value)
    parse_config(raw)
    raw["lm_config"]["use_mup"] = True
    with pytest.raises(CheckpointError, match=f"lm_config.{key} must be"):
        parse_config(raw)


def test_a_count_is_whole_but_may_be_written_as_a_float():
    assert parse_config(with_change("patch_size", 4.0)).patch_size == 4
    with pytest.raises(CheckpointError, match=r"patch_size must be a whole number from 1 to 1048576, not 4\.5"):
        parse_config(with_change("patch_size", 4.5))


def test_short_dtype_names_mean_the_long_ones():
    assert parse_config(with_change("dtype", "bf16")).dtype == "bfloat16"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=4), children, max_size=3),
    max_leaves=5,
)


@given(
    path=st.sampled_from([*number_paths(), "lm_config", "lm_config.rope_scaling", "dit_config", "audio_vae_config"]),
    value=JSON,
)
def test_whatever_stands_in_a_config_it_is_a_model_or_a_checkpoint_error(path, value):
    with contextlib.suppress(CheckpointError):
        config = parse_config(with_change(path, value))
        assert config.patch_samples > 0
        assert config.max_length <= 256


def test_a_missing_key_is_named():
    raw = copy.deepcopy(CONFIGS["voxcpm2"])
    del raw["lm_config"]["rms_norm_eps"]
    with pytest.raises(CheckpointError, match="rms_norm_eps"):
        parse_config(raw)


def test_unknown_keys_are_warned_about_and_known_harmless_ones_are_not(caplog):
    raw = with_change("lm_config.new_trick", 1)
    raw["lm_config"] |= {"initializer_range": 0.1, "model_type": "minicpm", "mean_mode": False}
    raw["dit_config"]["mean_mode"] = False  # in VoxCPM2's own file
    with caplog.at_level(logging.WARNING):
        parse_config(raw)
    assert [record.getMessage() for record in caplog.records] == [
        "config.json: unknown key lm_config.mean_mode is ignored",
        "config.json: unknown key lm_config.new_trick is ignored",
    ]


def test_unreadable_files_are_checkpoint_errors(tmp_path):
    (tmp_path / "config.json").write_text("{")
    for path in (tmp_path / "config.json", tmp_path / "none.json"):
        with pytest.raises(CheckpointError, match="cannot be read"):
            read_config(path)
    (tmp_path / "config.json").write_text(json.dumps([1]))
    with pytest.raises(CheckpointError, match="not an object"):
        read_config(tmp_path / "config.json")
