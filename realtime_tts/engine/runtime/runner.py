"""Runs a step plan on the device. The only place where data crosses between host and device: one copy in, one out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from realtime_tts.engine.core.request import StepFlags, StepPlan
from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.runtime.inputs import StepInputs
from realtime_tts.engine.runtime.layout import StepLayout, lay_out
from realtime_tts.engine.runtime.outputs import StepOutputs
from realtime_tts.engine.runtime.stages import BASE, FLOW, LOC_ENC, RESIDUAL, REST, VAE, NoClock, StageClock
from realtime_tts.engine.runtime.state import DeviceState
from realtime_tts.engine.runtime.step import StepPrograms
from realtime_tts.engine.utterance import Utterance
from realtime_tts.errors import EngineOutOfMemory
from realtime_tts.model.attention import AttentionBackend, SDPABackend, host_lens
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
        limits: the scheduler's: how much one step may hold.
        usual_steps: the number of flow steps that most requests have.
        text_head: what tells where in its text a stream is; None: nobody is asked.
        stages: is told of each step's stages, as they are given to the device.
    """

    def __init__(
        self,
        model: VoxCPM,
        limits: SchedulerConfig,
        usual_steps: int,
        backend: AttentionBackend | None = None,
        text_head: TextHead | None = None,
        stages: StageClock | None = None,
    ) -> None:
        config = model.config
        self.model, self.usual_steps = model, usual_steps
        self.stages = stages or NoClock()
        self.device = model.stop_proj.weight.device
        self.backend = backend or SDPABackend()
        num_slots, max_blocks = limits.max_streams, -(-limits.max_request_positions // limits.block_size)
        self.state = DeviceState(
            model, limits.num_blocks, limits.block_size, num_slots, max_blocks, self.device, model.dtype
        )
        # Streams with another number of flow steps lie behind the padding of the others.
        num_rows, num_streams = limits.max_prefill_positions + num_slots, 2 * num_slots
        num_patches = num_rows + num_slots * (1 + config.num_context_patches)
        patch_shape = (config.patch_size, config.latent_dim)
        self.inputs = StepInputs(num_rows, num_streams, num_patches, patch_shape, num_slots, self.device)
        self.outputs = StepOutputs(num_rows, num_streams, patch_shape, config.patch_samples, self.device)
        self.programs = StepPrograms(model, self.state, self.inputs, self.outputs, self.backend, text_head, usual_steps)

    @torch.inference_mode()
    def capture(self, progress: Callable[[int, int], None] = lambda done, total: None) -> int:
        """Capture the programs at all sizes worth it, if backend and device allow it. No step may be running.

        progress: is told how many of how many are done. Returns how many graphs there are.
        """
        if self.device.type != "cuda" or not self.backend.is_static:
            return 0
        parts = self.programs.sizes(self.state.scratch_slot)
        pool = torch.cuda.graph_pool_handle()
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.device(self.device), torch.cuda.stream(stream):
            for done, (program, size) in enumerate(parts, 1):
                program.capture(size, pool)
                progress(done, len(parts))
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()  # of what ran before the captures; the graphs have their own
        return len(parts)

    @torch.inference_mode()
    def run(self, plan: StepPlan, utterances: Mapping[str, Utterance]) -> StepResult:
        """Advance every request of the plan.

        Raises:
            EngineOutOfMemory: nothing of the step counts; the requests in it must end.
        """
        layout = lay_out(plan, utterances, self.state.scratch_slot, self.usual_steps, self.programs.flow.padded)
        try:
            self._step(layout)
            self.outputs.wait()
        except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError, the CPU's has no class
            if not isinstance(error, (torch.OutOfMemoryError, MemoryError)) and "can't allocate" not in str(error):
                raise
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            raise EngineOutOfMemory("the device had no memory for a step") from error
        return self._unpack(layout)

    def _step(self, layout: StepLayout) -> None:
        """The whole step, given to the device."""
        programs, stages = self.programs, self.stages
        stages.begin(None)
        stages.mark(LOC_ENC)
        self.inputs.put(**layout.values)
        self.inputs.send(layout.patches)
        self.state.set_blocks(layout.tables)
        programs.lens = host_lens(layout.query_lens, layout.context_lens)
        programs.encode(programs.encode.padded(layout.num_audio))
        stages.mark(BASE)
        programs.base(programs.base.padded(layout.num_rows))
        stages.mark(RESIDUAL)
        programs.residual(programs.residual.padded(layout.num_rows))
        stages.mark(REST)
        if layout.speaking:
            self._start_streams(layout)
            stages.mark(FLOW)
            for steps, first, count in layout.flow_groups:
                if steps == self.usual_steps:
                    programs.flow(programs.flow.padded(count))
                else:
                    programs.solve(steps, first, count)
            stages.mark(VAE)
            programs.vae(programs.vae.padded(layout.num_speech))
            stages.mark(REST)
        self.outputs.send(layout.num_speech)
        stages.end()

    def _start_streams(self, layout: StepLayout) -> None:
        """Fresh slots; a continued prompt's last patches go through the VAE first, their audio is dropped."""
        if not layout.starting:
            return
        self.stages.mark(VAE)
        slots = self.inputs.starting_slots[: layout.starting]
        patches = self.inputs.patches[layout.num_features :]
        self.state.start_slots(slots, patches[: layout.starting])
        first_stream, first_patch = 0, layout.starting
        for num_patches, num_streams in layout.context_groups:
            own_slots = slots[first_stream : first_stream + num_streams]
            first_stream += num_streams
            if num_patches:
                context = patches[first_patch : first_patch + num_patches * num_streams]
                first_patch += num_patches * num_streams
                frames = context.reshape(num_streams, -1, context.shape[-1])
                self.model.vae.decode_stream(frames, self.state.vae, own_slots)

    def _unpack(self, layout: StepLayout) -> StepResult:
        host, speech = self.outputs.host, list(layout.speech)
        finite_rows, finite = host["finite_rows"][list(layout.last_rows)], host["finite"][speech]
        flags = {name: StepFlags(finite=bool(ok)) for name, ok in zip(layout.names, finite_rows.tolist(), strict=True)}
        stop = host["stop"][speech].tolist()
        for name, stops, ok in zip(layout.speaking, stop, finite.tolist(), strict=True):
            flags[name] = StepFlags(stop=bool(stops), finite=bool(ok) and flags[name].finite)
        # By a list, so all of it is copied: the next step writes over what is here.
        pcm, patches = host["pcm"][speech], host["patches"][speech]
        text: dict[str, TextReading] = {}
        if self.programs.text_head is not None:
            readings = host["readings"][: len(speech)].tolist()
            text = {name: TextReading(*reading) for name, reading in zip(layout.speaking, readings, strict=True)}
        return StepResult(
            flags,
            dict(zip(layout.speaking, pcm, strict=True)),
            dict(zip(layout.speaking, patches, strict=True)),
            text,
        )

    @torch.inference_mode()
    def clear_blocks(self, blocks: Sequence[int]) -> None:
        """After a request failed: what it left must not reach those who get its blocks."""
        self.state.clear_blocks(blocks)
