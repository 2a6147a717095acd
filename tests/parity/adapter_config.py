"""The adapter of the goldens, as lora_config.json has it: the reference's usual targets, and the MLPs."""

from __future__ import annotations

ADAPTED = ("voxcpm_0_5b", "voxcpm2")
_LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CONFIG = {
    "enable_lm": True,
    "enable_dit": True,
    "enable_proj": True,
    "r": 3,
    "alpha": 4,
    "dropout": 0.05,
    "target_modules_lm": _LAYERS,
    "target_modules_dit": _LAYERS,
}
