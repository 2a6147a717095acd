"""Requests for speech in the last seconds, by API key. Pure."""

from __future__ import annotations

from collections import Counter

WINDOW_S = 10.0


class RequestRate:
    """Counts the requests of the last 10 to 20 s, granted or refused.

    Counts are kept in two successive windows, so memory grows with the number of keys, not of requests.
    """

    def __init__(self) -> None:
        self._before: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._begun_s = 0.0

    def note(self, tenant: str, now: float) -> None:
        """Count one request."""
        self._advance(now)
        self._counts[tenant] += 1

    def counts(self, now: float) -> Counter[str]:
        """Return the number of requests by key."""
        self._advance(now)
        return self._before + self._counts

    def _advance(self, now: float) -> None:
        num_windows = int((now - self._begun_s) // WINDOW_S)
        if num_windows >= 1:
            self._before = self._counts if num_windows == 1 else Counter()
            self._counts = Counter()
            self._begun_s += num_windows * WINDOW_S
