"""How long the answer to a refused request waits, so that refusing costs a bounded share of the gateway. Pure."""

from __future__ import annotations

PER_S = 20.0  # refusals of one key from one address; each costs about a millisecond of the event loop
BURST = 20  # refusals that are answered at once, after a time without any
MAX_HOLD_S = 10.0
_MIN_PURGE = 1024


class Refusals:
    """Spreads the refusals of one API key from one address over time.

    The answer beyond `BURST` waits until the rate is `PER_S` again. A client waits for its answer before it asks again,
    so the rate stays near the bound whatever the number of its connections, up to PER_S * MAX_HOLD_S of them.
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
