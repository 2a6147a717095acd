"""Device tensors that outlive a step: the KV pool, and for each slot its blocks, VAE state and last patch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from realtime_tts.engine.core.block_pool import BLOCK_SIZE
from realtime_tts.model.attention import KVCache
from realtime_tts.model.voxcpm import VoxCPM


class DeviceTensors:
    """Static tensors, allocated once, so that steps over them can be captured.

    kv: `num_blocks` blocks and one that no sequence uses: padded rows may write there.
    block_tables: [num_slots + 1, max_blocks] int64, the blocks of each slot's stream; the rest of a row repeats the
    first block. The last slot, here and in the other tensors, is for padded rows.
    last_patch: [num_slots + 1, patch_size, latent_dim] float32.
    lm_hidden, residual_hidden: [num_slots + 1, hidden], the input of the slot's next patch. readings:
    [num_slots + 1, 2] float32, the text head's values at that position.
    vae: the decoder's left contexts, per slot.
    """

    def __init__(self, model: VoxCPM, num_blocks: int, num_slots: int, max_blocks: int) -> None:
        config, device, dtype = model.config, model.stop_proj.weight.device, model.dtype
        self.scratch_slot = num_slots
        self.kv = KVCache.allocate(config, num_blocks + 1, BLOCK_SIZE, device, dtype)
        self.block_tables = torch.full((num_slots + 1, max_blocks), num_blocks, device=device)
        self.last_patch = torch.zeros(num_slots + 1, config.patch_size, config.latent_dim, device=device)
        shape = (num_slots + 1, config.base.hidden_size)
        self.lm_hidden, self.residual_hidden = (torch.zeros(shape, device=device, dtype=dtype) for _ in range(2))
        self.readings = torch.zeros(num_slots + 1, 2, device=device)
        self.vae = model.vae.new_state(num_slots + 1, device)
        self._tables: dict[int, tuple[int, ...]] = {}  # the device's current tables, by slot

    def changed_tables(self, tables: Sequence[tuple[int, tuple[int, ...]]]) -> list[tuple[int, list[int]]]:
        """Return the tables that differ from the device's, as rows of `block_tables`, and record them as current."""
        new = {slot: blocks for slot, blocks in tables if self._tables.get(slot) != blocks}
        self._tables |= new
        width = self.block_tables.shape[1]
        return [(slot, [*blocks, *[blocks[0]] * (width - len(blocks))]) for slot, blocks in new.items()]

    def set_blocks(self, slots: Tensor, rows: Tensor) -> None:
        """Set the blocks of slots: slots [n], rows [n, max_blocks] int64."""
        if len(slots):
            self.block_tables.index_copy_(0, slots, rows)

    def map_slots(self, positions: Tensor, slots: Tensor, out: Tensor) -> None:
        """Store the place of each position in the KV pool: positions, slots [T] → out [T]."""
        size, width = self.kv.block_size, self.block_tables.shape[1]
        blocks = self.block_tables.view(-1).index_select(0, torch.add(positions // size, slots, alpha=width))
        torch.add(positions % size, blocks, alpha=size, out=out)

    def clear_blocks(self, blocks: Sequence[int]) -> None:
        """Zero blocks that may hold NaN: a masked position still enters a weighted sum, and 0 × NaN is NaN."""
        if blocks:
            index = torch.tensor(blocks, device=self.kv.pool.device)
            self.kv.pool.index_fill_(2, index, 0.0)
