"""Every device tensor that outlives a step: the KV pool, and per slot the VAE's state and the last patch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from realtime_tts.model.attention import KVCache
from realtime_tts.model.voxcpm import VoxCPM


class DeviceState:
    """Static tensors, allocated once, so that a step over them can be captured.

    kv: `num_blocks` blocks and one more, `scratch_block`, which belongs to nobody: padded rows may write there.
    last_patch: [num_slots + 1, patch_size, latent_dim] float32; the last slot is for padded rows, too.
    vae: the decoder's left contexts, per slot.
    """

    def __init__(
        self, model: VoxCPM, num_blocks: int, block_size: int, num_slots: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        config = model.config
        self.scratch_block, self.scratch_slot = num_blocks, num_slots
        self.kv = KVCache.allocate(config, num_blocks + 1, block_size, device, dtype)
        self.last_patch = torch.zeros(num_slots + 1, config.patch_size, config.latent_dim, device=device)
        self.vae = model.vae.new_state(num_slots + 1, device)

    def start_slots(self, slots: Tensor, prefix_patches: Tensor) -> None:
        """Begin new streams: forget what the slots held, NaN included. slots [n], prefix_patches [n, P, D]."""
        self.last_patch.index_copy_(0, slots, prefix_patches)
        self.vae.reset(slots)

    def clear_blocks(self, blocks: Sequence[int]) -> None:
        """Zero blocks that may hold NaN: a masked position still enters a weighted sum, and 0 × NaN is NaN."""
        if blocks:
            index = torch.tensor(blocks, device=self.kv.pool.device)
            self.kv.pool.index_fill_(2, index, 0.0)
