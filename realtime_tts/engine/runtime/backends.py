"""Choice of the kernels that a model is served with: by name, or by what is available."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
from typing import Final

import torch

from realtime_tts.errors import ConfigError
from realtime_tts.model.attention import AttentionBackend, SDPABackend
from realtime_tts.model.packed import pack
from realtime_tts.model.voxcpm import VoxCPM

logger = logging.getLogger(__name__)

BACKENDS: Final = ("auto", "sdpa", "triton")
FP8: Final = ("off", "flow")


def choose_backend(name: str, model: VoxCPM, *, fp8: str = "off") -> AttentionBackend:
    """Return the attention backend and switch the model's stacks to the matching implementation.

    sdpa: torch's operations, on any device. triton: fused kernels, on CUDA. auto: triton if it can be used, else sdpa.
    fp8: products in eight bits, "off" or "flow".

    Raises:
        ConfigError: the name is unknown, or the backend or fp8 cannot be used on this device.
    """
    device = model.stop_proj.weight.device
    missing = what_is_missing(device, model.config.base.head_dim)
    if name == "auto":
        name = "sdpa" if missing else "triton"
        if missing and device.type == "cuda":
            logger.warning("no fused kernels, steps take several times as long: %s", missing)
    if fp8 not in FP8:
        raise ConfigError(f"fp8 must be one of {', '.join(FP8)}", field="fp8")
    if name == "sdpa":
        if fp8 != "off":
            raise ConfigError(f"fp8 needs fused kernels: {missing or 'attention is sdpa'}", field="fp8")
        model.unfuse()
        pack(model)
        return SDPABackend()
    if name != "triton":
        raise ConfigError(f"attention must be one of {', '.join(BACKENDS)}", field="attention")
    if missing:
        raise ConfigError(f"attention triton cannot be used: {missing}", field="attention")
    from realtime_tts.model.fused import TritonBackend, fuse

    try:
        fuse(model, fp8_flow=fp8 == "flow")
    except ValueError as error:
        raise ConfigError(f"fp8 cannot be used: {error}", field="fp8") from error
    return TritonBackend()


def what_is_missing(device: torch.device, head_dim: int) -> str | None:
    """Return the reason why the fused kernels cannot be used; None if they can."""
    if device.type != "cuda":
        return f"the device is {device}"
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    if not os.environ.get("CC") and not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        return "triton finds no C compiler, with which it builds what launches its kernels"
    if head_dim < 16 or head_dim & (head_dim - 1):
        return f"heads of {head_dim} values are no power of two from 16 on"
    return None


def describe_kernels(device: torch.device) -> dict[str, str]:
    """Return a readable description, by topic, of the kernels that a model's stacks use on a device, and what a missing
    one costs (docs/lab/gpu.md)."""
    missing = what_is_missing(device, head_dim=128)
    if missing:
        slow = f"plain torch, on an H200 a step takes 5 to 13 times as long: {missing}"
        return {"kernels": slow if device.type == "cuda" else "plain torch"}
    from realtime_tts.model.kernels.fp8_products import missing_on as fp8_missing_on
    from realtime_tts.model.kernels.stack import missing_on

    few, fp8 = missing_on(device), fp8_missing_on(device)
    shapes = "whole stacks in one kernel each, if the model has VoxCPM2's sizes in bfloat16"
    return {
        "kernels": "fused, by Triton",
        "one or few streams": f"layer by layer, on an H200 40 % longer with one stream: {few}" if few else shapes,
        "fp8": f"cannot be used: {fp8}" if fp8 else "--fp8 flow, if the model is in bfloat16",
    }
