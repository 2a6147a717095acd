"""Offline synthesis with the same checkpoint, as the reference for the streaming path: one sequence at a time, no
batches, no segments, no streaming, one AudioVAE pass over the whole audio."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from realtime_tts.contract.location import local_directory
from realtime_tts.engine.runtime.noise import noise_key, patch_noise
from realtime_tts.model.checkpoint import load_model
from realtime_tts.model.generate import decode, generate
from realtime_tts.model.sequence import build_sequence, length_guard
from realtime_tts.text.normalizer import Normalizer


class OfflineModel:
    """Model that speaks a text in one pass.

    Args:
        model: as for `realtime_tts.TTS`.
    """

    def __init__(self, model: str = "starter-voice") -> None:
        self._loaded = load_model(str(local_directory(model) or model))
        charset = self._loaded.policy.charset
        self._normalizer = Normalizer("en", None if charset is None else frozenset(charset))

    def speak(
        self, text: str, *, seed: int = 0, voice: str | None = None, steps: int | None = None
    ) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return samples in −1…1 at the checkpoint's rate."""
        loaded, config, policy = self._loaded, self._loaded.config, self._loaded.policy
        spoken = self._normalizer.normalize(text).text
        text_ids = loaded.tokenizer.encode(spoken)
        name = voice or policy.default_voice
        prefix = policy.voices[name].text_prefix if name else ""
        source = build_sequence(config, text_ids, prefix_ids=loaded.tokenizer.encode_trusted(prefix))
        limit = length_guard(len(text_ids), len(spoken), policy.max_patches_per_char, config.max_length)
        key = torch.tensor([noise_key(seed)])

        def noise(index: int) -> torch.Tensor:
            return patch_noise(key, torch.tensor([index]), config.patch_size, config.latent_dim)[0]

        steps = steps or policy.default_steps
        (patches,) = generate(loaded.model, [source], [noise], [limit], flow_steps=steps, cfg=policy.default_cfg)
        return np.asarray(decode(loaded.model, patches))
