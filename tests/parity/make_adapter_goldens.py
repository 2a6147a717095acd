"""Run the reference with its own LoRA layers on small random checkpoints and write what it computed to
goldens/adapters.safetensors. Needs what make_goldens.py needs:

    REF/bin/python tests/parity/make_adapter_goldens.py
"""

from __future__ import annotations

from typing import Any

import torch
from adapter_config import ADAPTED, CONFIG
from make_goldens import GOLDENS, MIN_MARGIN, SEEDS, build, generate, import_reference, modes
from random_checkpoints import CONFIGS, random_weight
from safetensors.torch import save_file
from torch import Tensor


def build_adapted(name: str) -> Any:
    """The reference's model with LoRA layers in it; their weights are random by name, as all others are."""
    voxcpm, voxcpm2, *_ = import_reference()
    model, _ = build(name)
    module = voxcpm2 if CONFIGS[name]["architecture"] == "voxcpm2" else voxcpm
    model.lora_config = module.LoRAConfig(**CONFIG)
    model._apply_lora()
    model.eval()  # their dropout, too
    for key, parameter in model.named_parameters():
        if "lora_" in key:
            parameter.data.copy_(random_weight(key, tuple(parameter.shape)))
    return model


@torch.inference_mode()
def main() -> None:
    torch.set_num_threads(1)
    tensors: dict[str, Tensor] = {}
    for name in ADAPTED:
        model = build_adapted(name)
        cache = modes(model, CONFIGS[name]["architecture"] == "voxcpm2")["continuation"]
        for seed in SEEDS:
            margin, found = generate(model, cache, min_len=100, seed=seed)
            if margin >= MIN_MARGIN:
                break
        else:
            raise AssertionError(f"{name}: every seed comes too near to a boundary")
        tensors |= {f"{name}.{key}": value for key, value in found.items() if key != "audio"}
    save_file(tensors, GOLDENS / "adapters.safetensors")


if __name__ == "__main__":
    main()
