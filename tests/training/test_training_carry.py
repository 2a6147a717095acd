"""What a run begins with is the voice itself, and the discriminators to two percent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from realtime_tts.model.voxcpm import VoxCPM
from training import carry
from training.export import export
from training.starter_config import starter_config, toy_config_map


def _call(monkeypatch: pytest.MonkeyPatch, action: str, folder: Path) -> None:
    options = ["--folder", str(folder / "weights"), "--build", str(folder), "--voice", str(folder / "voice")]
    monkeypatch.setattr(sys, "argv", ["carry", action, *options])
    carry.main()


def test_a_run_goes_on_from_a_voice_and_its_discriminators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = VoxCPM(starter_config(toy=True))
    state = {name: tensor.half().float() for name, tensor in model.state_dict().items()}
    vae = {name.removeprefix("vae."): tensor for name, tensor in state.items() if name.startswith("vae.")}
    tts = {name: tensor for name, tensor in state.items() if not name.startswith("vae.")}
    export(vae, tts, toy_config_map(), tmp_path / "voice")
    critics = {
        "wide.weight": torch.randn(6, 4, 3) * torch.logspace(-4, 2, 6)[:, None, None],
        "wide.bias": torch.randn(6),
        "zero.weight": torch.zeros(2, 2),
    }
    (tmp_path / "vae" / "decoder").mkdir(parents=True)
    torch.save(critics, tmp_path / "vae" / "decoder" / "critics.pt")
    _call(monkeypatch, "pack", tmp_path)
    _call(monkeypatch, "unpack", tmp_path)

    for name, wanted in (("vae/init.pt", vae), ("tts_init.pt", tts)):
        found = torch.load(tmp_path / name, weights_only=True)
        assert found.keys() == wanted.keys()
        for key, tensor in wanted.items():
            torch.testing.assert_close(found[key], tensor, atol=1e-4, rtol=1e-3)  # half precision
    found = torch.load(tmp_path / "vae" / "init_critics.pt", weights_only=True)
    for name, tensor in critics.items():
        assert found[name].shape == tensor.shape
        limit = tensor.abs().flatten(1).amax(1) / 250 if tensor.dim() > 1 else tensor.abs() / 1000 + 1e-6
        error = (found[name] - tensor).abs()
        assert ((error.flatten(1).amax(1) if tensor.dim() > 1 else error) <= limit).all()
