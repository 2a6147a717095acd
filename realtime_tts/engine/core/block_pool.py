"""Which KV block belongs to whom, and which prefix lies in it. Pure: ints and bytes, no tensors.

One pool serves the base and the residual LM: a block holds the same 16 positions of all layers of both, so a sequence
has one block table. A full block of a prefill is known by the hash of everything up to its end (and of the model, the
adapter and the tenant); while nobody refers to it, it stays findable until it is the least recently used one and its
place is needed.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from collections.abc import Iterable, Sequence

BLOCK_SIZE = 16  # positions; small, so that a voice's short reference fills some


def prefix_root(*parts: str) -> bytes:
    """The start of a hash chain for one (model, adapter, tenant): nothing is shared across different roots."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.digest()


def chain_hashes(root: bytes, content: Sequence[bytes], block_size: int = BLOCK_SIZE) -> list[bytes]:
    """One hash per full block of `content` (what each position holds: a token id's bytes or an audio patch's hash)."""
    hashes: list[bytes] = []
    parent = root
    for end in range(block_size, len(content) + 1, block_size):
        items = [len(item).to_bytes(4, "big") + item for item in content[end - block_size : end]]
        parent = hashlib.blake2b(b"".join((parent, *items)), digest_size=16).digest()
        hashes.append(parent)
    return hashes


@dataclasses.dataclass(frozen=True, slots=True)
class Allocation:
    """Blocks of one sequence, in order; the first `num_cached_positions` positions hold valid KV already."""

    blocks: tuple[int, ...]
    num_cached_positions: int


class BlockPool:
    """Reference-counted blocks with a prefix cache.

    A block is exactly one of: free and unknown (`_free`), free but findable (`_idle`, oldest first), or referenced.
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
        """Blocks that an allocation can take."""
        return len(self._free) + len(self._idle)

    @property
    def num_cached(self) -> int:
        """Blocks findable by prefix, referenced or not."""
        return len(self._block_of)

    def is_free(self, block: int) -> bool:
        """Whether nobody refers to a block and nobody can find it."""
        return self._references[block] == 0 and block not in self._hash_of

    def holds(self, block_hash: bytes) -> bool:
        """Whether a block can be found, and so all that are in front of it in its chain: they are evicted after it."""
        return block_hash in self._block_of

    def blocks_for(self, num_positions: int) -> int:
        """Blocks that so many positions need."""
        return -(-num_positions // self.block_size)

    def allocate(self, num_positions: int, hashes: Sequence[bytes], num_prefill: int) -> Allocation | None:
        """Blocks for a whole sequence, reusing the longest known prefix; None if they are not there.

        Args:
            num_positions: prefill and everything that may be generated after it.
            hashes: of the prefill's full blocks.
            num_prefill: positions of the prefill; its last one is never taken from the cache, because the first patch
                is made from its hidden state.
        """
        known: list[int] = []
        for block_hash in hashes[: max(0, num_prefill - 1) // self.block_size]:
            block = self._block_of.get(block_hash)
            if block is None:
                break
            known.append(block)
        num_new = self.blocks_for(num_positions) - len(known)
        num_idle_known = sum(self._references[block] == 0 for block in known)
        if num_new > self.num_available - num_idle_known:
            return None
        for block in known:
            self._refer(block)
        new = [self._take() for _ in range(num_new)]
        return Allocation((*known, *new), len(known) * self.block_size)

    def remember(self, blocks: Iterable[int], hashes: Iterable[bytes]) -> None:
        """Make computed blocks findable. A hash that is known already keeps its first block."""
        for block, block_hash in zip(blocks, hashes, strict=False):
            if block_hash not in self._block_of and block not in self._hash_of:
                self._block_of[block_hash] = block
                self._hash_of[block] = block_hash

    def forget(self, blocks: Iterable[int]) -> None:
        """Take blocks out of the cache: their content is suspect (NaN) or must not be kept (a removed voice)."""
        for block in blocks:
            block_hash = self._hash_of.pop(block, None)
            if block_hash is not None:
                del self._block_of[block_hash]
                if block in self._idle:
                    del self._idle[block]
                    self._free.append(block)

    def forget_hashes(self, hashes: Iterable[bytes]) -> None:
        """Take these prefixes out of the cache."""
        self.forget([self._block_of[block_hash] for block_hash in hashes if block_hash in self._block_of])

    def release(self, blocks: Sequence[int]) -> None:
        """Give a sequence's blocks back; findable ones stay findable, the end of a chain being evicted first."""
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

    def check(self) -> None:
        """Verify the invariants; for tests. Raises AssertionError."""
        referenced = {block for block in range(self.num_blocks) if self._references[block]}
        groups = [set(self._free), set(self._idle), referenced]
        if sum(map(len, groups)) != self.num_blocks or set().union(*groups) != set(range(self.num_blocks)):
            raise AssertionError("a block is in no group or in two")
        if len(self._free) != len(groups[0]) or not set(self._idle) <= set(self._hash_of):
            raise AssertionError("a free block twice, or an idle block that nobody can find")
        if {block: block_hash for block_hash, block in self._block_of.items()} != self._hash_of:
            raise AssertionError("the two directions of the cache differ")
