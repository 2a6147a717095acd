"""Limits of each API key and token: slots and characters. Pure; the time is passed in.

Keys share fairly. While few slots are taken, any key may take more. Beyond the mark `fair_share_from`, a key that has
its fair share of the slots gets no more. The rest is reserved for the other keys that are present, and for one more
key if some have no slot.
"""

from __future__ import annotations

from collections.abc import Mapping

from realtime_tts.config import LimitsConfig
from realtime_tts.errors import RateLimited
from realtime_tts.server.admission.client import Client
from realtime_tts.server.admission.token_bucket import TokenBucket, TokenBuckets


def fair_share(num_slots: int, num_sharers: int) -> int:
    """Return the number of slots of each sharer, at least one."""
    return max(1, num_slots // max(1, num_sharers))


class Quotas:
    """Account of one gateway; it includes the characters that keys have used at its peers.

    Args:
        num_keys: number of active API keys; 0: no keys, and all clients count as one.
    """

    def __init__(self, limits: LimitsConfig, num_keys: int) -> None:
        self._limits, self._num_keys = limits, num_keys
        self._budgets = TokenBuckets()  # by key and token

    # ---- slots ---------------------------------------------------------------------------------------------------

    def max_sessions(self, tenant: str, taken: Mapping[str, int], num_slots: int) -> int:
        """Return the number of sessions that a key may have now. `taken`: slots by key."""
        limit = self._limits.max_sessions_per_tenant or num_slots
        if sum(taken.values()) >= self._limits.fair_share_from * num_slots:
            num_present = len({key for key, count in taken.items() if count} | {tenant})
            limit = min(limit, fair_share(num_slots, min(num_present + 1, self._num_keys)))
        return limit

    # ---- characters ----------------------------------------------------------------------------------------------

    def refusal(self, client: Client, now: float, num_chars: int = 1) -> RateLimited | None:
        """Return the error that refuses this client so many characters now, if any. A new session is checked with one
        character."""
        wait_s = max((budget.wait_s(num_chars, now) for budget in self._budgets_of(client, now)), default=0.0)
        if wait_s <= 0:
            return None
        return RateLimited("more characters than this key or token may have in a minute", retry_after_s=wait_s)

    def charge(self, client: Client, num_chars: int, now: float) -> None:
        """Charge characters that were accepted before, here or at a peer."""
        for budget in self._budgets_of(client, now):
            budget.take(num_chars, now)

    def is_limited(self, client: Client) -> bool:
        """Return whether the characters of this client are limited."""
        return bool(self._limits.max_chars_per_minute or client.max_chars_per_minute)

    def _budgets_of(self, client: Client, now: float) -> list[TokenBucket]:
        """Return the budgets of a client's key and token, each with a capacity of one minute."""
        limits = [("", self._limits.max_chars_per_minute), (client.token, client.max_chars_per_minute)]
        return [self._budgets.of((client.tenant, token), limit, limit / 60, now) for token, limit in limits if limit]
