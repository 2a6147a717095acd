"""Run the reference implementation on small random checkpoints and write what it computed to goldens/.

Needs `voxcpm==2.0.3` (installed with --no-deps) and what it imports, in an environment of its own:

    python -m venv REF && REF/bin/pip install torch safetensors 'transformers<5' einops pydantic tqdm numpy
    REF/bin/pip install --no-deps voxcpm==2.0.3
    REF/bin/python tests/parity/make_goldens.py

The tests need only the goldens.
"""

from __future__ import annotations

import importlib.machinery
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers  # noqa: F401  # looks for optional packages, so it goes before the stand-ins
from golden_inputs import CFG, NUM_FLOW_STEPS, NUM_STEPS, PROMPT_TEXT, TEXT
from random_checkpoints import CONFIGS, random_weights
from safetensors.torch import save_file
from torch import Tensor

GOLDENS = Path(__file__).parent / "goldens"
# Quantisation rounds, so a number next to a boundary would fall on its other side with another processor's float
# arithmetic, and from there on nothing compares. Seeds are passed over until no number is that near.
MIN_MARGIN, SEEDS = 1e-4, range(3, 30)


def import_reference() -> tuple[Any, Any, Any, Any]:
    """The reference's model modules, without its command line and the audio libraries that loading files would need."""
    for name in ("librosa", "torchaudio"):
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules[name] = module
    core = types.ModuleType("voxcpm.core")
    core.VoxCPM = None  # type: ignore[attr-defined]
    sys.modules["voxcpm.core"] = core
    from voxcpm.model import voxcpm, voxcpm2
    from voxcpm.modules import audiovae

    return voxcpm, voxcpm2, audiovae.AudioVAE, audiovae.AudioVAEV2


class IdTokenizer:
    """Stands in for the text tokenizer: "text" is already a list of ids, as a string of numbers."""

    vocab: dict[str, int] = {}  # noqa: RUF012

    def tokenize(self, text: str) -> list[str]:
        return text.split()

    def convert_tokens_to_ids(self, tokens: list[str]) -> list[int]:
        return [int(token) for token in tokens]


def build(name: str) -> Any:
    """The reference's model of one config, with random weights."""
    voxcpm, voxcpm2, vae_v1, vae_v2 = import_reference()
    is_v2 = CONFIGS[name]["architecture"] == "voxcpm2"
    config = (voxcpm2 if is_v2 else voxcpm).VoxCPMConfig.model_validate(CONFIGS[name])
    vae = (vae_v2 if is_v2 else vae_v1)(config=config.audio_vae_config)
    cls = voxcpm2.VoxCPM2Model if is_v2 else voxcpm.VoxCPMModel
    model = cls(config, IdTokenizer(), vae, device="cpu").float().eval()
    shapes = {key: list(value.shape) for key, value in model.state_dict().items() if value.is_floating_point()}
    result = model.load_state_dict(random_weights(shapes), strict=False)
    assert all("sr_bin_boundaries" in key for key in result.missing_keys), result
    return model, {key: list(value.shape) for key, value in model.state_dict().items()}


class Margin:
    """How near anything in a generation comes to being decided the other way: a quantised level, a stop."""

    def __init__(self, model: Any) -> None:
        self.smallest = 1.0
        self._model, self._inference = model, model._inference
        self._is_audio = torch.zeros(0)
        model._inference = self._note_mask
        self._hooks = [
            model.fsq_layer.in_proj.register_forward_hook(lambda _, args, output: self._note_levels(output)),
            model.stop_head.register_forward_hook(lambda _, args, output: self._note(output[0, 1] - output[0, 0])),
        ]

    def _note_mask(self, *args: Any, **kwargs: Any) -> Any:
        self._is_audio = args[3][0].bool()
        return self._inference(*args, **kwargs)

    def _note_levels(self, projected: Tensor) -> None:
        if projected.dim() == 3:  # the prefill: of text the quantised values are not used
            projected = projected[0, self._is_audio]
        self._note(torch.frac((torch.tanh(projected) * self._model.fsq_layer.scale).abs()) - 0.5)

    def _note(self, distance: Tensor) -> None:
        if distance.numel():
            self.smallest = min(self.smallest, distance.abs().min().item())

    def close(self) -> float:
        for hook in self._hooks:
            hook.remove()
        self._model._inference = self._inference
        return self.smallest


