"""Runs a step plan on the device. The only place where data crosses between host and device: one copy in, one out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from realtime_tts.engine.core.request import StepFlags, StepPlan
from realtime_tts.engine.runtime.layout import Batch, build_batch
from realtime_tts.engine.runtime.noise import patch_noise
from realtime_tts.engine.runtime.stages import BASE, FLOW, LOC_ENC, RESIDUAL, REST, VAE, NoClock, StageClock
from realtime_tts.engine.runtime.state import DeviceState
from realtime_tts.engine.utterance import Utterance
from realtime_tts.errors import EngineOutOfMemory
from realtime_tts.model.attention import AttentionBackend, SDPABackend
from realtime_tts.model.flow_matching import FlowSchedule
from realtime_tts.model.text_head import HeadProbe
from realtime_tts.model.voxcpm import VoxCPM
from realtime_tts.workers.policy import TextHead

Array = np.ndarray[Any, np.dtype[np.float32]]


@dataclasses.dataclass(frozen=True, slots=True)
class TextReading:
    """Where in its text a stream is: a token's index as a fraction, and the share of the attention that is on the text.
    Either may be no number."""

    index: float
    mass: float


@dataclasses.dataclass(frozen=True, slots=True)
class StepResult:
    """Of every request in the plan its flags; of those that spoke, by name, PCM and patch.

    pcm: [patch_samples] float32 in −1…1. patches: [patch_size, latent_dim], what continuity is made from.
    text: what the text head read; empty without one.
    """

    flags: dict[str, StepFlags]
    pcm: dict[str, Array]
    patches: dict[str, Array]
    text: dict[str, TextReading]


class ModelRunner:
    """Owns the device side of serving: the model and `DeviceState`.

    Args:
        num_blocks, num_slots: as the scheduler's.
        text_head: what tells where in its text a stream is; None: nobody is asked.
        stages: is told of each step's stages, as they are given to the device.
    """

    def __init__(
        self,
        model: VoxCPM,
        num_blocks: int,
        block_size: int,
        num_slots: int,
        backend: AttentionBackend | None = None,
        text_head: TextHead | None = None,
        stages: StageClock | None = None,
    ) -> None:
        self.model, self.block_size, self.text_head = model, block_size, text_head
        self.stages = stages or NoClock()
        self.device = model.stop_proj.weight.device
        self.backend = backend or SDPABackend()
        self.state = DeviceState(model, num_blocks, block_size, num_slots, self.device, model.dtype)
        self._schedules: dict[int, FlowSchedule] = {}

    @torch.inference_mode()
    def run(self, plan: StepPlan, utterances: Mapping[str, Utterance]) -> StepResult:
        """Advance every request of the plan.

        Raises:
            EngineOutOfMemory: nothing of the step counts; the requests in it must end.
        """
        try:
            batch = build_batch(plan, utterances, self.block_size, self.device)
            return self._unpack(batch, self._step(batch).cpu().numpy())
        except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError, the CPU's has no class
            if not isinstance(error, (torch.OutOfMemoryError, MemoryError)) and "can't allocate" not in str(error):
                raise
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            raise EngineOutOfMemory("the device had no memory for a step") from error

    def _step(self, batch: Batch) -> Tensor:
        """The whole step on the device → one flat float32 tensor: finite [R], stop [S], text readings [S, 2] (if
        there is a head), patches, PCM."""
        model, state, stages = self.model, self.state, self.stages
        stages.begin(None)
        stages.mark(LOC_ENC)
        fed_back = state.last_patch.index_select(0, batch.decode_slots)
        features = torch.cat((batch.features, fed_back))
        embeddings, is_audio = model.embed(batch.token_ids, features, batch.audio_index)
        head = self.text_head if batch.speaking else None
        probe = HeadProbe(head.layer, head.head, batch.spoken) if head else None
        stages.mark(BASE)
        lm_hidden = model.base_forward(embeddings, is_audio, batch.meta, state.kv, self.backend, probe)
        stages.mark(RESIDUAL)
        hidden = model.residual_forward(lm_hidden, embeddings, is_audio, batch.meta, state.kv, self.backend)
        lm_hidden, residual_hidden = batch.meta.last_rows(lm_hidden), batch.meta.last_rows(hidden)
        stages.mark(REST)
        finite = (torch.isfinite(lm_hidden) & torch.isfinite(residual_hidden)).all(dim=1)
        if not batch.speaking:
            stages.end()
            return finite.float()
        lm_hidden = lm_hidden.index_select(0, batch.speaking_rows)
        residual_hidden = residual_hidden.index_select(0, batch.speaking_rows)
        stop = model.stop_flags(lm_hidden)
        self._start_streams(batch)
        stages.mark(FLOW)
        patches = self._flow(batch, model.condition(lm_hidden, residual_hidden))
        state.last_patch.index_copy_(0, batch.speaking_slots, patches)
        stages.mark(VAE)
        pcm = model.vae.decode_stream(patches, state.vae, batch.speaking_slots)
        readings = stop[:0] if probe is None else probe.readings.flatten()
        stages.mark(REST)
        parts = (finite, stop, readings, patches.flatten(), pcm.flatten())
        flat = torch.cat([part.float() for part in parts])
        stages.end()
        return flat

    def _start_streams(self, batch: Batch) -> None:
        """Fresh slots; a continued prompt's last patches go through the VAE first, their audio is dropped."""
        if not batch.starting:
            return
        self.stages.mark(VAE)
        self.state.start_slots(batch.starting_slots, batch.prefix_patches)
        first_stream = first_patch = 0
        for num_patches, num_streams in batch.context_groups:
            slots = batch.starting_slots[first_stream : first_stream + num_streams]
            first_stream += num_streams
            if num_patches:
                context = batch.contexts[first_patch : first_patch + num_patches * num_streams]
                first_patch += num_patches * num_streams
                frames = context.reshape(num_streams, -1, context.shape[-1])
                self.model.vae.decode_stream(frames, self.state.vae, slots)

    def _flow(self, batch: Batch, mu: Tensor) -> Tensor:
        """Solve for the next patches, [S, patch_size, latent_dim]; one solve per number of steps in use."""
        config = self.model.config
        previous = self.state.last_patch.index_select(0, batch.speaking_slots)
        noise = patch_noise(batch.noise_keys, batch.patch_index, config.patch_size, config.latent_dim)
        patches = []
        start = 0
        for steps, num_streams in batch.flow_groups:
            rows = slice(start, start + num_streams)
            start += num_streams
            schedule = self._schedule(steps)
            patches.append(self.model.flow(mu[rows], previous[rows], noise[rows], schedule, batch.cfg[rows]))
        return patches[0] if len(patches) == 1 else torch.cat(patches)

    def _schedule(self, steps: int) -> FlowSchedule:
        if steps not in self._schedules:
            self._schedules[steps] = self.model.flow_schedule(steps)
        return self._schedules[steps]

    def _unpack(self, batch: Batch, flat: Array) -> StepResult:
        config = self.model.config
        num_rows, num_speaking = len(batch.names), len(batch.speaking)
        patch_values = config.patch_size * config.latent_dim
        num_readings = 2 * num_speaking if self.text_head is not None else 0
        sizes = (num_rows, num_speaking, num_readings, num_speaking * patch_values)
        finite, stop, readings, patches, pcm = np.split(flat, np.cumsum(sizes))
        patches = patches.reshape(num_speaking, config.patch_size, config.latent_dim)
        pcm = pcm.reshape(num_speaking, config.patch_samples)
        good = np.logical_and(np.isfinite(patches).all(axis=(1, 2)), np.isfinite(pcm).all(axis=1)).tolist()
        flags = {name: StepFlags(finite=bool(ok)) for name, ok in zip(batch.names, finite, strict=True)}
        for name, stops, ok in zip(batch.speaking, stop, good, strict=True):
            flags[name] = StepFlags(stop=bool(stops), finite=bool(ok) and flags[name].finite)
        text = {
            name: TextReading(*reading.tolist())
            for name, reading in zip(batch.speaking, readings.reshape(-1, 2), strict=bool(num_readings))
        }
        return StepResult(
            flags,
            dict(zip(batch.speaking, pcm, strict=True)),
            dict(zip(batch.speaking, patches, strict=True)),
            text,
        )

    @torch.inference_mode()
    def clear_blocks(self, blocks: Sequence[int]) -> None:
        """After a request failed: what it left must not reach those who get its blocks."""
        self.state.clear_blocks(blocks)
