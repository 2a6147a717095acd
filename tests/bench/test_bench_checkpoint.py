"""Random checkpoints of real shapes: every shape is one that can be served; what is written loads and speaks on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from realtime_tts.bench.checkpoint import write_random_checkpoint
from realtime_tts.bench.shapes import SHAPES
from realtime_tts.bench.texts import LONG_TEXT, SENTENCES, TURN
from realtime_tts.cli.main import cli
from realtime_tts.errors import ConfigError
from realtime_tts.model.checkpoint import Uninitialised, load_model
from realtime_tts.model.config_file import parse_config
from realtime_tts.model.voxcpm import VoxCPM


def num_parameters(module: torch.nn.Module) -> float:
    """In millions."""
    return sum(parameter.numel() for parameter in module.parameters()) / 1e6


def test_voxcpm2_has_the_published_sizes() -> None:
    config = parse_config(SHAPES["voxcpm2"])
    with torch.device("meta"), Uninitialised():
        model = VoxCPM(config)
    assert num_parameters(model.base_lm) == pytest.approx(1472, abs=1)
    assert num_parameters(model.residual_lm) == pytest.approx(378, abs=1)
    assert num_parameters(model.feat_encoder) == pytest.approx(208, abs=1)
    assert num_parameters(model.feat_decoder) == pytest.approx(212, abs=1)
    assert num_parameters(model.vae) == pytest.approx(94, abs=1)
    assert (config.sample_rate, config.patch_samples) == (48_000, 7680)


@pytest.mark.parametrize(("shape", "rate", "patch_ms"), [("voxcpm1.5", 44_100, 160), ("voxcpm-0.5b", 16_000, 80)])
def test_the_first_generation_has_its_rates(shape: str, rate: int, patch_ms: float) -> None:
    config = parse_config(SHAPES[shape])
    assert config.sample_rate == rate
    assert 1000 * config.patch_samples / rate == patch_ms


def test_what_is_written_loads_strictly_and_never_stops(tiny_directory: Path) -> None:
    loaded = load_model(tiny_directory)
    assert loaded.name == "random-tiny"
    hidden = torch.randn(50, loaded.config.base.hidden_size)
    assert not loaded.model.stop_flags(hidden).any()
    for name, parameter in loaded.model.named_parameters():
        assert parameter.isfinite().all(), name
        assert "stop_head" in name or parameter.any(), name


def test_its_tokenizer_knows_our_words_and_spells_all_others(tiny_directory: Path) -> None:
    tokenizer = load_model(tiny_directory).tokenizer
    for text in (*SENTENCES, LONG_TEXT, TURN):
        assert len(tokenizer.encode(text)) < len(text) / 3
    located = tokenizer.encode_located("naïve 😀 中文")
    covered = {index for token in located for index in range(token.start, token.end)}
    assert covered >= {index for index, character in enumerate("naïve 😀 中文") if character != " "}
    assert min(token.id for token in located) > 104
    assert all(token.id > 104 for token in tokenizer.encode_located("<|audio_start|>"))


def test_the_seed_is_all_that_decides(tiny_directory: Path, tmp_path: Path) -> None:
    for name, seed in (("again", 0), ("other", 1)):
        write_random_checkpoint(tmp_path / name, "tiny", seed=seed)
    weights = (tiny_directory / "model.safetensors").read_bytes()
    assert (tmp_path / "again/model.safetensors").read_bytes() == weights
    assert (tmp_path / "other/model.safetensors").read_bytes() != weights


def test_the_dtype_is_that_of_the_language_models_alone(tmp_path: Path) -> None:
    config = write_random_checkpoint(tmp_path, "tiny", dtype="bfloat16")
    loaded = load_model(tmp_path, dtype=config.dtype)
    assert loaded.model.dtype is torch.bfloat16
    assert loaded.model.vae.encoder.fc_mu.weight.dtype is torch.float32


def test_the_command_keeps_what_is_there(tmp_path: Path) -> None:
    arguments = ["bench", "checkpoint", str(tmp_path / "new"), "--shape", "tiny"]
    first = CliRunner().invoke(cli, arguments)
    assert first.exit_code == 0, first.output
    assert "MB" in first.stdout
    again = CliRunner().invoke(cli, arguments)
    assert isinstance(again.exception, ConfigError)
    assert CliRunner().invoke(cli, [*arguments, "--force"]).exit_code == 0


def test_an_unknown_shape_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="voxcpm2"):
        write_random_checkpoint(tmp_path, "voxcpm3")
