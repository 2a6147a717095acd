"""Random adapters: they take the time of trained ones, and show that an adapter is in effect."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from realtime_tts.model.adapted import ATTENTION, MLP, upstream_shapes
from realtime_tts.model.adapter_file import CONFIG_FILE, WEIGHTS_FILE, AdapterConfig
from realtime_tts.model.checkpoint import load_model
from realtime_tts.model.voxcpm import VoxCPM


def adapter_tensors(
    model: VoxCPM, seed: int, rank: int = 4, *, mlp: bool = False, size: float = 0.25
) -> dict[str, Tensor]:
    """Return random tensors for every layer that an adapter can change; `size`: standard deviation of B."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer, (num_out, num_in) in upstream_shapes(model, ATTENTION + MLP if mlp else ATTENTION).items():
        tensors[f"{layer}.lora_A"] = torch.randn(rank, num_in, generator=generator) / num_in**0.5
        tensors[f"{layer}.lora_B"] = torch.randn(num_out, rank, generator=generator) * size
    return tensors


def write_random_adapter(directory: Path, model: str, *, rank: int, seed: int) -> None:
    """Write an adapter for a checkpoint in the layout of the reference's training. Its speech stays intelligible."""
    config = AdapterConfig(enable_lm=True, enable_dit=True, enable_proj=True, r=rank, alpha=rank)
    directory.mkdir(parents=True, exist_ok=True)
    save_file(adapter_tensors(load_model(model).model, seed, rank, size=0.1), directory / WEIGHTS_FILE)
    (directory / CONFIG_FILE).write_text(json.dumps({"lora_config": dataclasses.asdict(config)}))
