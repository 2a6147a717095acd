"""Invariants of the pool of KV blocks."""

from __future__ import annotations

from realtime_tts.engine.core.block_pool import BlockPool


def check_pool(pool: BlockPool) -> None:
    """Verify the invariants of a pool."""
    referenced = {block for block in range(pool.num_blocks) if pool._references[block]}
    groups = [set(pool._free), set(pool._idle), referenced]
    if sum(map(len, groups)) != pool.num_blocks or set().union(*groups) != set(range(pool.num_blocks)):
        raise AssertionError("a block is in no group or in two")
    if len(pool._free) != len(groups[0]) or not set(pool._idle) <= set(pool._hash_of):
        raise AssertionError("a free block twice, or an idle block without a prefix")
    if {block: block_hash for block_hash, block in pool._block_of.items()} != pool._hash_of:
        raise AssertionError("the two directions of the cache differ")