class Recorder:
    """Notes the noise, the hidden states and the stop logits of every step of one generation."""

    def __init__(self, model: Any) -> None:
        self.steps: dict[str, list[Tensor]] = {"noise": [], "lm_hidden": [], "residual_hidden": [], "stop_logits": []}
        self._model = model
        self._solve = model.feat_decoder.solve_euler
        model.feat_decoder.solve_euler = self._record_noise
        self._hooks = [
            model.lm_to_dit_proj.register_forward_pre_hook(lambda _, args: self._add("lm_hidden", args[0][0])),
            model.res_to_dit_proj.register_forward_pre_hook(lambda _, args: self._add("residual_hidden", args[0][0])),
            model.stop_head.register_forward_hook(lambda _, args, output: self._add("stop_logits", output[0])),
        ]

    def _record_noise(self, x: Tensor, **kwargs: Any) -> Tensor:
        self._add("noise", x[0].transpose(0, 1))
        return self._solve(x=x, **kwargs)

    def _add(self, key: str, value: Tensor) -> None:
        self.steps[key].append(value.detach().clone())

    def close(self) -> dict[str, Tensor]:
        for hook in self._hooks:
            hook.remove()
        self._model.feat_decoder.solve_euler = self._solve
        return {key: torch.stack(values).contiguous() for key, values in self.steps.items()}


def modes(model: Any, is_v2: bool) -> dict[str, dict[str, Any] | None]:
    """Prompt caches, as the reference builds them from recordings, for every input mode of a generation."""
    random = np.random.RandomState(7)

    def patches(count: int) -> Tensor:
        values = random.standard_normal((count, model.patch_size, model.feat_dim))
        return torch.from_numpy(values.astype(np.float32))

    prompt = {"prompt_text": " ".join(map(str, PROMPT_TEXT)) + " ", "audio_feat": patches(5)}
    found: dict[str, dict[str, Any] | None] = {"zero_shot": None, "continuation": {**prompt, "mode": "continuation"}}
    found["short_continuation"] = {**prompt, "audio_feat": patches(1), "mode": "continuation"}
    if is_v2:
        reference = {"ref_audio_feat": patches(6)}
        found["reference"] = {**reference, "mode": "reference"}
        both = {**reference, **prompt, "mode": "ref_continuation"}
        found["reference_and_continuation"] = both
        found["reference_and_short_continuation"] = {**both, "audio_feat": patches(1)}
    return found


def generate(model: Any, cache: dict[str, Any] | None, min_len: int, seed: int) -> tuple[float, dict[str, Tensor]]:
    """One generation through the reference's own entry point: its margin, and what was computed."""
    recorder, margin = Recorder(model), Margin(model)
    torch.manual_seed(seed)
    audio, _, latents = model.generate_with_prompt_cache(
        target_text=" ".join(map(str, TEXT)),
        prompt_cache=cache,
        min_len=min_len,
        max_len=NUM_STEPS,
        inference_timesteps=NUM_FLOW_STEPS,
        cfg_value=CFG,
    )
    found = recorder.close()
    # The first generation also returns the prompt patches that it continued from.
    found["latents"] = latents[-len(found["noise"]) :].contiguous()
    found["audio"] = audio[0, -len(found["noise"]) * model.patch_size * decode_hop(model) :].contiguous()
    if cache is not None:
        found |= {key: cache[key] for key in ("audio_feat", "ref_audio_feat") if key in cache}
    return margin.close(), found


def decode_hop(model: Any) -> int:
    return int(getattr(model.audio_vae, "decode_chunk_size", model.audio_vae.chunk_size))


def encode(model: Any) -> dict[str, Tensor]:
    """Latents of a random recording that is no whole number of frames."""
    pcm = torch.from_numpy(np.random.RandomState(9).uniform(-1, 1, (1, 331)).astype(np.float32))
    latents = model.audio_vae.encode(pcm, model.audio_vae.sample_rate)
    return {"encode.pcm": pcm[0], "encode.latents": latents[0].transpose(0, 1).contiguous()}


@torch.inference_mode()
def main() -> None:
    GOLDENS.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    for name, raw in CONFIGS.items():
        model, shapes = build(name)
        tensors = encode(model)
        for mode, cache in modes(model, raw["architecture"] == "voxcpm2").items():
            for seed in SEEDS:
                margin, found = generate(model, cache, min_len=100, seed=seed)
                if margin >= MIN_MARGIN:
                    break
            else:
                raise AssertionError(f"{name}, {mode}: every seed comes too near to a boundary")
            tensors |= {f"{mode}.{key}": value for key, value in found.items()}
            stopped = generate(model, cache, min_len=2, seed=seed)[1]["latents"]
            tensors[f"{mode}.num_patches_with_stop"] = torch.tensor(len(stopped))
        tensors = {key: value.clone() for key, value in tensors.items()}
        save_file(tensors, GOLDENS / f"{name}.safetensors", metadata={"shapes": json.dumps(shapes)})


if __name__ == "__main__":
    main()
