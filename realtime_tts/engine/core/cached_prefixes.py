"""Input prefixes that the KV cache holds, by the keys that the gateways route requests by. Pure."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from realtime_tts.engine.core.block_pool import BlockPool

MAX_PREFIXES = 4096  # tracked prefixes; beyond this the least recently used one is dropped
_CHECK_EVERY_S = 1.0  # interval at which prefixes reported as cached are checked


class CachedPrefixes:
    """Tracks the prefixes that requests begin with, and reports when one enters or leaves the cache."""

    def __init__(self, pool: BlockPool, max_prefixes: int = MAX_PREFIXES) -> None:
        self._pool, self._max_prefixes = pool, max_prefixes
        self._last_block: collections.OrderedDict[bytes, bytes] = collections.OrderedDict()  # its hash, by key
        self._num_positions: dict[bytes, int] = {}
        self._reported: dict[bytes, int] = {}  # positions of the prefixes reported as cached
        self._new: set[bytes] = set()
        self._gone: set[bytes] = set()  # reported as cached, and dropped since
        self._checked_s: float | None = None

    def note(self, key: bytes, hashes: Sequence[bytes]) -> None:
        """Record that a request begins with these full blocks."""
        if not hashes:
            return
        if self._last_block.get(key) != hashes[-1]:
            self._new.add(key)
        self._last_block[key] = hashes[-1]
        self._last_block.move_to_end(key)
        self._num_positions[key] = len(hashes) * self._pool.block_size
        if len(self._last_block) > self._max_prefixes:
            self._forget(next(iter(self._last_block)))

    def news(self, now: float) -> tuple[dict[bytes, int], list[bytes]] | None:
        """Return the changes since the last call: positions of cached prefixes by key, lost keys; None: no change."""
        is_due = self._checked_s is None or now - self._checked_s >= _CHECK_EVERY_S
        if not self._new and not is_due:
            return None
        cached: dict[bytes, int] = {}
        lost, self._gone = self._gone, set()
        for key in self._last_block if is_due else sorted(self._new):
            if not self._pool.holds(self._last_block[key]):
                if self._reported.pop(key, None) is not None:
                    lost.add(key)
                continue
            self._new.discard(key)
            if self._reported.get(key) != self._num_positions[key]:
                self._reported[key] = cached[key] = self._num_positions[key]
        if is_due:
            self._checked_s = now
            self._new.clear()  # a prefix not cached by now did not fit, or is found by a later check
        lost -= cached.keys()  # dropped and noted again since
        return (cached, sorted(lost)) if cached or lost else None

    def _forget(self, key: bytes) -> None:
        del self._last_block[key], self._num_positions[key]
        self._new.discard(key)
        if self._reported.pop(key, None) is not None:
            self._gone.add(key)
