"""The same checkpoint without any of the serving: one sequence at a time, no batch, no segments, no streaming, the
AudioVAE over the whole utterance at once. What the streaming path is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from realtime_tts.engine.noise import noise_key, patch_noise
from realtime_tts.model.attention import AttentionMetadata, KVCache, SDPABackend
from realtime_tts.model.checkpoint import load_model
from realtime_tts.model.sequence import build_sequence, length_guard
from realtime_tts.text.normalizer import Normalizer
from realtime_tts.workers.location import local_directory

BLOCK_SIZE = 16


class OfflineModel:
    """Speaks a text as one utterance.

    Args:
        model: as for `realtime_tts.TTS`.
    """

    def __init__(self, model: str = "starter-voice") -> None:
        self._loaded = load_model(str(local_directory(model) or model))
        charset = self._loaded.policy.charset
        self._normalizer = Normalizer("en", None if charset is None else frozenset(charset))

    @torch.inference_mode()
    def speak(
        self, text: str, *, seed: int = 0, voice: str | None = None, steps: int | None = None
    ) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Samples −1…1 at the checkpoint's rate."""
        latents = self.latents(text, seed=seed, voice=voice, steps=steps)
        frames = latents.reshape(1, -1, latents.shape[-1])
        return np.asarray(self._loaded.model.vae.decode(frames)[0].numpy())

    def latents(self, text: str, *, seed: int, voice: str | None, steps: int | None) -> torch.Tensor:
        """All patches of the utterance, [num_patches, patch_size, latent_dim]."""
        loaded, model, config = self._loaded, self._loaded.model, self._loaded.config
        spoken = self._normalizer.normalize(text).text
        prefix = loaded.policy.voices[voice or loaded.policy.default_voice].text_prefix
        text_ids = loaded.tokenizer.encode(spoken)
        sequence = build_sequence(config, text_ids, prefix_ids=loaded.tokenizer.encode_trusted(prefix))
        per_char = loaded.policy.max_patches_per_char
        max_patches = length_guard(len(text_ids), len(spoken), per_char, config.max_length)
        num_blocks = -(-(sequence.num_positions + max_patches) // BLOCK_SIZE)
        kv = KVCache.allocate(config, num_blocks, BLOCK_SIZE, "cpu", model.dtype)
        schedule = model.flow_schedule(steps or loaded.policy.default_steps)
        cfg = torch.full((1,), loaded.policy.default_cfg)
        key = torch.tensor([noise_key(seed)])
        previous = torch.zeros(1, config.patch_size, config.latent_dim)
        no_audio = torch.zeros(0, dtype=torch.long)
        embeddings, is_audio = model.embed(torch.tensor(sequence.token_ids), previous[:0], no_audio)
        patches: list[torch.Tensor] = []
        num_new, length = sequence.num_positions, sequence.num_positions
        while True:
            meta = AttentionMetadata.build([num_new], [length], [list(range(num_blocks))], BLOCK_SIZE, "cpu")
            hidden, residual = model.lm_forward(embeddings, is_audio, meta, kv, SDPABackend())
            noise = patch_noise(key, torch.tensor([len(patches)]), config.patch_size, config.latent_dim)
            previous = model.flow(model.condition(hidden, residual), previous, noise, schedule, cfg)
            patches.append(previous)
            stops = bool(model.stop_flags(hidden)[0]) and len(patches) - 1 > config.min_patches
            if stops or len(patches) == max_patches:
                return torch.cat(patches)
            embeddings, is_audio = model.embed_patches(previous), None
            num_new, length = 1, length + 1
