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
    for name, state in (("vae", vae), ("tts", tts)):
        torch.save(state, tmp_path / f"{name}.pt")
    common = ["--folder", str(tmp_path / "weights"), "--build", str(tmp_path / "build")]
    files = ["--vae", str(tmp_path / "vae.pt"), "--tts", str(tmp_path / "tts.pt")]
    for action in ("pack", "unpack"):
        monkeypatch.setattr(sys, "argv", ["carry", action, *common, *files])
        carry.main()
    back = torch.load(tmp_path / "build" / "vae" / "init.pt", weights_only=True)
    back |= torch.load(tmp_path / "build" / "tts_init.pt", weights_only=True)
    for name, tensor in {**vae, **tts}.items():
        assert back[name].shape == tensor.shape
        limit = tensor.abs().flatten(1).amax(1) / 250 if tensor.dim() > 1 else tensor.abs() / 1000 + 1e-6
        error = (back[name] - tensor).abs()
        assert ((error.flatten(1).amax(1) if tensor.dim() > 1 else error) <= limit).all()
