"""Reads adapters as the reference's training writes them: lora_config.json and lora_weights.safetensors.

Validation is strict: missing or unknown tensors, other shapes and values that are not finite are errors. Tensors are
read only after their header was checked. Only safetensors is accepted, since a pickle could run code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import PositiveInt, with_config
from safetensors import SafetensorError, safe_open
from torch import Tensor

from realtime_tts.contract.json_fields import STRICT, dataclass_of
from realtime_tts.errors import AdapterError, AdapterNotFound
from realtime_tts.model.adapted import (
    ATTENTION,
    DIT_STACK,
    LM_STACKS,
    MLP,
    PROJECTIONS,
    AdapterLimits,
    LowRank,
    upstream_shapes,
)
from realtime_tts.model.voxcpm import VoxCPM

CONFIG_FILE, WEIGHTS_FILE = "lora_config.json", "lora_weights.safetensors"
_PICKLES = ("lora_weights.ckpt", "lora_weights.pth", "lora_weights.pt", "lora_weights.bin")
_MAX_CONFIG_BYTES = 64 * 1024
_FLOATS = ("F32", "F16", "BF16", "F64")


@with_config(STRICT)
@dataclasses.dataclass(frozen=True, slots=True)
class AdapterConfig:
    """The object `lora_config` of lora_config.json, under the reference's names. Only training uses dropout."""

    enable_lm: bool = False
    enable_dit: bool = False
    enable_proj: bool = False
    r: PositiveInt = 8
    alpha: float = 16.0
    dropout: float = 0.0
    target_modules_lm: tuple[str, ...] = ATTENTION
    target_modules_dit: tuple[str, ...] = ATTENTION
    target_proj_modules: tuple[str, ...] = PROJECTIONS

    @property
    def scale(self) -> float:
        return self.alpha / self.r


@dataclasses.dataclass(frozen=True, slots=True)
class AdapterWeights:
    """An adapter that was read and checked, on the CPU. updates: by upstream's layer name. digest: of all content."""

    name: str
    rank: int
    digest: str
    updates: Mapping[str, LowRank]


