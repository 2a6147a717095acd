"""Loads and saves checkpoints in upstream's layout; a missing, unknown or misshapen weight is an error.

A checkpoint is a directory with config.json, tokenizer.json, model and VAE weights, and an optional serving.json, which
is specific to this project; or the id of one on the Hugging Face hub.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from torch.overrides import TorchFunctionMode

from realtime_tts.contract.location import check_location
from realtime_tts.contract.policy import ServingPolicy
from realtime_tts.errors import CheckpointError
from realtime_tts.model.config import ModelConfig
from realtime_tts.model.config_file import dtype_name, read_config
from realtime_tts.model.tokenizer import TextTokenizer
from realtime_tts.model.voxcpm import VoxCPM
from realtime_tts.model.weights import (
    RATE_BOUNDARIES,
    check_rate_boundaries,
    pickles_to_read,
    read_model_weights,
    read_vae_weights,
    to_model,
    to_upstream,
)

# Patterns also match in subdirectories, which hold a trainer's steps. The safetensors are the model's and the VAE's.
_HUB_FILES = ["config.json", "tokenizer.json", "serving.json", "model.safetensors.index.json", "*.safetensors"]
_HUB_DIRECTORIES = ["*/*"]


@dataclasses.dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to serve, in eval mode and without gradients."""

    model: VoxCPM
    tokenizer: TextTokenizer
    config: ModelConfig
    policy: ServingPolicy
    name: str
    path: Path

    @property
    def supports_instructions(self) -> bool:
        """Voice design, "(description)text", which VoxCPM2's vocabulary supports but a small character set does not."""
        return self.config.supports_reference and self.policy.charset is None


def load_model(
    path_or_id: str | Path,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | str | None = None,
    revision: str | None = None,
) -> LoadedModel:
    """Load a checkpoint directory or hub id.

    dtype: None is float32 on the CPU and the checkpoint's own elsewhere; the VAE is always float32. revision: see
        `resolve_directory`.

    Raises:
        CheckpointError: see `resolve_directory`, `read_config` and `weights.to_model`.
    """
    path = resolve_directory(path_or_id, revision)
    config = read_config(path / "config.json")
    tokenizer = TextTokenizer.from_file(path / "tokenizer.json", config.vocab_size)
    policy = ServingPolicy.load(path)
    # A hub id's directory is named by its commit, so the name comes from the argument.
    policy = dataclasses.replace(policy, name=policy.name or Path(path_or_id).name)
    head = policy.text_head
    if head is not None and not (head.layer < config.base.num_layers and head.head < config.base.num_heads):
        raise CheckpointError(f"serving.json: text_head: the model has no head {head.head} in a layer {head.layer}")
    device = torch.device(device)
    if dtype is None:
        dtype = torch.float32 if device.type == "cpu" else config.dtype
    with torch.device("meta"), Uninitialised():
        model = VoxCPM(config)
    vae = model.vae
    del model.vae
    model.load_state_dict(to_model(read_model_weights(path), model, parse_dtype(dtype)), assign=True)
    vae_weights = read_vae_weights(path)
    check_rate_boundaries(vae_weights.pop(RATE_BOUNDARIES, None), config.vae.rate_boundaries_hz)
    vae.load_state_dict(to_model(vae_weights, vae, torch.float32), assign=True)
    model.vae = vae
    model = model.requires_grad_(False).eval().to(device)
    if device.type == "cpu":
        _store_by_columns(model)
    return LoadedModel(model, tokenizer, config, policy, policy.name, path)


class Uninitialised(TorchFunctionMode):
    """Skips the initialisation of modules, whose values would be overwritten anyway. This matters even on the meta
    device: for a normal distribution there, torch loads its compiler, which takes 0.9 s and keeps 40 MB."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def _store_by_columns(model: nn.Module) -> None:
    """Store the matrices in the memory layout that products of few rows read: up to twice as fast on CPUs."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight.data = module.weight.t().contiguous().t()


def parse_dtype(dtype: torch.dtype | str) -> torch.dtype:
    """Return the dtype for a dtype or its name in configs. Raises CheckpointError for any other name."""
    return dtype if isinstance(dtype, torch.dtype) else getattr(torch, dtype_name(dtype))


def resolve_directory(path_or_id: str | Path, revision: str | None = None) -> Path:
    """Return a directory as it is; a hub id is downloaded (with progress, resumed if cut) or found in the local cache.

    The directory of a hub id is named by its commit. revision: that commit, for which the hub is not asked if the cache
        has it; None: the newest.

    Raises:
        CheckpointError: neither a checkpoint directory nor a hub id, or a download that failed.
    """
    if (directory := check_location(str(path_or_id))) is not None:
        return directory
    from huggingface_hub import snapshot_download  # imported late: most runs load a directory

    def download(patterns: list[str], revision: str | None) -> Path:
        model = str(path_or_id)
        return Path(
            snapshot_download(model, revision=revision, allow_patterns=patterns, ignore_patterns=_HUB_DIRECTORIES)
        )

    try:
        directory = download(_HUB_FILES, revision)
        if pickles := pickles_to_read(directory):
            download([*_HUB_FILES, *pickles], directory.name)
        return directory
    except Exception as error:  # the client raises its own, HTTP and OS errors
        raise CheckpointError(f"{path_or_id} is no directory, and could not be taken from the hub: {error}") from error


def save_weights(model: VoxCPM, directory: Path, dtype: torch.dtype | None = None) -> None:
    """Write model.safetensors and audiovae.safetensors under upstream's names, so that the reference loads them too.

    dtype: dtype of the written tensors; None keeps each parameter's own.
    """
    vae = to_upstream(model.vae, weight_norm=True)
    rest = {name: tensor for name, tensor in to_upstream(model).items() if not name.startswith("vae.")}
    if model.config.vae.num_rate_buckets:
        vae[RATE_BOUNDARIES] = torch.tensor(model.config.vae.rate_boundaries_hz, dtype=torch.int32)
    for name, tensors in (("model.safetensors", rest), ("audiovae.safetensors", vae)):
        cast = {key: t if dtype is None or not t.is_floating_point() else t.to(dtype) for key, t in tensors.items()}
        save_file(cast, directory / name)
