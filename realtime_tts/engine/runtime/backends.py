"""Which kernels a model is served with: chosen by name, or by what there is."""

from __future__ import annotations

import importlib.util
from typing import Final

from realtime_tts.errors import ConfigError
from realtime_tts.model.attention import AttentionBackend, SDPABackend
from realtime_tts.model.voxcpm import VoxCPM

BACKENDS: Final = ("auto", "sdpa", "triton")


def choose_backend(name: str, model: VoxCPM) -> AttentionBackend:
    """The attention backend, and with it how the model's stacks run from now on.

    sdpa: plain torch, on any device. triton: fused kernels, on CUDA. auto: triton where it can be.

    Raises:
        ConfigError: it cannot be used here.
    """
    missing = _missing(model)
    if name == "auto":
        name = "sdpa" if missing else "triton"
    if name == "sdpa":
        model.unfuse()
        return SDPABackend()
    if name != "triton":
        raise ConfigError(f"attention must be one of {', '.join(BACKENDS)}", field="attention")
    if missing:
        raise ConfigError(f"attention triton cannot be used: {missing}", field="attention")
    from realtime_tts.model.fused import TritonBackend, fuse

    fuse(model)
    return TritonBackend()


def _missing(model: VoxCPM) -> str | None:
    """What the fused kernels lack here."""
    device = model.stop_proj.weight.device
    if device.type != "cuda":
        return f"the device is {device}"
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    head_dim = model.config.head_dim
    if head_dim < 16 or head_dim & (head_dim - 1):
        return f"heads of {head_dim} values are no power of two from 16 on"
    return None
