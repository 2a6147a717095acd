"""Synthesis of many texts at once with the serving model's own steps, for the evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence as AnySequence

import numpy as np
import torch
from numpy.typing import NDArray

from realtime_tts.model import generate as model_generate
from realtime_tts.model.checkpoint import LoadedModel
from realtime_tts.model.sequence import Patches, Sequence, build_sequence, length_guard


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A text to say. `voice` is a named voice or None; reference and prompt are patches [n, patch_size, latent_dim]."""

    text: str
    voice: str | None = None
    reference: Patches | None = None
    prompt: Patches | None = None
    prompt_text: str = ""

    def sequence(self, loaded: LoadedModel) -> Sequence:
        text = f"{self.prompt_text} {self.text}" if self.prompt is not None else self.text
        prefix = loaded.tokenizer.encode_trusted(f"<{self.voice}>") if self.voice else ()
        return build_sequence(
            loaded.config,
            loaded.tokenizer.encode(text),
            prefix_ids=prefix,
            reference=self.reference,
            prompt=self.prompt,
        )


def generate(
    loaded: LoadedModel, lines: AnySequence[Line], seeds: AnySequence[int], *, steps: int, cfg: float
) -> list[Patches]:
    """Latent patches [n, patch_size, latent_dim] of each line, all in one batch, its prompt not included.

    A stream ends at its stop flag, or at `max_patches` of its text.
    """
    inputs = [line.sequence(loaded) for line in lines]
    limits = [max_patches(loaded, line.text) for line in lines]
    return generate_inputs(loaded, inputs, limits, seeds, steps=steps, cfg=cfg)


def max_patches(loaded: LoadedModel, text: str) -> int:
    """Return the maximum number of patches of a text: the length guard of the served voice."""
    num_tokens, per_char = len(loaded.tokenizer.encode(text)), loaded.policy.max_patches_per_char
    return length_guard(num_tokens, len(text), per_char, loaded.config.max_length)


def generate_inputs(
    loaded: LoadedModel,
    inputs: AnySequence[Sequence],
    limits: AnySequence[int],
    seeds: AnySequence[int],
    *,
    steps: int,
    cfg: float,
) -> list[Patches]:
    """The same of inputs laid out already, at most `limits` patches of each.

    A stream's noise comes from its own seed: what it says must not depend on the batch it is in.
    """
    noises = [_noise(loaded, seed) for seed in seeds]
    return model_generate.generate(loaded.model, inputs, noises, limits, flow_steps=steps, cfg=cfg)


def _noise(loaded: LoadedModel, seed: int) -> model_generate.Noise:
    generator = torch.Generator().manual_seed(seed)
    shape = (loaded.config.patch_size, loaded.config.latent_dim)
    return lambda index: torch.randn(shape, generator=generator)


def decode(loaded: LoadedModel, patches: Patches) -> NDArray[np.int16]:
    """[n, patch_size, latent_dim] → [samples]; see `realtime_tts.model.generate.decode`."""
    pcm = model_generate.decode(loaded.model, patches)
    return (pcm.clamp(-1, 1) * 32767).short().numpy()
