"""Runs a step plan on the device. Data crosses between host and device only here: one copy in, one out."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import gc
import sys
from collections.abc import Iterator, Mapping, Sequence

import torch
from tqdm import tqdm

from realtime_tts.engine.core.block_pool import BLOCK_SIZE
from realtime_tts.engine.core.request import StepFlags, StepPlan
from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.runtime.inputs import StepInputs
from realtime_tts.engine.runtime.layout import LayoutRules, StepLayout, lay_out
from realtime_tts.engine.runtime.outputs import SentOutputs, StepAudio, StepMarks, StepOutputs, TextReading
from realtime_tts.engine.runtime.stages import BASE, FLOW, LOC_ENC, RESIDUAL, REST, VAE, StageClock
from realtime_tts.engine.runtime.state import DeviceTensors
from realtime_tts.engine.runtime.step import StepPrograms, primed_sizes, stream_sizes
from realtime_tts.engine.segment import EngineSegment
from realtime_tts.errors import EngineOutOfMemory
from realtime_tts.model.adapted import AdapterBank
from realtime_tts.model.attention import AttentionBackend, SDPABackend, host_lens
from realtime_tts.model.checkpoint import LoadedModel
from realtime_tts.model.kernels.products import choosing
from realtime_tts.model.sequence import Array

_FINE, _BROKEN = StepFlags(), StepFlags(finite=False)


@dataclasses.dataclass(frozen=True, slots=True)
class StepResult:
    """Flags of every request in the plan, and the audio of those that spoke.

    gap_s: seconds for which the device was idle between the previous step and this one; None: not measured.
    """

    flags: dict[str, StepFlags]
    audio: list[StepAudio]
    gap_s: float | None = None


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable garbage collection: an unused engine may own graphs, and freeing one breaks a capture."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class ModelRunner:
    """Owner of the device side of serving: the model and `DeviceTensors`.

    Args:
        loaded: its policy has the number of flow steps of most requests, and the attention head that shows a stream's
            place in its text; None: the place is not measured.
        limits: the scheduler's limits, which bound one step.
        stages: receives each step's stages as they are launched.
        bank: the model's adapters. Steps without adapters use programs without a bank.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        limits: SchedulerConfig,
        backend: AttentionBackend | None = None,
        stages: StageClock | None = None,
        bank: AdapterBank | None = None,
    ) -> None:
        model, config, policy = loaded.model, loaded.config, loaded.policy
        self.model, self.default_flow_steps = model, policy.default_steps
        self.stages = stages or StageClock()
        self.device = model.stop_proj.weight.device
        self.backend = backend or SDPABackend()
        self._reads_text = policy.text_head is not None
        self.is_asynchronous = self.device.type == "cuda"  # the host can do something else meanwhile
        # For the decoder, beside the rest of a step. A clock that measures stages needs them one after the other.
        has_decoder_stream = self.device.type == "cuda" and stages is None
        self._decoder_stream = torch.cuda.Stream(self.device) if has_decoder_stream else None
        if self._decoder_stream is not None:
            self._primed = torch.cuda.Event()
        self._decoding: torch.cuda.Event | None = None  # copy event of the last step, beside which the next one begins
        # One step is computed, one waits for the device, one was the last to end.
        self._marks = collections.deque(StepMarks() for _ in range(3 if self.device.type == "cuda" else 0))
        self._last_marks: StepMarks | None = None
        num_slots, max_blocks = limits.max_streams, -(-limits.max_request_positions // BLOCK_SIZE)
        self.state = DeviceTensors(model, limits.num_blocks, num_slots, max_blocks)
        # Streams with another number of flow steps lie behind the padding of the others.
        self._step_streams = limits.max_step_streams
        num_rows, num_streams = limits.max_prefill_positions + self._step_streams, 2 * self._step_streams
        # A stream that goes on from memory needs all that its audio depends on.
        self.num_context_patches = max(
            config.num_context_patches, -(-model.vae.num_context_frames // config.patch_size)
        )
        num_patches = num_rows + self._step_streams * (1 + self.num_context_patches)
        patch_shape = (config.patch_size, config.latent_dim)
        self.inputs = StepInputs(num_rows, num_streams, num_patches, patch_shape, num_slots, self.device, max_blocks)
        self.outputs = StepOutputs(num_rows, num_streams, patch_shape, config.patch_samples, self.device)
        parts = loaded, self.state, self.inputs, self.outputs, self.backend
        self.programs = self._adapted_programs = StepPrograms(*parts)
        if bank is not None:
            self._adapted_programs = StepPrograms(*parts, bank)
        self._rules = LayoutRules(num_slots, policy.default_steps, lambda count: self.programs.flow.padded(count))

    @torch.inference_mode()
    def capture(self) -> int:
        """Capture the programs at all useful sizes, if backend and device allow it, with a progress bar at a terminal.
        No step may be running. Return the number of graphs."""
        if self.device.type != "cuda" or not self.backend.is_static:
            return 0
        programs, num_streams = self.programs, self._step_streams
        # The decoder is replayed beside the others, so it has a memory pool of its own (and each CUDA stream has its
        # own workspace for matrix products). The others are a chain of small kernels, which the decoder's many blocks
        # would delay: a graph's kernels have the priority of the stream that they were captured on.
        first, last = (torch.cuda.Stream(self.device, priority=priority) for priority in (-1, 0))
        pool, own = torch.cuda.graph_pool_handle(), torch.cuda.graph_pool_handle()
        variants = dict.fromkeys((programs, self._adapted_programs))
        parts = [(program, size, pool, first) for variant in variants for program, size in variant.sizes(num_streams)]
        parts += [(programs.vae, size, own, last) for size in reversed(stream_sizes(num_streams))]
        parts += [(programs.prime, size, own, last) for size in reversed(primed_sizes(num_streams))]
        torch.cuda.synchronize(self.device)
        with self._on_device(), choosing(), _without_garbage_collection():
            is_hidden = not sys.stderr.isatty()
            for program, size, memory, stream in tqdm(parts, "CUDA graphs", unit="", disable=is_hidden):
                with torch.cuda.stream(stream):
                    program.capture(size, memory)
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()  # memory of what ran before the captures; the graphs have their own
        return len(parts)

    def prepare(self, plan: StepPlan, segments: Mapping[str, EngineSegment]) -> StepLayout:
        """Return the layout for `launch`. `segments` holds every request of the plan. Earlier steps may still run."""
        return lay_out(plan, segments, self._rules)

    @torch.inference_mode()
    def launch(self, layout: StepLayout) -> SentOutputs:
        """Run a step. On CUDA this returns while the device works and never waits for it: the device may still have
        one earlier step to do, whose results are not known.

        Raises:
            EngineOutOfMemory: the step has no valid results; its requests must end.
        """
        with self._typed_errors(), self._on_device():
            if not self._marks:
                return self._step(layout)
            marks = self._marks[0]
            self._marks.rotate()
            marks.begun.record()
            sent = self._step(layout)
            marks.ended.record(self._decoder_stream)  # the decoder is the last to end
            return dataclasses.replace(sent, marks=marks)

    def result(self, layout: StepLayout, sent: SentOutputs) -> StepResult:
        """Wait for a launched step and return its results. Raises as `launch`."""
        with self._typed_errors():
            sent.wait()
        before, self._last_marks = self._last_marks, sent.marks
        gap_s = before.gap_s(sent.marks) if before is not None and sent.marks is not None else None
        return self._unpack(layout, sent.host, gap_s)

    def _on_device(self) -> contextlib.AbstractContextManager[object]:
        """Return a context that selects the device: kernels from outside torch run on the thread's current device."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else contextlib.nullcontext()

    @contextlib.contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError, the CPU's has no class
            if not isinstance(error, (torch.OutOfMemoryError, MemoryError)) and "can't allocate" not in str(error):
                raise
            self._last_marks = None
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            raise EngineOutOfMemory("the device had no memory for a step") from error

    def _step(self, layout: StepLayout) -> SentOutputs:
        """Launch the whole step."""
        programs, stages = self._adapted_programs if layout.has_adapters else self.programs, self.stages
        stages.mark(LOC_ENC)
        self.inputs.put(layout.columns)
        self.state.set_blocks(*self.inputs.send(layout.patches, self.state.changed_tables(layout.tables)))
        self._start_streams(layout)
        programs.lens = host_lens(layout.query_lens, layout.sequence_lens)
        programs.encode(programs.encode.padded(len(layout.columns.patch_slots)))
        stages.mark(BASE)
        programs.base(programs.base.padded(layout.num_rows))
        self._await_decoder()  # the following programs overwrite the last step's results
        stages.mark(RESIDUAL)
        programs.residual(programs.residual.padded(layout.num_rows))
        stages.mark(REST)
        if layout.streams:
            stages.mark(FLOW)
            for flow_steps, first, count in layout.flow_groups:
                if flow_steps == self.default_flow_steps:
                    programs.flow(programs.flow.padded(count))
                else:
                    programs.solve(flow_steps, first, count)
        sent = self._finish(layout, programs)
        stages.end()
        if self._decoder_stream is not None:  # the next step may be launched now; its LMs run beside the decoder
            self._decoding = sent.copied
            # Priming reads inputs that the next step overwrites.
            torch.cuda.current_stream(self.device).wait_event(self._primed)
        return sent

    def _await_decoder(self) -> None:
        decoding, self._decoding = self._decoding, None
        if decoding is not None:
            torch.cuda.current_stream(self.device).wait_event(decoding)

    def _finish(self, layout: StepLayout, programs: StepPrograms) -> SentOutputs:
        """Launch the decoding of the patches and the copy to the host."""
        num_decoded = self.programs.vae.padded(layout.num_speech)
        self.programs.keep_slots(num_decoded)
        if self._decoder_stream is not None:
            self._decoder_stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._decoder_stream):
            if layout.streams:
                self.stages.mark(VAE)
                self.programs.vae(num_decoded)
            sent = self.outputs.send(layout.num_speech, with_pcm=any(stream.wants_float for stream in layout.streams))
        if layout.streams:
            self.stages.mark(REST)
        return sent

    def _start_streams(self, layout: StepLayout) -> None:
        """Reset the slots of new streams, and prime decoders with the audio to continue, beside the flow."""
        if not layout.num_starting:
            return
        slots = self.inputs.starting_slots[: layout.num_starting]
        patches = self.inputs.patches[len(layout.patches[0]) :]
        self.state.last_patch.index_copy_(0, slots, patches[: layout.num_starting])  # replaces NaN, too
        self.stages.mark(VAE)
        if self._decoder_stream is not None:
            self._decoder_stream.wait_stream(torch.cuda.current_stream(self.device))
        first_stream, first_patch = 0, layout.num_starting
        with torch.cuda.stream(self._decoder_stream):
            self.state.vae.reset(slots)
            for num_patches, one_by_one, num_streams in layout.vae_groups:
                own_slots = slots[first_stream : first_stream + num_streams]
                first_stream += num_streams
                if num_patches:
                    context = patches[first_patch : first_patch + num_patches * num_streams]
                    first_patch += num_patches * num_streams
                    shape = num_streams, num_patches, *context.shape[1:]
                    self.programs.prime_decoder(context.view(shape), own_slots, one_by_one=one_by_one)
            if self._decoder_stream is not None:
                self._primed.record()
        self.stages.mark(LOC_ENC)

    def _unpack(self, layout: StepLayout, host: dict[str, Array], gap_s: float | None) -> StepResult:
        row_faults = host["row_faults"].tolist()
        flags = {name: _FINE if row_faults[row] == 0.0 else _BROKEN for name, row in layout.last_rows.items()}
        faults, stop, power, readings = (
            host[name][: layout.num_speech].tolist() for name in ("faults", "stop", "power", "readings")
        )
        samples, pcm, patches, reads = host["samples"], host["pcm"], host["patches"], self._reads_text
        made = []
        for name, row, wants_float in layout.streams:
            is_sound = faults[row] == 0.0 and flags.get(name, _FINE).finite
            flags[name] = StepFlags(bool(stop[row]), is_sound)
            audio = (pcm if wants_float else samples)[row]
            made.append(
                StepAudio(name, audio, power[row], patches[row], TextReading(*readings[row]) if reads else None)
            )
        return StepResult(flags, made, gap_s)

    @torch.inference_mode()
    def clear_blocks(self, blocks: Sequence[int]) -> None:
        """Clear blocks of a failed request, so that its values cannot reach the requests that use them next."""
        self.state.clear_blocks(blocks)
