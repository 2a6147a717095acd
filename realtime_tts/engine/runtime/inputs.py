"""A step's inputs on the device: static tensors, and host buffers that fill them with one copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from realtime_tts.engine.runtime.columns import ROW, SPEECH, STREAM, StepColumns, columns_per, paddings
from realtime_tts.engine.runtime.program import Parts
from realtime_tts.model.sequence import Array


class StepInputs(StepColumns[Tensor]):
    """Buffers for T rows (new positions of sequences), and S streams that speak: int64, but `cfg` is float32.

    Every field has a fixed address and the length of the largest step, with padding behind a step's values. patches:
    [any number, patch_size, latent_dim] float32, first those that LocEnc encodes, then those that the starting streams'
    flow and decoder begin with.

    There are two host buffers, used in turn: a step may be prepared while the device has neither copied the previous
    step's inputs nor finished the step before that. A step's inputs are free once its results are known.
    """

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
        sizes = dict.fromkeys(columns_per(ROW), num_rows) | dict.fromkeys(columns_per(STREAM, SPEECH), num_streams)
        self._padding, self._parts = paddings(scratch_slot), Parts()
        self._patch_words = patch_shape[0] * patch_shape[1]  # float32
        self._table_words = max_blocks + 1
        # Tables come first, as many as necessary, directly before the fields: all that is sent is contiguous.
        self._fields_start = num_streams * self._table_words
        self._head = self._fields_start + sum(sizes.values())
        total = self._head + -(-num_patches * self._patch_words // 2)
        self._device = torch.zeros(total, dtype=torch.int64, device=device)
        # On the CPU the host buffer is the device buffer: nothing is copied.
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
                side.fields[name].fill(self._padding[name])
        views = [
            words[start:].view(torch.float32)[: num_patches * self._patch_words].view(-1, *patch_shape)
            for words in (self._device, *hosts)
        ]
        self.patches = views[0]
        for side, view in zip(self._sides, views[1:], strict=True):
            side.fields["patches"] = view.numpy()

    def put(self, columns: StepColumns[list[float]]) -> None:
        """Set a step's values and the padding behind them."""
        fields = self._sides[0].fields
        for name, padding in self._padding.items():
            field, items = fields[name], getattr(columns, name)
            field[: len(items)] = items
            field[len(items) :] = padding

    def send(self, patches: Sequence[Array], tables: Sequence[tuple[int, Sequence[int]]] = ()) -> tuple[Tensor, Tensor]:
        """Copy the step to the device: all fields, and these patches ([n, patch_size, latent_dim] each).

        tables: slots, and `max_blocks` blocks of each. Returns device tensors: slots [n] and blocks [n, max_blocks].
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
        part = self._parts
        if side.words is not self._device:
            end = self._head + -(-count * self._patch_words // 2)
            part(self._device, start, end).copy_(part(side.words, start, end), non_blocking=True)
        slots, blocks = part(self._device, start, blocks_start), part(self._device, blocks_start, self._fields_start)
        return slots, blocks.view(len(tables), self._table_words - 1)


class _HostSide(NamedTuple):
    """words: the whole host buffer; array: the same memory as a numpy array; fields: views by name."""

    words: Tensor
    fields: dict[str, Array]
    array: Array
