"""Delay of the answers to refused requests, so that refusals cost a bounded share of the gateway. Pure."""

from __future__ import annotations

PER_S = 20.0  # refusals of one key from one address; each costs about a millisecond of the event loop
BURST = 20  # refusals that are answered without a delay, after a time without refusals
MAX_HOLD_S = 10.0
_MIN_PURGE = 1024


class RefusalDelay:
    """Spreads the refusals of one API key from one address over time.

    Answers beyond `BURST` are delayed until the rate is `PER_S` again. A client waits for an answer before its next
    request, so the rate stays near the bound for up to PER_S * MAX_HOLD_S connections.
    """

    def __init__(self) -> None:
        self._paid_until_s: dict[tuple[str, str], float] = {}  # by key and address
        self._purge_at = _MIN_PURGE

    def hold_s(self, tenant: str, address: str, now: float) -> float:
        """Count a refusal; return the time in seconds that its answer waits."""
        self._purge(now)
        owner = tenant, address
        paid_until_s = max(now, self._paid_until_s.get(owner, now)) + 1 / PER_S
        hold_s = min(max(0.0, paid_until_s - now - BURST / PER_S), MAX_HOLD_S)
        self._paid_until_s[owner] = min(paid_until_s, now + BURST / PER_S + MAX_HOLD_S)
        return hold_s

    def _purge(self, now: float) -> None:
        """Drop the entries that no longer delay anything."""
        if len(self._paid_until_s) >= self._purge_at:
            self._paid_until_s = {owner: until_s for owner, until_s in self._paid_until_s.items() if until_s > now}
            self._purge_at = max(_MIN_PURGE, 2 * len(self._paid_until_s))
