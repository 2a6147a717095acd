"""Random checkpoints and adapters of the real shapes: they do the work of real ones, with nothing to download.

The stop head is zero, so that no stream ends before its length guard: what is spoken is as long as its text says, in
every engine and every run.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from tqdm import tqdm

from realtime_tts.bench import following_head
from realtime_tts.bench.report import write_json
from realtime_tts.bench.shapes import SHAPES
from realtime_tts.bench.texts import LONG_TEXT, SENTENCES, TURN
from realtime_tts.contract.policy import ServingPolicy
from realtime_tts.errors import ConfigError
from realtime_tts.model.adapted import ATTENTION, MLP, upstream_shapes
from realtime_tts.model.adapter_file import CONFIG_FILE, WEIGHTS_FILE, AdapterConfig
from realtime_tts.model.audio_vae import Snake1d
from realtime_tts.model.checkpoint import Uninitialised, load_model, parse_dtype, save_weights
from realtime_tts.model.config import ModelConfig
from realtime_tts.model.config_file import parse_config
from realtime_tts.model.minicpm import RMSNorm
from realtime_tts.model.sequence import AUDIO_END, AUDIO_START, REFERENCE_END, REFERENCE_START
from realtime_tts.model.voxcpm import VoxCPM

PATCHES_PER_CHAR = 0.5  # 12.5 characters a second at 160 ms a patch: as people speak
_MAX_TOKENS = 1024
_SPECIAL = {
    0: "<unk>",
    1: "<s>",
    2: "</s>",
    AUDIO_START: "<|audio_start|>",
    AUDIO_END: "<|audio_end|>",
    REFERENCE_START: "<|ref_audio_start|>",
    REFERENCE_END: "<|ref_audio_end|>",
}


def write_random_checkpoint(
    directory: Path,
    shape: str,
    *,
    device: torch.device | str = "cpu",
    dtype: str | None = None,
    seed: int = 0,
) -> ModelConfig:
    """Write one in upstream's layout, which the reference package and others load as well. Shows its progress.

    Args:
        shape: a name of `SHAPES`.
        device: where values are drawn; the same seed gives others elsewhere.
        dtype: of the language and flow models; None is the shape's own. The VAE is always float32, as published.

    Raises:
        ConfigError: there is no such shape.
    """
    if shape not in SHAPES:
        raise ConfigError(f"there is no shape {shape!r}; the shapes are {', '.join(SHAPES)}", field="shape")
    raw = {**SHAPES[shape], **({"dtype": dtype} if dtype else {})}
    config = parse_config(raw)
    model = random_model(config, device, seed)
    directory.mkdir(parents=True, exist_ok=True)
    save_weights(model, directory)
    write_json(directory / "config.json", raw)
    write_json(directory / "serving.json", _serving(config, shape))
    tokenizer = _train_tokenizer()
    tokenizer.save(str(directory / "tokenizer.json"))
    specials = dict(zip(("unk_token", "bos_token", "eos_token"), _SPECIAL.values(), strict=False))
    # For other packages, which read it through transformers.
    write_json(directory / "tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer", **specials})
    return config


def random_model(config: ModelConfig, device: torch.device | str, seed: int) -> VoxCPM:
    """On `device`, in the config's dtype, with a VAE in float32. Activations keep about their size from layer to layer.

    Its RoPE tables are not filled: it is there to be saved.
    """
    with torch.device("meta"), Uninitialised():
        model = VoxCPM(config)
    model.to(parse_dtype(config.dtype)).vae.float()
    model = model.to_empty(device=device).requires_grad_(False)
    generator = torch.Generator(device).manual_seed(seed)
    modules = [module for module in model.modules() if any(True for _ in module.parameters(recurse=False))]
    for module in tqdm(modules, "random weights", leave=False):
        for name, parameter in module.named_parameters(recurse=False):
            if isinstance(module, (RMSNorm, Snake1d)):
                parameter.fill_(1.0)
            else:
                _draw(name, parameter, generator)
    model.stop_head.weight.zero_()
    if following_head.follows(config):
        following_head.follow_text(model)
    return model


def _draw(name: str, parameter: Tensor, generator: torch.Generator) -> None:
    """Draw a parameter: matrices scaled by their inputs, small biases, embeddings of unit variance."""
    if name == "bias":
        parameter.normal_(0.0, 0.02, generator=generator)
    elif parameter.dim() >= 2 and name == "weight":
        parameter.normal_(0.0, 1.0 / math.sqrt(parameter[0].numel()), generator=generator)
    else:
        parameter.normal_(0.0, 1.0, generator=generator)


def _serving(config: ModelConfig, shape: str) -> dict[str, object]:
    # A head is named even where none follows, so that a worker does not search one, and has the work of reading it.
    head = following_head.text_head(config)
    voices = {following_head.VOICE: following_head.POLICY} if following_head.follows(config) else {}
    policy = ServingPolicy(f"random-{shape}", max_patches_per_char=PATCHES_PER_CHAR, voices=voices, text_head=head)
    return policy.to_map()


def _train_tokenizer() -> Tokenizer:
    """Return a tokenizer of byte pairs like the published ones, trained on the texts of the bench: their words have one
    or two tokens, as in a large vocabulary. Other text is split into characters or bytes."""
    specials = [_SPECIAL.get(number, f"<|reserved_{number}|>") for number in range(REFERENCE_END + 1)]
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = _words()
    trainer = trainers.BpeTrainer(
        vocab_size=_MAX_TOKENS,
        special_tokens=[*specials, *(f"<0x{byte:02X}>" for byte in range(256))],
        initial_alphabet=[chr(code) for code in range(33, 127)],
        show_progress=False,
    )
    trained.train_from_iterator([*SENTENCES, LONG_TEXT, TURN] * 4, trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = Tokenizer(models.BPE(model["vocab"], merges, unk_token=_SPECIAL[0], byte_fallback=True))
    tokenizer.pre_tokenizer = _words()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.add_special_tokens(specials)
    return tokenizer


def _words() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Metaspace(prepend_scheme="always")


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
