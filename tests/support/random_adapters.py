"""Small random adapters in the layout of the reference's training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from realtime_tts.model.adapted import ATTENTION, MLP, PROJECTIONS
from realtime_tts.model.voxcpm import VoxCPM

EVERYTHING = {
    "enable_lm": True,
    "enable_dit": True,
    "enable_proj": True,
    "r": 4,
    "alpha": 6,
    "dropout": 0.05,
    "target_modules_lm": [*ATTENTION, *MLP],
    "target_modules_dit": [*ATTENTION, *MLP],
    "target_proj_modules": list(PROJECTIONS),
}
USUAL = {**EVERYTHING, "target_modules_lm": list(ATTENTION), "target_modules_dit": list(ATTENTION)}


def write_adapter(directory: Path, tensors: dict[str, Tensor], **config: Any) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    save_file(tensors, directory / "lora_weights.safetensors")
    info = {"base_model": "openbmb/VoxCPM2", "lora_config": {**USUAL, **config}}
    (directory / "lora_config.json").write_text(json.dumps(info))
    return directory


def merge(model: VoxCPM, tensors: dict[str, Tensor], scale: float) -> None:
    """W + scale · B · A in the plain model's own weights, by hand: the fused layers' parts one below the other."""
    fused = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
    for path, linear in model.named_modules():
        if not isinstance(linear, torch.nn.Linear):
            continue
        stem, _, name = path.rpartition(".")
        keys = [f"{stem}.{part}" if stem else part for part in fused.get(name, (name,))]
        if f"{keys[0]}.lora_A" in tensors:
            updates = [scale * tensors[f"{key}.lora_B"] @ tensors[f"{key}.lora_A"] for key in keys]
            linear.weight.data = linear.weight.data + torch.cat(updates)
