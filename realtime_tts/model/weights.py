"""Weight files and their names: upstream's layout on disk, fused and folded matrices in the model.

On disk, query, key and value, and gate and up are separate, and the VAE's convolutions are weight-normed. In the model
they are `qkv_proj`, `gate_up_proj` and plain weights. `to_model` and `to_upstream` are each other's inverse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from realtime_tts.errors import CheckpointError
from realtime_tts.model.audio_vae import CausalUpsample
from realtime_tts.model.minicpm import Attention

MAX_PICKLE_BYTES = 16 * 2**30
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
# (magnitude, direction) of weight norm, under the names of both of torch's implementations.
_NORM_PAIRS = (
    ("weight_g", "weight_v"),
    ("parametrizations.weight.original0", "parametrizations.weight.original1"),
)
RATE_BOUNDARIES = "decoder.sr_bin_boundaries"  # not a weight: a constant that the config states as well


def pickles_to_read(directory: Path) -> list[str]:
    """Return the pickles that are read, if they exist, since no safetensors of their part do."""
    parts = {
        "pytorch_model.bin": ("model.safetensors.index.json", "model.safetensors"),
        "audiovae.pth": ("audiovae.safetensors",),
    }
    return [name for name, first in parts.items() if not any((directory / other).exists() for other in first)]


def read_model_weights(directory: Path) -> dict[str, Tensor]:
    """Return the language and flow models' tensors of a checkpoint directory, under upstream's names."""
    index = directory / "model.safetensors.index.json"
    if index.exists():
        return _read_all(_indexed_files(index))
    if (directory / "model.safetensors").exists():
        return _read_all([directory / "model.safetensors"])
    if (directory / "pytorch_model.bin").exists():
        return _read_pickle(directory / "pytorch_model.bin")
    shards = sorted(path for path in directory.glob("*.safetensors") if path.name != "audiovae.safetensors")
    if shards:
        return _read_all(shards)
    raise CheckpointError("no model weights: neither *.safetensors nor pytorch_model.bin")


def read_vae_weights(directory: Path) -> dict[str, Tensor]:
    """Return the VAE's tensors of a checkpoint directory, under upstream's names."""
    if (directory / "audiovae.safetensors").exists():
        return _read_all([directory / "audiovae.safetensors"])
    if (directory / "audiovae.pth").exists():
        return _read_pickle(directory / "audiovae.pth")
    raise CheckpointError("no VAE weights: neither audiovae.safetensors nor audiovae.pth")


def _indexed_files(index: Path) -> list[Path]:
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index.name} cannot be read: {error!r}") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise CheckpointError(f"{index.name} names a file outside the checkpoint: {name!r}")
        if not (index.parent / name).exists():
            raise CheckpointError(f"{name}, named by {index.name}, is missing")
    return [index.parent / name for name in sorted(names)]


def _read_all(files: Iterable[Path]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in files:
        try:
            shard = load_file(path)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{path.name} cannot be read: {error}") from error
        twice = tensors.keys() & shard.keys()
        if twice:
            raise CheckpointError(f"weight {min(twice)} is in two files")
        tensors |= shard
    return tensors


def _read_pickle(path: Path) -> dict[str, Tensor]:
    if path.stat().st_size > MAX_PICKLE_BYTES:
        raise CheckpointError(f"{path.name} is larger than {MAX_PICKLE_BYTES} bytes")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile pickle fails in many ways
        raise CheckpointError(f"{path.name} cannot be read: {error}") from error
    if isinstance(content, Mapping):
        content = content.get("state_dict", content)
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path.name} holds no state dict")
    # Trainers store step counts and settings beside the weights; only tensors under a name are weights.
    tensors = {key: value for key, value in content.items() if isinstance(key, str) and isinstance(value, Tensor)}
    if not tensors:
        raise CheckpointError(f"{path.name} holds no state dict")
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.is_meta:
            raise CheckpointError(f"weight {name} of {path.name} is no plain tensor")
    return tensors


def check_rate_boundaries(stored: Tensor | None, boundaries_hz: Sequence[int]) -> None:
    """Check the boundaries in the VAE's file, if present, against the config's; others would select another embedding.

    Raises:
        CheckpointError: they differ.
    """
    if stored is not None and stored.tolist() != list(boundaries_hz):
        raise CheckpointError(
            f"{RATE_BOUNDARIES} is {stored.tolist()}, but audio_vae_config.sr_bin_boundaries is {list(boundaries_hz)}"
        )


def to_model(upstream: Mapping[str, Tensor], module: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return upstream's tensors as `module`'s state dict, of `dtype`.

    Raises:
        CheckpointError: names the first weight that is missing, unknown, of another shape or not floating-point.
    """
    remaining = dict(upstream)
    # Copied even if the dtype fits: a file's memory map must not outlive the loading.
    state = {
        name: _take(module, name, expected.shape, remaining).to(dtype, copy=True).contiguous()
        for name, expected in module.state_dict().items()
    }
    if remaining:
        raise CheckpointError(f"unknown weight {min(remaining)} ({len(remaining)} in all)")
    return state


