"""Which beginnings of inputs lie in the KV cache, by the names that those who place requests know them by. Pure."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from realtime_tts.engine.core.block_pool import BlockPool

MAX_PREFIXES = 4096  # that are known of; beyond them the one that was used longest ago is forgotten
_LOOK_EVERY_S = 1.0  # whether what was held still is


class HeldPrefixes:
    """Notes what requests begin with, and says when that comes into the cache and leaves it."""

    def __init__(self, pool: BlockPool, max_prefixes: int = MAX_PREFIXES) -> None:
        self._pool, self._max_prefixes = pool, max_prefixes
        self._last_block: collections.OrderedDict[bytes, bytes] = collections.OrderedDict()  # its hash
        self._num_positions: dict[bytes, int] = {}
        self._told: dict[bytes, int] = {}  # positions of those that were told to be held
        self._new: set[bytes] = set()
        self._gone: set[bytes] = set()  # told, and forgotten since
        self._looked_s: float | None = None

    def note(self, key: bytes, hashes: Sequence[bytes]) -> None:
        """A request begins with these full blocks."""
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
        """Since the last time: what is held, by key its positions, and what is not any more; None: there is none."""
        is_due = self._looked_s is None or now - self._looked_s >= _LOOK_EVERY_S
        if not self._new and not is_due:
            return None
        held: dict[bytes, int] = {}
        lost, self._gone = self._gone, set()
        for key in self._last_block if is_due else sorted(self._new):
            if not self._pool.holds(self._last_block[key]):
                if self._told.pop(key, None) is not None:
                    lost.add(key)
                continue
            self._new.discard(key)
            if self._told.get(key) != self._num_positions[key]:
                self._told[key] = held[key] = self._num_positions[key]
        if is_due:
            self._looked_s = now
            self._new.clear()  # what has not come into the cache by now did not fit, or comes at a later look
        lost -= held.keys()  # forgotten, and noted again since
        return (held, sorted(lost)) if held or lost else None

    def _forget(self, key: bytes) -> None:
        del self._last_block[key], self._num_positions[key]
        self._new.discard(key)
        if self._told.pop(key, None) is not None:
            self._gone.add(key)
