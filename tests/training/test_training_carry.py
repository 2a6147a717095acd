"""Weights in eight bits come back as they were, to half a percent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from training import carry


def test_weights_survive_eight_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    vae = {"a.weight": torch.randn(6, 4, 3) * torch.logspace(-4, 2, 6)[:, None, None], "a.bias": torch.randn(6)}
    tts = {"b.weight": torch.randn(5, 8), "zero.weight": torch.zeros(2, 2)}
    critics = {"c.weight": torch.randn(3, 2, 5, 1)}
    trained = {"vae/decoder/vae.pt": vae, "vae/decoder/critics.pt": critics, "tts/tts.pt": tts}
    for name, state in trained.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, tmp_path / name)
    for action in ("pack", "unpack"):
        folders = ["--folder", str(tmp_path / "weights"), "--build", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", ["carry", action, *folders])
        carry.main()
    back = {}
    for name in ("vae/init.pt", "vae/init_critics.pt", "tts_init.pt"):
        back |= torch.load(tmp_path / name, weights_only=True)
    for name, tensor in {**vae, **critics, **tts}.items():
        assert back[name].shape == tensor.shape
        limit = tensor.abs().flatten(1).amax(1) / 250 if tensor.dim() > 1 else tensor.abs() / 1000 + 1e-6
        error = (back[name] - tensor).abs()
        assert ((error.flatten(1).amax(1) if tensor.dim() > 1 else error) <= limit).all()
