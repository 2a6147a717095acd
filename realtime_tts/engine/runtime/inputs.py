"""What the device must be told of a step: static tensors and the host's side of them, filled by one copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
        self._head = sum(sizes.values())
        self._patch_words = patch_shape[0] * patch_shape[1]  # float32
        total = self._head + -(-num_patches * self._patch_words // 2)
        self._device = torch.zeros(total, dtype=torch.int64, device=device)
        # On the CPU both sides are one: nothing is copied.
        is_cpu = device.type == "cpu"
        self._host = self._device if is_cpu else torch.zeros(total, dtype=torch.int64, pin_memory=True)
        self._fields: dict[str, Array] = {}
        start = 0
        for name, size in sizes.items():
            sides = [side[start : start + size] for side in (self._device, self._host)]
            start += size
            if name == "cfg":
                sides = [side.view(torch.float32)[:size] for side in sides]
            setattr(self, name, sides[0])
            self._fields[name] = sides[1].numpy()
            self._fields[name].fill(self._padding.get(name, 0))
        self.patches, host_patches = (
            side[start:].view(torch.float32)[: num_patches * self._patch_words].view(-1, *patch_shape)
            for side in (self._device, self._host)
        )
        self._patches = host_patches.numpy()

    def put(self, **values: Sequence[int] | Sequence[float]) -> None:
        """A step's values of some fields, padding behind them."""
        for name, items in values.items():
            field, count = self._fields[name], len(items)
            field[:count] = items
            field[count:] = self._padding.get(name, 0)

    def send(self, patches: Sequence[Array]) -> None:
        """Hand the step over to the device: all fields, and these patches ([n, patch_size, latent_dim] each)."""
        count = 0
        for group in patches:
            self._patches[count : count + len(group)] = group
            count += len(group)
        if self._host is not self._device:
            used = self._head + -(-count * self._patch_words // 2)
            self._device[:used].copy_(self._host[:used], non_blocking=True)