def read_adapter(name: str, directory: Path, model: VoxCPM, limits: AdapterLimits) -> AdapterWeights:
    """Read an adapter for a model. Slow; it does not touch the model.

    Raises:
        AdapterNotFound: no such directory.
        AdapterError: incomplete, damaged, of another model, larger than `limits` allow, or a pickle.
    """
    if not directory.is_dir():
        raise AdapterNotFound(f"there is no directory of the adapter {name!r}", field="adapter")
    config = read_adapter_config(directory)
    if config.r > limits.max_rank:
        raise AdapterError(f"{CONFIG_FILE}: r is {config.r}, this server takes up to {limits.max_rank}", field="r")
    path = _weights_file(directory)
    expected = _expected_shapes(model, config, limits)
    digest = hashlib.sha256(f"{config}".encode())
    try:
        with safe_open(path, framework="pt") as file:
            _check_header(file, expected)
            tensors = {key: file.get_tensor(key) for key in sorted(expected)}
    except (OSError, SafetensorError) as error:
        raise AdapterError(f"{WEIGHTS_FILE} cannot be read: {error}") from error
    for key, tensor in tensors.items():
        digest.update(key.encode() + tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    updates = {
        layer: _low_rank(layer, tensors, config.scale, model.dtype)
        for layer in sorted({key.rpartition(".")[0] for key in expected})
    }
    return AdapterWeights(name, config.r, digest.hexdigest(), updates)


def read_adapter_config(directory: Path) -> AdapterConfig:
    """Read lora_config.json.

    Raises:
        AdapterError: missing, not JSON, without `lora_config`, or with a field that is unknown or invalid.
    """
    path = directory / CONFIG_FILE
    try:
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            raise AdapterError(f"{CONFIG_FILE} has more than {_MAX_CONFIG_BYTES} bytes")
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise AdapterError(f"{CONFIG_FILE} cannot be read: {error}") from error
    fields = raw.get("lora_config") if isinstance(raw, dict) else None
    if not isinstance(fields, dict):
        raise AdapterError(f"{CONFIG_FILE} has no object lora_config", field="lora_config")
    config = dataclass_of(
        AdapterConfig, fields, lambda field, problem: AdapterError(f"{CONFIG_FILE}: {problem}", field=field)
    )
    if not (config.enable_lm or config.enable_dit or config.enable_proj):
        message = f"{CONFIG_FILE}: one of enable_lm, enable_dit and enable_proj must be true"
        raise AdapterError(message, field="enable_lm")
    return config


def _weights_file(directory: Path) -> Path:
    path = directory / WEIGHTS_FILE
    if path.is_file():
        return path
    if pickle := next((name for name in _PICKLES if (directory / name).exists()), None):
        raise AdapterError(
            f"{pickle} is a pickle, which is not read: docs/guides/adapters.md converts it to {WEIGHTS_FILE}"
        )
    raise AdapterError(f"there is no {WEIGHTS_FILE}")


def _expected_shapes(model: VoxCPM, config: AdapterConfig, limits: AdapterLimits) -> dict[str, tuple[int, int]]:
    """Return the shapes of all tensors that the file must have."""
    wanted: dict[str, tuple[str, ...]] = {}  # last parts of layer names, by their beginnings
    if config.enable_lm:
        names = _targets("target_modules_lm", config.target_modules_lm, ATTENTION + MLP, limits)
        wanted |= {f"{stack}.layers.": names for stack in LM_STACKS}
    if config.enable_dit:
        names = _targets("target_modules_dit", config.target_modules_dit, ATTENTION + MLP, limits)
        wanted[f"{DIT_STACK}.layers."] = names
    if config.enable_proj:
        names = _targets("target_proj_modules", config.target_proj_modules, PROJECTIONS, limits)
        wanted |= {name: (name,) for name in names}
    shapes: dict[str, tuple[int, int]] = {}
    for layer, (num_out, num_in) in upstream_shapes(model, limits.targets).items():
        names = next((names for beginning, names in wanted.items() if layer.startswith(beginning)), ())
        if layer.rpartition(".")[2] in names:
            shapes |= {f"{layer}.lora_A": (config.r, num_in), f"{layer}.lora_B": (num_out, config.r)}
    if not shapes:
        raise AdapterError(f"{CONFIG_FILE}: it changes no layer of this model")
    return shapes


def _targets(key: str, names: tuple[str, ...], known: tuple[str, ...], limits: AdapterLimits) -> tuple[str, ...]:
    """Return `names`, the value of `key`. Raises AdapterError: one is not known, or not allowed."""
    if unknown := set(names) - set(known):
        raise AdapterError(
            f"{CONFIG_FILE}: {key} has {min(unknown)[:64]!r}; these can be: {', '.join(known)}", field=key
        )
    if not limits.mlp and set(names) & set(MLP):
        raise AdapterError(
            f"{CONFIG_FILE}: {key} has layers of the MLPs; the server must be started with --adapter-mlp", field=key
        )
    return names


def _check_header(file: Any, expected: Mapping[str, tuple[int, int]]) -> None:
    keys = set(file.keys())
    if missing := expected.keys() - keys:
        raise AdapterError(f"{WEIGHTS_FILE}: {min(missing)} is missing ({len(missing)} in all)")
    if unknown := keys - expected.keys():
        raise AdapterError(f"{WEIGHTS_FILE}: unknown tensor {min(unknown)[:128]!r} ({len(unknown)} in all)")
    for key, shape in expected.items():
        part = file.get_slice(key)
        if tuple(part.get_shape()) != shape:
            raise AdapterError(f"{WEIGHTS_FILE}: {key} is shaped {part.get_shape()}, not {list(shape)}")
        if part.get_dtype() not in _FLOATS:
            raise AdapterError(f"{WEIGHTS_FILE}: {key} is {part.get_dtype()}, not floating-point")


def _low_rank(layer: str, tensors: Mapping[str, Tensor], scale: float, dtype: torch.dtype) -> LowRank:
    """Return A and B in the model's number format; B is scaled before it is rounded."""
    down = tensors[f"{layer}.lora_A"].to(dtype)
    up = (tensors[f"{layer}.lora_B"].float() * scale).to(dtype)
    for name, tensor in (("lora_A", down), ("lora_B", up)):
        if not torch.isfinite(tensor).all():
            kind = str(dtype).removeprefix("torch.")
            raise AdapterError(f"{WEIGHTS_FILE}: {layer}.{name} is not finite in {kind}")
    return down, up
