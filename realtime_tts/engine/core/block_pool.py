"""Allocation of KV blocks, and a cache of the prefixes that they hold. Pure: ints and bytes, no tensors.

One pool serves the base and the residual LM: a block holds the same 16 positions of all layers of both, so a sequence
has one block table. A full block of a prefill is identified by the hash of everything up to its end (and of the model,
the adapter and the tenant). A cached block without references stays in the cache until it is the least recently used
one and its memory is needed.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Sequence

BLOCK_SIZE = 16  # positions; small, so that a voice's short reference fills some
MAX_PREFIXES = 4096  # tracked prefixes; beyond this the least recently used one is dropped
_CHECK_EVERY_S = 1.0  # interval at which prefixes reported as cached are checked


def prefix_root(*parts: str) -> bytes:
    """Return the start of a hash chain for one (model, adapter, tenant). Different roots share no blocks."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.digest()


def chain_hashes(root: bytes, content: Sequence[bytes], block_size: int = BLOCK_SIZE) -> list[bytes]:
    """Return one hash per full block of `content` (for each position, a token id's bytes or an audio patch's hash)."""
    hashes: list[bytes] = []
    parent = root
    for end in range(block_size, len(content) + 1, block_size):
        items = [len(item).to_bytes(4, "big") + item for item in content[end - block_size : end]]
        parent = hashlib.blake2b(b"".join((parent, *items)), digest_size=16).digest()
        hashes.append(parent)
    return hashes


@dataclasses.dataclass(frozen=True, slots=True)
class Allocation:
    """Blocks of one sequence, in order. The first `num_cached_positions` positions already hold valid KV."""

    blocks: tuple[int, ...]
    num_cached_positions: int


