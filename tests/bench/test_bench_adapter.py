"""The random adapter is one that a server loads, and that is written over no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from realtime_tts.cli.main import cli
from realtime_tts.errors import ConfigError
from realtime_tts.model.adapted import AdapterLimits
from realtime_tts.model.adapter_file import read_adapter
from realtime_tts.model.checkpoint import load_model


def test_a_server_reads_what_the_command_writes(tiny_directory: Path, tmp_path: Path) -> None:
    runner, command = (
        CliRunner(),
        ["bench", "adapter", str(tmp_path / "a"), "--model", str(tiny_directory), "--rank", "2"],
    )
    result = runner.invoke(cli, command, catch_exceptions=False)
    assert "say --adapter" in result.output
    adapter = read_adapter("a", tmp_path / "a", load_model(tiny_directory).model, AdapterLimits(max_rank=2))
    assert adapter.rank == 2
    assert all(down.any() and up.any() for down, up in adapter.updates.values())

    written = (tmp_path / "a" / "lora_weights.safetensors").read_bytes()
    with pytest.raises(ConfigError, match="already"):
        runner.invoke(cli, [*command, "--seed", "1"], catch_exceptions=False, standalone_mode=False)
    assert (tmp_path / "a" / "lora_weights.safetensors").read_bytes() == written
