"""What the device must be told of a step: static tensors and the host's sides of them, filled by one copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from realtime_tts.model.adapted import NO_ADAPTER

Array = np.ndarray[Any, np.dtype[Any]]


class StepInputs:
    """Room for T rows (new positions of sequences), A patches that LocEnc encodes, S streams that speak.

    Every field has a place of its own and the length of the largest step. What lies behind the values of a step is
    padding that harms nobody: token 0 at position 0 of the scratch slot.

    token_ids, positions, slots [T]: of each row. audio_index [T]: which of the A patches it holds; −1: it is text.
    hidden_slots [T]: whose flow will read it, if it is a sequence's last. patch_slots [A]: whose last patch it is; the
    scratch slot: it is the next one of `patches`.
    spoken_rows, spoken_starts, spoken_lens [S]: as `SpokenText` has them, of the rows; spoken_slots: whose they are.
    speech_slots, noise_keys, patch_index [S] int64, cfg [S] float32: of each stream that speaks. next_positions,
    next_slots, next_starts, next_lens [S]: likewise of the position behind; the scratch slot: there is none.
    row_adapters [T], patch_adapters [A], speech_adapters [S]: which adapter each has; −1: none. Of a step in which
    nobody has one they are not told.
    starting_slots [S]: of those that begin. patches: [any number, patch_size, latent_dim] float32, what LocEnc is to
    encode, then what the starting streams' flow and decoder begin with.

    The host's side is there twice, in turn: one step may wait for the device, which has taken over neither its inputs
    nor all of the step's before it, while that one's are not needed any more as soon as its results are known.
    """

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    audio_index: Tensor
    hidden_slots: Tensor
    patch_slots: Tensor
    spoken_rows: Tensor
    spoken_starts: Tensor
    spoken_lens: Tensor
    spoken_slots: Tensor
    speech_slots: Tensor
    noise_keys: Tensor
    patch_index: Tensor
    next_positions: Tensor
    next_slots: Tensor
    next_starts: Tensor
    next_lens: Tensor
    row_adapters: Tensor
    patch_adapters: Tensor
    speech_adapters: Tensor
    starting_slots: Tensor
    cfg: Tensor
    patches: Tensor

    def __init__(
        self,
        num_rows: int,
        num_streams: int,
        num_patches: int,
        patch_shape: tuple[int, int],
        scratch_slot: int,
        device: torch.device,
        max_blocks: int = 0,
    ) -> None:
        by_row = (
            *("token_ids", "positions", "slots", "audio_index", "hidden_slots", "patch_slots"),
            *("row_adapters", "patch_adapters"),
        )
        by_stream = [
            *("spoken_rows", "spoken_slots", "spoken_starts", "spoken_lens"),
            *("speech_slots", "noise_keys", "patch_index", "cfg"),
            "speech_adapters",
            *("next_positions", "next_slots", "next_starts", "next_lens", "starting_slots"),
        ]
        sizes = dict.fromkeys(by_row, num_rows) | dict.fromkeys(by_stream, num_streams)
        self._padding = {name: scratch_slot for name in sizes if name.endswith("slots")} | {"audio_index": -1}
        self._padding |= {name: NO_ADAPTER for name in sizes if name.endswith("adapters")}
        self._patch_words = patch_shape[0] * patch_shape[1]  # float32
        self._table_words = max_blocks + 1
        # Tables first, as many as there are up to the fields: all that is sent is one piece.
        self._fields_start = num_streams * self._table_words
        self._head = self._fields_start + sum(sizes.values())
        total = self._head + -(-num_patches * self._patch_words // 2)
        self._device = torch.zeros(total, dtype=torch.int64, device=device)
        # On the CPU all sides are one: nothing is copied.
        hosts = [self._device]
        if device.type != "cpu":
            hosts = [torch.zeros(total, dtype=torch.int64, pin_memory=True) for _ in range(2)]
        self._sides = [_HostSide(words, {}, words.numpy()) for words in hosts]
        start = self._fields_start
        for name, size in sizes.items():
            views = [words[start : start + size] for words in (self._device, *hosts)]
            start += size
            if name == "cfg":
                views = [view.view(torch.float32)[:size] for view in views]
            setattr(self, name, views[0])
            for side, view in zip(self._sides, views[1:], strict=True):
                side.fields[name] = view.numpy()
                side.fields[name].fill(self._padding.get(name, 0))
        views = [
            words[start:].view(torch.float32)[: num_patches * self._patch_words].view(-1, *patch_shape)
            for words in (self._device, *hosts)
        ]
        self.patches = views[0]
        for side, view in zip(self._sides, views[1:], strict=True):
            side.fields["patches"] = view.numpy()

    def put(self, **values: Sequence[int] | Sequence[float]) -> None:
        """A step's values of all fields but those of adapters, which none of its streams may have; padding behind."""
        fields = self._sides[0].fields
        for name, items in values.items():
            field, count = fields[name], len(items)
            field[:count] = items
            field[count:] = self._padding.get(name, 0)

    def send(self, patches: Sequence[Array], tables: Sequence[tuple[int, Sequence[int]]] = ()) -> tuple[Tensor, Tensor]:
        """Hand the step over to the device: all fields, and these patches ([n, patch_size, latent_dim] each).

        tables: slots, and `max_blocks` blocks of each. → on the device, slots [n] and blocks [n, max_blocks].
        """
        side = self._sides[0]
        self._sides.append(self._sides.pop(0))
        count = 0
        for group in patches:
            side.fields["patches"][count : count + len(group)] = group
            count += len(group)
        start = self._fields_start - len(tables) * self._table_words
        blocks_start = start + len(tables)
        if tables:
            side.array[start:blocks_start] = [slot for slot, _ in tables]
            side.array[blocks_start : self._fields_start].reshape(len(tables), -1)[:] = [blocks for _, blocks in tables]
        if side.words is not self._device:
            end = self._head + -(-count * self._patch_words // 2)
            self._device[start:end].copy_(side.words[start:end], non_blocking=True)
        slots, blocks = self._device[start:blocks_start], self._device[blocks_start : self._fields_start]
        return slots, blocks.view(len(tables), self._table_words - 1)


class _HostSide(NamedTuple):
    """words, and array over the same memory: all of it; fields: by name."""

    words: Tensor
    fields: dict[str, Array]
    array: Array