class BlockPool:
    """Reference-counted blocks with a prefix cache.

    A block is exactly one of: free and not cached (`_free`), free but cached (`_idle`, oldest first), or referenced.
    """

    def __init__(self, num_blocks: int, block_size: int = BLOCK_SIZE) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self._free = list(range(num_blocks - 1, -1, -1))
        self._idle: collections.OrderedDict[int, None] = collections.OrderedDict()
        self._references = [0] * num_blocks
        self._hash_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}

    @property
    def num_available(self) -> int:
        """Number of blocks that an allocation can take."""
        return len(self._free) + len(self._idle)

    @property
    def num_cached(self) -> int:
        """Number of blocks in the prefix cache, referenced or not."""
        return len(self._block_of)

    def is_free(self, block: int) -> bool:
        """Return whether a block has no references and is not in the prefix cache."""
        return self._references[block] == 0 and block not in self._hash_of

    def holds(self, block_hash: bytes) -> bool:
        """Return whether a block is cached. The blocks before it in its chain then are, too: they are evicted later."""
        return block_hash in self._block_of

    def blocks_for(self, num_positions: int) -> int:
        """Return the number of blocks for `num_positions` positions."""
        return -(-num_positions // self.block_size)

    def allocate(self, num_positions: int, hashes: Sequence[bytes], num_prefill: int) -> Allocation | None:
        """Return blocks for a whole sequence, reusing the longest cached prefix; None if too few are available.

        Args:
            num_positions: positions of the prefill and of everything that may be generated after it.
            hashes: hashes of the prefill's full blocks.
            num_prefill: positions of the prefill. Its last one is never taken from the cache, because the first patch
                is computed from its hidden state.
        """
        usable = hashes[: max(0, num_prefill - 1) // self.block_size]
        known = [self._block_of[block_hash] for block_hash in itertools.takewhile(self.holds, usable)]
        num_new = self.blocks_for(num_positions) - len(known)
        num_idle_known = sum(self._references[block] == 0 for block in known)
        if num_new > self.num_available - num_idle_known:
            return None
        for block in known:
            self._refer(block)
        new = [self._take() for _ in range(num_new)]
        return Allocation((*known, *new), len(known) * self.block_size)

    def remember(self, blocks: Iterable[int], hashes: Iterable[bytes]) -> None:
        """Add computed blocks to the prefix cache. A hash that is cached already keeps its first block."""
        for block, block_hash in zip(blocks, hashes, strict=False):
            if block_hash not in self._block_of and block not in self._hash_of:
                self._block_of[block_hash] = block
                self._hash_of[block] = block_hash

    def forget(self, blocks: Iterable[int]) -> None:
        """Remove blocks from the prefix cache, because their content is suspect (NaN) or its voice was removed."""
        for block in blocks:
            block_hash = self._hash_of.pop(block, None)
            if block_hash is not None:
                del self._block_of[block_hash]
                if block in self._idle:
                    del self._idle[block]
                    self._free.append(block)

    def forget_hashes(self, hashes: Iterable[bytes]) -> None:
        """Remove these prefixes from the cache."""
        self.forget([self._block_of[block_hash] for block_hash in hashes if block_hash in self._block_of])

    def release(self, blocks: Sequence[int]) -> None:
        """Release a sequence's blocks. Cached ones stay cached; the end of a chain is evicted first."""
        for block in reversed(blocks):
            if self._references[block] == 0:
                raise AssertionError(f"block {block} was released twice")
            self._references[block] -= 1
            if self._references[block]:
                continue
            if block in self._hash_of:
                self._idle[block] = None
            else:
                self._free.append(block)

    def _refer(self, block: int) -> None:
        if self._references[block] == 0:
            del self._idle[block]
        self._references[block] += 1

    def _take(self) -> int:
        if not self._free:
            oldest, _ = self._idle.popitem(last=False)
            del self._block_of[self._hash_of.pop(oldest)]
            self._free.append(oldest)
        block = self._free.pop()
        self._references[block] = 1
        return block


class CachedPrefixes:
    """Tracks the prefixes that requests begin with, and reports when one enters or leaves the cache."""

    def __init__(self, pool: BlockPool, max_prefixes: int = MAX_PREFIXES) -> None:
        self._pool, self._max_prefixes = pool, max_prefixes
        # Hash of the last block and number of positions, by key.
        self._noted: collections.OrderedDict[bytes, tuple[bytes, int]] = collections.OrderedDict()
        self._reported: dict[bytes, int] = {}  # positions of the prefixes reported as cached
        self._new: set[bytes] = set()
        self._checked_s: float | None = None

    def note(self, key: bytes, hashes: Sequence[bytes]) -> None:
        """Record that a request begins with these full blocks."""
        if not hashes:
            return
        prefix = hashes[-1], len(hashes) * self._pool.block_size
        if self._noted.get(key) != prefix:
            self._new.add(key)
        self._noted[key] = prefix
        self._noted.move_to_end(key)
        if len(self._noted) > self._max_prefixes:
            dropped, _ = self._noted.popitem(last=False)
            self._new.discard(dropped)

    def news(self, now: float) -> tuple[dict[bytes, int], list[bytes]] | None:
        """Return the changes since the last call: positions of cached prefixes by key, lost keys; None: no change."""
        is_due = self._checked_s is None or now - self._checked_s >= _CHECK_EVERY_S
        if not self._new and not is_due:
            return None
        cached: dict[bytes, int] = {}
        lost: list[bytes] = []
        for key in [*self._noted.keys() | self._reported.keys()] if is_due else [*self._new]:
            last_block, num_positions = self._noted.get(key, (b"", 0))  # without a block: it was dropped
            if self._pool.holds(last_block):
                self._new.discard(key)
                if self._reported.get(key) != num_positions:
                    self._reported[key] = cached[key] = num_positions
            elif self._reported.pop(key, None) is not None:
                lost.append(key)
        if is_due:
            self._checked_s = now
            self._new.clear()  # a prefix not cached by now did not fit, or is found by a later check
        return (cached, lost) if cached or lost else None
