"""The serving step in a loop, with given noise, for tests: paged, any number of streams, prefill and decode mixed."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from realtime_tts.model.attention import AttentionMetadata, KVCache, SDPABackend
from realtime_tts.model.sequence import Sequence
from realtime_tts.model.voxcpm import VoxCPM

BLOCK_SIZE = 4


@dataclasses.dataclass
class Stream:
    """One generation: its input and noise [num_steps, patch_size, latent_dim], and what each step made of them."""

    sequence: Sequence
    noise: Tensor
    blocks: list[int]
    cfg: float = 2.0
    start_step: int = 0  # joins the batch this many steps after the first stream
    context_len: int = 0
    latents: list[Tensor] = dataclasses.field(default_factory=list)
    lm_hidden: list[Tensor] = dataclasses.field(default_factory=list)
    residual_hidden: list[Tensor] = dataclasses.field(default_factory=list)
    stop_flags: list[bool] = dataclasses.field(default_factory=list)

    @property
    def query_len(self) -> int:
        return 1 if self.latents else self.sequence.num_positions - self.context_len

    def next_rows(self) -> tuple[list[int], Tensor, list[int]]:
        """Token ids of this step's rows, features of its audio rows, and which rows these are."""
        if self.latents:
            return [0], self.latents[-1][None], [0]
        first = self.context_len
        kept = [i for i, position in enumerate(self.sequence.audio_index) if position >= first]
        features = torch.from_numpy(self.sequence.features)[kept]
        return self.sequence.token_ids[first:], features, [self.sequence.audio_index[i] - first for i in kept]


class Generator:
    """Advances streams together, as an engine would."""

    def __init__(self, model: VoxCPM, num_blocks: int = 256, num_flow_steps: int = 10) -> None:
        self.model = model
        self.kv = KVCache.allocate(model.config, num_blocks, BLOCK_SIZE, "cpu", model.dtype)
        self._schedule = model.flow_schedule(num_flow_steps)

    def step(self, streams: list[Stream]) -> None:
        streams = sorted(streams, key=lambda stream: stream.query_len == 1)
        query_lens = [stream.query_len for stream in streams]
        token_ids: list[int] = []
        features, audio_index = [], []
        for stream in streams:
            ids, patches, rows = stream.next_rows()
            audio_index += [len(token_ids) + row for row in rows]
            token_ids += ids
            features.append(patches)
            stream.context_len += stream.query_len
        meta = AttentionMetadata.build(
            query_lens, [s.context_len for s in streams], [s.blocks for s in streams], BLOCK_SIZE
        )
        embeddings, is_audio = self.model.embed(torch.tensor(token_ids), torch.cat(features), torch.tensor(audio_index))
        hidden, residual = self.model.lm_forward(embeddings, is_audio, meta, self.kv, SDPABackend())
        prefix = torch.stack(
            [s.latents[-1] if s.latents else torch.from_numpy(s.sequence.prefix_patch) for s in streams]
        )
        noise = torch.stack([stream.noise[len(stream.latents)] for stream in streams])
        cfg = torch.tensor([stream.cfg for stream in streams])
        patches = self.model.flow(self.model.condition(hidden, residual), prefix, noise, self._schedule, cfg)
        flags = self.model.stop_flags(hidden).tolist()
        for i, stream in enumerate(streams):
            stream.latents.append(patches[i])
            stream.lm_hidden.append(hidden[i])
            stream.residual_hidden.append(residual[i])
            stream.stop_flags.append(flags[i])

    def run(self, streams: list[Stream]) -> None:
        """Until every stream has used its noise."""
        step = 0
        while active := [s for s in streams if len(s.latents) < len(s.noise)]:
            running = [s for s in active if s.start_step <= step]
            if running:
                self.step(running)
            step += 1


def decode_audio(model: VoxCPM, sequence: Sequence, latents: Tensor) -> Tensor:
    """latents [N, patch_size, latent_dim] → [samples]: streamed patch by patch, after the prompt's last patches."""
    state = model.vae.new_state(1, "cpu")
    if len(sequence.context):
        model.vae.decode_stream(torch.from_numpy(sequence.context).flatten(0, 1)[None], state)
    return torch.cat([model.vae.decode_stream(patch[None], state)[0] for patch in latents])