def _take(module: nn.Module, name: str, shape: Sequence[int], remaining: dict[str, Tensor]) -> Tensor:
    """Remove the parts of one of `module`'s weights from `remaining`, check them, and return the weight."""
    prefix, _, leaf = name.rpartition(".")
    stem, _, module_name = prefix.rpartition(".")
    if module_name in FUSED:
        sizes = fused_sizes(module.get_submodule(stem), module_name)
        parts = zip(FUSED[module_name], sizes, strict=True)
        return torch.cat([_pop(f"{stem}.{part}.{leaf}", (size, *shape[1:]), remaining) for part, size in parts])
    owner = module.get_submodule(prefix)
    if not isinstance(owner, nn.Conv1d) or leaf != "weight":
        return _pop(name, shape, remaining)
    if isinstance(owner, CausalUpsample):
        shape = (owner.in_channels, owner.out_channels // owner.upsampling, 2 * owner.upsampling)
        return _from_transposed(_take_convolution(prefix, shape, remaining))
    return _take_convolution(prefix, shape, remaining)


def _take_convolution(prefix: str, shape: Sequence[int], remaining: dict[str, Tensor]) -> Tensor:
    """Return a convolution's weight, weight-normed or not."""
    for magnitude, direction in _NORM_PAIRS:
        if f"{prefix}.{direction}" in remaining:
            # Checked before use: torch's weight norm reads past the end of a magnitude that is too short.
            v = _pop(f"{prefix}.{direction}", shape, remaining)
            g = _pop(f"{prefix}.{magnitude}", (shape[0], 1, 1), remaining)
            return torch._weight_norm(v.float(), g.float(), 0)
    return _pop(f"{prefix}.weight", shape, remaining)


def _pop(name: str, shape: Sequence[int], remaining: dict[str, Tensor]) -> Tensor:
    try:
        tensor = remaining.pop(name)
    except KeyError:
        raise CheckpointError(f"weight {name} is missing") from None
    if tensor.shape != torch.Size(shape):
        raise CheckpointError(f"weight {name} is shaped {list(tensor.shape)}, not {list(shape)}")
    if not tensor.is_floating_point():
        raise CheckpointError(f"weight {name} is {str(tensor.dtype).removeprefix('torch.')}, not floating-point")
    return tensor


def _from_transposed(weight: Tensor) -> Tensor:
    """Return a transposed convolution's [in, out, 2 * stride] as `CausalUpsample`'s [out * stride, in, 2]."""
    taps = weight.unflatten(2, (2, -1)).flip(2)
    return taps.permute(1, 3, 0, 2).flatten(0, 1)


def _to_transposed(weight: Tensor, stride: int) -> Tensor:
    taps = weight.unflatten(0, (-1, stride)).permute(2, 0, 3, 1)
    return taps.flip(2).flatten(2).contiguous()


def to_upstream(module: nn.Module, *, weight_norm: bool = False) -> dict[str, Tensor]:
    """Return `module`'s parameters under upstream's names, on the CPU. With `weight_norm`, convolutions are split into
    magnitude and direction, as upstream's VAE expects them."""
    tensors = {}
    for name, tensor in module.state_dict().items():
        tensor = tensor.detach().cpu()
        prefix, _, leaf = name.rpartition(".")
        stem, _, module_name = prefix.rpartition(".")
        owner = module.get_submodule(prefix)
        if module_name in FUSED:
            parts = tensor.split(fused_sizes(module.get_submodule(stem), module_name))
            for part, piece in zip(FUSED[module_name], parts, strict=True):
                tensors[f"{stem}.{part}.{leaf}"] = piece.contiguous()
        elif weight_norm and leaf == "weight" and isinstance(owner, nn.Conv1d):
            if isinstance(owner, CausalUpsample):
                tensor = _to_transposed(tensor, owner.upsampling)
            tensors[f"{prefix}.weight_v"] = tensor.clone()
            tensors[f"{prefix}.weight_g"] = tensor.float().norm(dim=(1, 2), keepdim=True).to(tensor.dtype)
        else:
            tensors[name] = tensor.clone(memory_format=torch.contiguous_format)
    return tensors


def fused_sizes(owner: nn.Module, module_name: str) -> list[int]:
    """Return the numbers of output features of the parts of a fused layer, of an `Attention` or an `MLP`."""
    if isinstance(owner, Attention):
        return [heads * owner.head_dim for heads in (owner.num_heads, owner.num_kv_heads, owner.num_kv_heads)]
    return [owner.get_parameter(f"{module_name}.weight").shape[0] // 2] * 2
