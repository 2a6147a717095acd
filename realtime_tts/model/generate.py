"""Speech generation without serving: inputs in, patches out. The same step as in serving, in a loop, on any device.

It is used by training to listen to results, by the benchmarks as a reference for streamed speech, and by the parity
tests for the comparison with the reference.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from collections.abc import Sequence as AnySequence
from typing import NamedTuple

import torch
from torch import Tensor

from realtime_tts.model.attention import AttentionMetadata, AttentionProbe, KVCache, PagedAttention, SDPABackend
from realtime_tts.model.sequence import Patches, Rows, Sequence
from realtime_tts.model.voxcpm import VoxCPM

BLOCK_SIZE = 16
Noise = Callable[[int], Tensor]  # a patch's index → [patch_size, latent_dim]; called once for each, in order


@dataclasses.dataclass(slots=True)
class Stream:
    """An input that is being spoken.

    blocks: blocks of the KV pool, enough for all of it. max_patches: after that many it ends without a stop flag.
    num_computed: positions whose KV is valid; the first of them may be another stream's. patches: those made so far,
    [patch_size, latent_dim] on the model's device. has_stopped: the last one was the last by its stop flag.
    """

    input: Sequence
    noise: Noise
    blocks: AnySequence[int]
    cfg: float
    max_patches: int = sys.maxsize
    num_computed: int = 0
    patches: list[Tensor] = dataclasses.field(default_factory=list)
    has_stopped: bool = False

    @property
    def goes_on(self) -> bool:
        """True if it needs further steps."""
        return not self.has_stopped and len(self.patches) < self.max_patches

    @property
    def num_positions(self) -> int:
        """Number of positions of the input and the patches made so far."""
        return self.input.num_positions + len(self.patches)

    @property
    def num_new(self) -> int:
        """Number of positions that its next step computes."""
        return self.num_positions - self.num_computed


class Step(NamedTuple):
    """lm_hidden, residual_hidden: [S, hidden], each stream's last position. stops: [S] bool, raw: they do not count
    while the step index is at most `config.min_patches`."""

    lm_hidden: Tensor
    residual_hidden: Tensor
    stops: Tensor


class OfflineRunner:
    """Advances streams over a KV pool of its own, with so many flow steps."""

    def __init__(self, model: VoxCPM, num_blocks: int, *, flow_steps: int) -> None:
        self.model = model
        self.device = model.stop_proj.weight.device
        self._kv = KVCache.allocate(model.config, num_blocks, BLOCK_SIZE, self.device, model.dtype)
        self._backend = SDPABackend()
        self._schedule = model.flow_schedule(flow_steps)

    @torch.inference_mode()
    def step(self, streams: AnySequence[Stream], probe: AttentionProbe | None = None) -> Step:
        """Make one more patch for each stream. Streams with several new positions must come first. `probe` observes the
        base LM's attention.

        Raises:
            ValueError: a stream with several new positions follows one with a single one.
        """
        model, device = self.model, self.device
        new, ends = [stream.num_new for stream in streams], [stream.num_positions for stream in streams]
        blocks = [stream.blocks for stream in streams]
        meta = AttentionMetadata.build(new, ends, blocks, self._kv.block_size, device)
        previous = torch.stack([self._previous(stream) for stream in streams])
        embeddings, is_audio = self._embed(streams, previous)
        attend = PagedAttention(self._backend, self._kv, meta, probe=probe)
        lm_hidden, residual = model.lm_forward(embeddings, is_audio, attend)
        noise = torch.stack([stream.noise(len(stream.patches)) for stream in streams]).to(device)
        cfg = torch.tensor([stream.cfg for stream in streams], device=device)
        patches = model.flow(model.condition(lm_hidden, residual), previous, noise, self._schedule, cfg)
        stops = model.stop_flags(lm_hidden)
        for stream, patch, end, stop in zip(streams, patches, ends, stops.tolist(), strict=True):
            stream.patches.append(patch)
            stream.num_computed = end
            stream.has_stopped = stop and len(stream.patches) > model.config.min_patches + 1
        return Step(lm_hidden, residual, stops)

    def _previous(self, stream: Stream) -> Tensor:
        return stream.patches[-1] if stream.patches else torch.from_numpy(stream.input.prefix_patch).to(self.device)

    def _embed(self, streams: AnySequence[Stream], previous: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return embeddings of the new positions, and which of them are audio (None: all)."""
        speaks = [bool(stream.patches) for stream in streams]
        if all(speaks):
            return self.model.embed_patches(previous), None
        rows = Rows.of([(stream.input, stream.num_computed, stream.num_positions) for stream in streams])
        fed_back = previous[torch.tensor(speaks, device=self.device)]
        return self.model.embed(
            torch.tensor(rows.token_ids, device=self.device),
            torch.cat((torch.from_numpy(rows.features).to(self.device), fed_back)),
            torch.tensor(rows.audio_index, dtype=torch.int64, device=self.device),
        )


def streams_of(
    inputs: AnySequence[Sequence], noises: AnySequence[Noise], max_patches: AnySequence[int], cfg: float
) -> tuple[list[Stream], int]:
    """Return streams with blocks of one pool for their inputs and patches, and the number of these blocks."""
    streams: list[Stream] = []
    num_blocks = 0
    for source, noise, limit in zip(inputs, noises, max_patches, strict=True):
        first, num_blocks = num_blocks, num_blocks - (source.num_positions + limit) // -BLOCK_SIZE
        streams.append(Stream(source, noise, range(first, num_blocks), cfg, limit))
    return streams, num_blocks


@torch.inference_mode()
def generate(
    model: VoxCPM,
    inputs: AnySequence[Sequence],
    noises: AnySequence[Noise],
    max_patches: AnySequence[int],
    *,
    flow_steps: int,
    cfg: float,
) -> list[Patches]:
    """Return the patches [n, patch_size, latent_dim] of each input, all in one batch, without those of a prompt.

    A stream ends with the patch of its stop flag, and at its `max_patches` at the latest.
    """
    streams, num_blocks = streams_of(inputs, noises, max_patches, cfg)
    runner = OfflineRunner(model, num_blocks, flow_steps=flow_steps)
    while running := [stream for stream in streams if stream.goes_on]:
        runner.step(running)
    return [torch.stack(stream.patches).cpu().numpy() for stream in streams]


@torch.inference_mode()
def decode(model: VoxCPM, patches: Patches) -> Tensor:
    """Return audio: patches [n, patch_size, latent_dim] → [samples] float32 in −1…1 on the CPU.

    The decoder is causal: decoding patch by patch, as in serving, differs only by rounding.
    """
    device = next(model.vae.parameters()).device
    return model.vae.decode(torch.from_numpy(patches).flatten(0, 1)[None].to(device))[0].cpu()
