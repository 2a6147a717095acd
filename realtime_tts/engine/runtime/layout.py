"""A step plan as tensors: everything the device must be told travels in one packed copy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from realtime_tts.engine.core.request import DecodeItem, PrefillItem, StepPlan
from realtime_tts.engine.runtime.noise import noise_key
from realtime_tts.engine.utterance import Utterance
from realtime_tts.model.attention import AttentionMetadata
from realtime_tts.model.sequence import Patches, Rows
from realtime_tts.model.text_head import SpokenText

Array = np.ndarray[Any, np.dtype[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """One step on the device. R sequences, T new positions, A of them audio from the host, S that speak, N that start.

    Rows: sequences with several positions first (the attention's rule). Speaking streams are sorted by their number of
    flow steps; `flow_groups` are the (steps, number of streams) runs.
    """

    names: tuple[str, ...]  # [R]
    speaking: tuple[str, ...]  # [S]
    starting: tuple[str, ...]  # [N], sorted by how much context primes their VAE
    flow_groups: tuple[tuple[int, int], ...]
    context_groups: tuple[tuple[int, int], ...]  # (context patches, number of streams), of `starting`
    meta: AttentionMetadata
    spoken: SpokenText  # of the S
    token_ids: Tensor  # [T]
    audio_index: Tensor  # [A + decoding], rows of T
    features: Tensor  # [A, P, D]
    decode_slots: Tensor  # [decoding], whose last patch is the feature
    speaking_rows: Tensor  # [S], of R
    speaking_slots: Tensor  # [S]
    noise_keys: Tensor  # [S]
    patch_index: Tensor  # [S]
    cfg: Tensor  # [S] float32
    starting_slots: Tensor  # [N]
    prefix_patches: Tensor  # [N, P, D]
    contexts: Tensor  # [all context patches of `starting`, P, D]


class _Packer:
    """Collects named int64 and float32 arrays; `send` copies them as one buffer and gives views of it."""

    def __init__(self) -> None:
        self._parts: list[Array] = []
        self._shapes: dict[str, tuple[bool, tuple[int, ...]]] = {}

    def ints(self, **values: Any) -> None:
        for name, value in values.items():
            array = np.asarray(value, dtype=np.int64)
            self._shapes[name] = False, array.shape
            self._parts.append(np.ascontiguousarray(array).reshape(-1))

    def floats(self, **values: Any) -> None:
        for name, value in values.items():
            array = np.asarray(value, dtype=np.float32)
            self._shapes[name] = True, array.shape
            flat = np.ascontiguousarray(array).reshape(-1)
            self._parts.append(np.concatenate((flat, np.zeros(flat.size % 2, np.float32))).view(np.int64))

    def send(self, device: torch.device) -> dict[str, Tensor]:
        packed = torch.from_numpy(np.concatenate(self._parts))
        if device.type == "cuda":
            packed = packed.pin_memory().to(device, non_blocking=True)
        views: dict[str, Tensor] = {}
        start = 0
        for part, (name, (is_float, shape)) in zip(self._parts, self._shapes.items(), strict=True):
            view = packed[start : start + part.size]
            start += part.size
            count = int(np.prod(shape))
            views[name] = (view.view(torch.float32)[:count] if is_float else view).view(shape)
        return views


def build_batch(plan: StepPlan, utterances: Mapping[str, Utterance], block_size: int, device: torch.device) -> Batch:
    """Lay a plan out. `utterances` holds every request of the plan."""
    items = _ordered(plan)
    lens = [_num_positions(item) for item in items]
    contexts = [_start(item) + num for item, num in zip(items, lens, strict=True)]
    # Only up to the context's end: further blocks would widen everybody's tables.
    tables = [item.blocks[: -(-context // block_size)] for item, context in zip(items, contexts, strict=True)]
    meta = AttentionMetadata.build(lens, contexts, tables, block_size)
    inputs = [utterances[item.request_id].input for item in items]
    starts = [context - num for context, num in zip(contexts, lens, strict=True)]
    rows = Rows.of(list(zip(inputs, starts, contexts, strict=True)))

    speaking_rows = [row for row, item in enumerate(items) if isinstance(item, DecodeItem) or item.is_last]
    speaking_rows.sort(key=lambda row: utterances[items[row].request_id].steps)
    speaking = [items[row] for row in speaking_rows]
    starting = [item for item in speaking if isinstance(item, PrefillItem) and item.patch_index == 0]
    starting.sort(key=lambda item: len(utterances[item.request_id].input.context))

    pack = _Packer()
    pack.ints(**{name: getattr(meta, name) for name in _METADATA})
    pack.ints(token_ids=rows.token_ids, audio_index=rows.audio_index)
    pack.ints(decode_slots=[item.slot for item in plan.decode], speaking_rows=speaking_rows)
    pack.floats(features=rows.features)
    _pack_speech(pack, speaking, starting, utterances, no_patches=rows.features[:0])
    tensors = pack.send(device)
    on_device = {name: tensors.pop(name) for name in _METADATA}
    spoken = SpokenText(tensors["speaking_rows"], tensors.pop("spoken_starts"), tensors.pop("spoken_lens"))
    return Batch(
        names=tuple(item.request_id for item in items),
        speaking=tuple(item.request_id for item in speaking),
        starting=tuple(item.request_id for item in starting),
        flow_groups=_runs([utterances[item.request_id].steps for item in speaking]),
        context_groups=_runs([len(utterances[item.request_id].input.context) for item in starting]),
        meta=AttentionMetadata(**on_device, prefill_lens=meta.prefill_lens, max_context_len=meta.max_context_len),
        spoken=spoken,
        **tensors,
    )


_METADATA = ("positions", "slot_mapping", "block_tables", "context_lens", "last_index")


def _pack_speech(
    pack: _Packer,
    speaking: Sequence[PrefillItem | DecodeItem],
    starting: Sequence[PrefillItem],
    utterances: Mapping[str, Utterance],
    no_patches: Patches,
) -> None:
    """Per stream that speaks: its slot, text, noise and guidance; per stream that starts: what primes it."""
    spoken = [utterances[item.request_id] for item in speaking]
    inputs = [utterances[item.request_id].input for item in starting]
    pack.ints(
        speaking_slots=[item.slot for item in speaking],
        spoken_starts=[utterance.input.spoken_start for utterance in spoken],
        spoken_lens=[len(utterance.input.spoken_chars) for utterance in spoken],
        noise_keys=[noise_key(utterance.message.seed, utterance.message.segment) for utterance in spoken],
        patch_index=[item.patch_index for item in speaking],
        starting_slots=[item.slot for item in starting],
    )
    pack.floats(
        cfg=[utterance.cfg for utterance in spoken],
        prefix_patches=np.stack([source.prefix_patch for source in inputs]) if inputs else no_patches,
        contexts=np.concatenate([source.context for source in inputs]) if inputs else no_patches,
    )


def _ordered(plan: StepPlan) -> list[PrefillItem | DecodeItem]:
    several = [item for item in plan.prefill if item.num_positions > 1]
    single = [item for item in plan.prefill if item.num_positions == 1]
    return [*several, *single, *plan.decode]


def _num_positions(item: PrefillItem | DecodeItem) -> int:
    return 1 if isinstance(item, DecodeItem) else item.num_positions


def _start(item: PrefillItem | DecodeItem) -> int:
    return item.position if isinstance(item, DecodeItem) else item.start


def _runs(values: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """(value, how many times in a row) of a sorted sequence."""
    return tuple((value, values.count(value)) for value in dict.fromkeys(values))
