"""Speaks many texts at once with the serving model's own steps: what the evaluation listens to."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence as AnySequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from realtime_tts.model.attention import AttentionMetadata, KVCache, SDPABackend
from realtime_tts.model.checkpoint import LoadedModel
from realtime_tts.model.sequence import Sequence, build_sequence, length_guard

BLOCK_SIZE = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Utterance:
    """A text to say. `voice` is a named voice or None; reference and prompt are patches [n, patch_size, latent_dim]."""

    text: str
    voice: str | None = None
    reference: NDArray[np.float32] | None = None
    prompt: NDArray[np.float32] | None = None
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


@torch.inference_mode()
def generate(
    loaded: LoadedModel, utterances: AnySequence[Utterance], *, steps: int, cfg: float, seed: int = 0, batch: int = 96
) -> list[NDArray[np.float32]]:
    """Latent patches [n, patch_size, latent_dim] of each utterance, its prompt not included.

    A stream ends at its stop flag, or at `max_patches` of its text.
    """
    result: list[NDArray[np.float32]] = [np.empty(0)] * len(utterances)
    order = np.argsort([len(u.text) for u in utterances], kind="stable")
    for start in tqdm(range(0, len(order), batch), unit="batch", leave=False):
        chosen = order[start : start + batch]
        patches = generate_together(
            loaded,
            [utterances[index].sequence(loaded) for index in chosen],
            [max_patches(loaded, utterances[index].text) for index in chosen],
            [1_000_003 * seed + int(index) for index in chosen],
            steps=steps,
            cfg=cfg,
        )
        for index, made in zip(chosen, patches, strict=True):
            result[index] = made
    return result


def max_patches(loaded: LoadedModel, text: str) -> int:
    """What has not stopped by then never will: the guard of the served voice."""
    num_tokens, per_char = len(loaded.tokenizer.encode(text)), loaded.policy.max_patches_per_char
    return length_guard(num_tokens, len(text), per_char, loaded.config.max_length)


@torch.inference_mode()
def generate_together(
    loaded: LoadedModel, sequences: list[Sequence], limits: list[int], seeds: list[int], *, steps: int, cfg: float
) -> list[NDArray[np.float32]]:
    """Latent patches [n ≤ limit, patch_size, latent_dim] of each input, all in one batch.

    A stream's noise comes from its own seed: what it says must not depend on the batch it is in.
    """
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    return _Batch(loaded, sequences, limits).run(steps, cfg, generators)


class _Batch:
    """Streams that start together; each leaves at its end."""

    def __init__(self, loaded: LoadedModel, sequences: list[Sequence], limits: list[int]) -> None:
        self.model, self.config = loaded.model, loaded.config
        self.device = loaded.model.stop_proj.weight.device
        self.sequences, self.limits = sequences, limits
        self.lengths = [sequence.num_positions for sequence in sequences]
        sizes = [-(-(n + limit + 1) // BLOCK_SIZE) for n, limit in zip(self.lengths, limits, strict=True)]
        first = np.cumsum([0, *sizes])
        self.tables = [list(range(first[i], first[i + 1])) for i in range(len(sizes))]
        self.kv = KVCache.allocate(self.config, int(first[-1]), BLOCK_SIZE, self.device, loaded.model.dtype)
        self.backend = SDPABackend()

    def _forward(
        self, embeddings: Tensor, is_audio: Tensor | None, streams: list[int], new: list[int]
    ) -> tuple[Tensor, Tensor]:
        contexts = [self.lengths[s] for s in streams]
        tables = [self.tables[s] for s in streams]
        meta = AttentionMetadata.build(new, contexts, tables, BLOCK_SIZE, self.device)
        return self.model.lm_forward(embeddings, is_audio, meta, self.kv, self.backend)

    def _prefill(self) -> tuple[Tensor, Tensor]:
        tokens = [token for sequence in self.sequences for token in sequence.token_ids]
        offsets = np.cumsum([0, *self.lengths])
        index = [
            i + offset for sequence, offset in zip(self.sequences, offsets, strict=False) for i in sequence.audio_index
        ]
        features = torch.from_numpy(np.concatenate([sequence.features for sequence in self.sequences]))
        embeddings, is_audio = self.model.embed(
            torch.tensor(tokens, device=self.device),
            features.to(self.device),
            torch.tensor(index, dtype=torch.int64, device=self.device),
        )
        return self._forward(embeddings, is_audio, list(range(len(self.sequences))), self.lengths)

    def run(self, steps: int, cfg: float, generators: list[torch.Generator]) -> list[NDArray[np.float32]]:
        made: list[list[Tensor]] = [[] for _ in self.sequences]
        streams = list(range(len(self.sequences)))
        schedule = self.model.flow_schedule(steps)
        shape = (self.config.patch_size, self.config.latent_dim)
        prefix = torch.stack([torch.from_numpy(sequence.prefix_patch) for sequence in self.sequences]).to(self.device)
        lm_hidden, residual = self._prefill()
        step = 0
        while streams:
            noise = torch.stack([torch.randn(shape, generator=generators[stream]) for stream in streams]).to(
                self.device
            )
            scales = torch.full((len(streams),), cfg, device=self.device)
            stops = self.model.stop_flags(lm_hidden).tolist()
            patches = self.model.flow(self.model.condition(lm_hidden, residual), prefix, noise, schedule, scales)
            for stream, patch in zip(streams, patches.cpu(), strict=True):
                made[stream].append(patch)
            goes_on = [
                not (stop and step > self.config.min_patches) and step + 1 < self.limits[stream]
                for stream, stop in zip(streams, stops, strict=True)
            ]
            streams = [stream for stream, on in zip(streams, goes_on, strict=True) if on]
            prefix = patches[torch.tensor(goes_on, device=self.device)]
            if streams:
                for stream in streams:
                    self.lengths[stream] += 1
                lm_hidden, residual = self._forward(self.model.embed_patches(prefix), None, streams, [1] * len(streams))
            step += 1
        return [torch.stack(parts).numpy() for parts in made]


@torch.inference_mode()
def decode(
    loaded: LoadedModel,
    patches: NDArray[np.float32],
    context: NDArray[np.float32] | None = None,
    *,
    patch_by_patch: bool = False,
) -> NDArray[np.int16]:
    """As a stream, whose `context` patches are decoded first and dropped. → [samples].

    The decoder is causal: `patch_by_patch`, as served, differs from all at once by rounding only, and takes longer.
    """
    vae = loaded.model.vae
    device = next(vae.parameters()).device
    state = vae.new_state(1, device)
    if context is not None and len(context):
        vae.decode_stream(torch.from_numpy(context).flatten(0, 1)[None].to(device), state)
    size = 1 if patch_by_patch else max(1, len(patches))
    parts = [
        vae.decode_stream(torch.from_numpy(patches[start : start + size]).flatten(0, 1)[None].to(device), state)[0]
        for start in range(0, len(patches), size)
    ]
    pcm = torch.cat(parts)
    return (pcm.clamp(-1, 1) * 32767).short().cpu().numpy()
