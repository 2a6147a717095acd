"""Token buckets. Pure; the time is passed in."""

from __future__ import annotations

import math

_MIN_PURGE = 64


class TokenBucket:
    """Token bucket that is full at first. An amount above its capacity passes when it is full, and leaves a debt."""

    def __init__(self, capacity: float, per_s: float, now: float) -> None:
        self._capacity, self._per_s = capacity, per_s
        self._level, self._at = capacity, now

    def wait_s(self, amount: float, now: float) -> float:
        """Return the time in seconds until `amount` may pass; 0: now."""
        self._advance(now)
        return max(0.0, (min(amount, self._capacity) - self._level) / self._per_s)

    def take(self, amount: float, now: float, max_debt: float = math.inf) -> None:
        self._advance(now)
        self._level = max(self._level - amount, -max_debt)

    def is_full(self, now: float) -> bool:
        """Return whether the bucket is like a new one."""
        self._advance(now)
        return self._level >= self._capacity

    def _advance(self, now: float) -> None:
        self._level = min(self._capacity, self._level + self._per_s * max(0.0, now - self._at))
        self._at = max(self._at, now)


class TokenBuckets(dict[tuple[str, str], TokenBucket]):
    """Buckets by owner. Those that are full again are dropped: they equal new ones, and owners are many."""

    _purge_at = _MIN_PURGE

    def of(self, owner: tuple[str, str], capacity: float, per_s: float, now: float) -> TokenBucket:
        if owner not in self:
            if len(self) >= self._purge_at:
                for full in [other for other, bucket in self.items() if bucket.is_full(now)]:
                    del self[full]
                self._purge_at = max(_MIN_PURGE, 2 * len(self))
            self[owner] = TokenBucket(capacity, per_s, now)
        return self[owner]
