"""A step of the model as programs over static tensors. They neither wait for the device nor read from it."""

from __future__ import annotations

import contextlib
import dataclasses

import torch
from torch import Tensor

from realtime_tts.engine.runtime.inputs import StepInputs
from realtime_tts.engine.runtime.noise import patch_noise
from realtime_tts.engine.runtime.outputs import StepOutputs
from realtime_tts.engine.runtime.program import Parts, Program, sizes_up_to
from realtime_tts.engine.runtime.state import DeviceTensors
from realtime_tts.model.adapted import AdapterBank
from realtime_tts.model.attention import AttentionBackend, AttentionMetadata, PagedAttention
from realtime_tts.model.checkpoint import LoadedModel
from realtime_tts.model.flow_matching import FlowSchedule
from realtime_tts.model.text_head import HeadProbe, TextSpans

Lens = tuple[tuple[tuple[int, int], ...], int]
_MAX_PRIMED = 16  # streams in one run; a step in which more begin runs it several times


class StepPrograms:
    """The parts of a step, in their order. Each reads the results of the previous ones.

    encode(A): LocEnc of patches, from the host or fed back. base(T), residual(T): both LMs over T rows, prefill and
    decode together; each sequence's last hidden states are stored in its slot. flow(S): patches from these, which
    become the slots' last ones, and the stop flags. vae(S), after `keep_slots`: the patches' audio. prime(n), before
    all others: the decoder reads the audio that new streams continue.

    bank: adapters of the rows, as the inputs select them; None: no adapters.
    lens: lengths of the rows, for a backend that is not static; set before a run.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        state: DeviceTensors,
        inputs: StepInputs,
        outputs: StepOutputs,
        backend: AttentionBackend,
        bank: AdapterBank | None = None,
    ) -> None:
        model, default_flow_steps = loaded.model, loaded.policy.default_steps
        self.model, self.state, self.inputs, self.outputs = model, state, inputs, outputs
        self._bank, self._parts = bank, Parts()
        self.backend, self.text_head = backend, loaded.policy.text_head
        self.lens: Lens = ((), 0)
        num_rows, hidden = inputs.token_ids.shape[0], model.config.base.hidden_size
        shape, device = (num_rows, hidden), inputs.token_ids.device
        self._audio, self._embeddings, self._hidden = (
            torch.zeros(shape, dtype=model.dtype, device=device) for _ in range(3)
        )
        self._slot_mapping = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._patch_noise = patch_noise
        if backend.name == "triton":
            from realtime_tts.model.kernels import noise  # one kernel instead of thirty small operations

            self._patch_noise = noise.patch_noise
        num_frames = model.config.num_context_patches * model.config.patch_size
        self._primed = torch.zeros(_MAX_PRIMED, num_frames, model.config.latent_dim, device=device)
        self._primed_slots = torch.full((_MAX_PRIMED,), state.scratch_slot, device=device)
        self._decoded_slots = torch.full_like(inputs.speech_slots, state.scratch_slot)
        self._schedules = {default_flow_steps: model.flow_schedule(default_flow_steps)}
        self.prime = Program(self._prime)
        self.encode = Program(self._encode)
        self.base = Program(self._base)
        self.residual = Program(self._residual)
        self.flow = Program(lambda size: self.solve(default_flow_steps, 0, size))
        self.vae = Program(self._vae)

    def sizes(self, max_streams: int) -> list[tuple[Program, int]]:
        """Return the programs and sizes to capture, largest first, so that later ones reuse the memory. The decoder's
        programs `vae` and `prime` are not included.

        max_streams: maximum number of streams that speak in one step.
        """
        by_rows = sizes_up_to(self.inputs.token_ids.shape[0], fine=False)
        rows = [(program, size) for program in (self.encode, self.base, self.residual) for size in by_rows]
        streams = [(self.flow, size) for size in stream_sizes(max_streams)]
        return sorted(rows + streams, key=lambda part: -part[1])

    def prime_decoder(self, patches: Tensor, slots: Tensor, *, one_by_one: bool) -> None:
        """Run the last patches that streams continue from through the decoder and drop their audio, so that new audio
        continues where they ended. patches [n, any number, patch_size, latent_dim], slots [n].

        one_by_one: decode them as when they were made, for the same samples; slower than all in one call.
        """
        frames = patches.flatten(1, 2)
        if one_by_one or frames.shape[1] != self._primed.shape[1]:
            for part in patches.unbind(1) if one_by_one else (frames,):
                self.model.vae.decode_stream(part, self.state.vae, slots)
            return
        for first in range(0, len(frames), _MAX_PRIMED):
            some = slice(first, first + _MAX_PRIMED)
            count = len(frames[some])
            self._primed[:count] = frames[some]
            self._primed_slots[:count] = slots[some]
            self._primed_slots[count:] = self.state.scratch_slot
            self.prime(self.prime.padded(count))

    def keep_slots(self, count: int) -> None:
        """Store the slots whose patches `vae` decodes: the next step's inputs may arrive before it is done."""
        part = self._parts
        part(self._decoded_slots, 0, count).copy_(part(self.inputs.speech_slots, 0, count))

    def _prime(self, count: int) -> None:
        self.model.vae.decode_stream(self._primed[:count], self.state.vae, self._primed_slots[:count])

    def _encode(self, num_audio: int) -> None:
        inputs, slots = self.inputs, self.inputs.patch_slots[:num_audio]
        fed_back = self.state.last_patch.index_select(0, slots)
        is_given = (slots == self.state.scratch_slot)[:, None, None]
        patches = torch.where(is_given, inputs.patches[:num_audio], fed_back)
        with self._adapted(inputs.patch_adapters[:num_audio]):
            self._audio[:num_audio] = self.model.embed_patches(patches)

    def _base(self, num_rows: int) -> None:
        model, inputs, index = self.model, self.inputs, self.inputs.audio_index[:num_rows]
        text = model.embed_text(inputs.token_ids[:num_rows])
        is_audio = (index >= 0)[:, None]
        embeddings = self._embeddings[:num_rows]
        torch.where(is_audio, self._audio.index_select(0, index.clamp(min=0)), text, out=embeddings)
        positions, slots = inputs.positions[:num_rows], inputs.slots[:num_rows]
        self.state.map_slots(positions, slots, self._slot_mapping[:num_rows])
        spoken = TextSpans(
            inputs.spoken_rows[:num_rows], inputs.spoken_starts[:num_rows], inputs.spoken_lens[:num_rows]
        )
        head = self.text_head
        probe = HeadProbe(head.layer, head.head, spoken) if head is not None else None
        with self._adapted(inputs.row_adapters[:num_rows]):
            attend = self._attend(self._metadata(num_rows), probe)
            self._hidden[:num_rows] = model.base_forward(embeddings, is_audio, attend)
        if probe is not None:
            self.state.readings.index_copy_(0, inputs.spoken_slots[:num_rows], probe.readings)

    def _residual(self, num_rows: int) -> None:
        hidden, embeddings = self._hidden[:num_rows], self._embeddings[:num_rows]
        embeddings = embeddings * (self.inputs.audio_index[:num_rows] >= 0)[:, None]
        meta, slots = self._metadata(num_rows), self.inputs.hidden_slots[:num_rows]
        with self._adapted(self.inputs.row_adapters[:num_rows]):
            residual = self.model.residual_forward(hidden, embeddings, None, self._attend(meta))
        total = hidden.sum(1, dtype=torch.float32) + residual.sum(1, dtype=torch.float32)
        torch.sub(total, total, out=self.outputs.row_faults[:num_rows])
        self.state.lm_hidden.index_copy_(0, slots, hidden)
        self.state.residual_hidden.index_copy_(0, slots, residual)

    def solve(self, flow_steps: int, first: int, count: int) -> None:
        """Solve the flow for `count` of the step's streams, starting with row `first`, in that many steps."""
        model, state, rows = self.model, self.state, slice(first, first + count)
        inputs, config = self.inputs, self.model.config
        slots = inputs.speech_slots[rows]
        lm_hidden, residual = state.lm_hidden.index_select(0, slots), state.residual_hidden.index_select(0, slots)
        self.outputs.stop[rows] = model.stop_flags(lm_hidden)
        self.outputs.readings[rows] = state.readings.index_select(0, slots)
        noise = self._patch_noise(
            inputs.noise_keys[rows], inputs.patch_index[rows], config.patch_size, config.latent_dim
        )
        previous, adapters = state.last_patch.index_select(0, slots), inputs.speech_adapters[rows]
        with self._adapted(adapters):
            mu = model.condition(lm_hidden, residual)
        cfg = inputs.cfg[rows]
        schedule = self._schedule(flow_steps, cfg)
        with self._adapted(adapters, copies=2 if schedule.guided else 1):  # with the condition and without
            patches = model.flow(mu, previous, noise, schedule, cfg)
        state.last_patch.index_copy_(0, slots, patches)
        self.outputs.patches[rows] = patches

    def _vae(self, count: int) -> None:
        outputs = self.outputs
        patches = outputs.patches[:count]
        pcm = self.model.vae.decode_stream(patches, self.state.vae, self._decoded_slots[:count])
        outputs.pcm[:count] = pcm
        outputs.samples[:count] = pcm.clamp(-1.0, 1.0).mul_(32767.0).round_()
        outputs.power[:count] = pcm.square().mean(dim=1)
        total = patches.sum((1, 2)) + outputs.power[:count]
        torch.sub(total, total, out=outputs.faults[:count])

    def _attend(self, meta: AttentionMetadata, probe: HeadProbe | None = None) -> PagedAttention:
        return PagedAttention(self.backend, self.state.kv, meta, probe=probe)

    def _adapted(self, rows: Tensor, copies: int = 1) -> contextlib.AbstractContextManager[None]:
        """Return a context in which forward passes are over rows with these adapters."""
        return contextlib.nullcontext() if self._bank is None else self._bank.using(rows, copies)

    def _metadata(self, num_rows: int) -> AttentionMetadata:
        positions, slots = self.inputs.positions[:num_rows], self.inputs.slots[:num_rows]
        return AttentionMetadata(positions, self._slot_mapping[:num_rows], slots, self._tables(self.lens), *self.lens)

    def _tables(self, lens: Lens) -> Tensor:
        """Return all block tables; for a backend that is not static, only the width that the step needs."""
        if self.backend.is_static:
            return self.state.block_tables
        longest = max([lens[1], *(context for _, context in lens[0])])
        return self.state.block_tables[:, : -(-longest // self.state.kv.block_size)]

    def _schedule(self, flow_steps: int, cfg: Tensor) -> FlowSchedule:
        """Return the schedule; on a CPU without guidance if all weights are 1, which halves the work. On a GPU the
        programs are replayed with other weights."""
        if flow_steps not in self._schedules:
            self._schedules[flow_steps] = self.model.flow_schedule(flow_steps)
        schedule = self._schedules[flow_steps]
        is_plain = cfg.device.type == "cpu" and bool((cfg == 1).all())
        return dataclasses.replace(schedule, guided=False) if is_plain else schedule


def stream_sizes(max_streams: int) -> list[int]:
    """Return the sizes to capture of programs whose rows are streams that speak."""
    return sizes_up_to(max_streams, fine=True)


def primed_sizes(max_streams: int) -> list[int]:
    """Return the sizes to capture of `prime`: numbers of streams that begin in one step."""
    return sizes_up_to(min(max_streams, _MAX_PRIMED), fine=False)
