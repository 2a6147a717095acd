"""What each API key, and each token, takes of the host: places and characters. Pure; the time is passed in.

Keys share fairly. As long as there is plenty, anybody may take it. Beyond a mark, a key that holds its share of the
places already gets no more, so that the last places are for the others: for those that are here, and for one more if
there are keys that hold nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from realtime_tts.errors import RateLimited
from realtime_tts.server.caller import Caller

_MIN_PURGE = 64


class CharacterBudget:
    """So many characters a minute; what is not used is kept, up to a minute's worth.

    A message longer than that passes when the budget is full, and is paid off afterwards.
    """

    def __init__(self, per_minute: int, now: float) -> None:
        self._capacity, self._per_s = float(per_minute), per_minute / 60
        self._level, self._at = self._capacity, now

    def wait_s(self, num_chars: int, now: float) -> float:
        """How long until so many characters may pass; 0: now."""
        self._advance(now)
        return max(0.0, (min(num_chars, self._capacity) - self._level) / self._per_s)

    def take(self, num_chars: int, now: float) -> None:
        self._advance(now)
        self._level -= num_chars

    def is_full(self, now: float) -> bool:
        """It is as good as a new one."""
        self._advance(now)
        return self._level >= self._capacity

    def _advance(self, now: float) -> None:
        self._level = min(self._capacity, self._level + self._per_s * max(0.0, now - self._at))
        self._at = max(self._at, now)


def fair_share(num_places: int, num_sharers: int) -> int:
    """Places that each of so many may hold, one at least."""
    return max(1, num_places // max(1, num_sharers))


class Quotas:
    """One gateway's account, which knows what keys have used at the others.

    Args:
        num_keys: API keys that are active; 0: everybody is one.
        max_sessions_per_key, max_chars_per_minute: 0: no limit.
        fair_share_from: taken share of the places from which on a key is held to its fair share.
    """

    def __init__(
        self, num_keys: int, max_sessions_per_key: int, max_chars_per_minute: int, fair_share_from: float
    ) -> None:
        self._num_keys = num_keys
        self._max_sessions_per_key, self._max_chars_per_minute = max_sessions_per_key, max_chars_per_minute
        self._fair_share_from = fair_share_from
        self._budgets: dict[tuple[str, str], CharacterBudget] = {}  # by key and token
        self._purge_at = _MIN_PURGE

    # ---- places --------------------------------------------------------------------------------------------------

    def max_sessions(self, tenant: str, held: Mapping[str, int], num_places: int) -> int:
        """How many sessions a key may have now. `held`: places by key."""
        limit = self._max_sessions_per_key or num_places
        if sum(held.values()) >= self._fair_share_from * num_places:
            limit = min(limit, self._share(tenant, held, num_places))
        return limit

    def _share(self, tenant: str, held: Mapping[str, int], num_places: int) -> int:
        num_present = len({key for key, count in held.items() if count} | {tenant})
        return fair_share(num_places, min(num_present + 1, self._num_keys))

    # ---- characters ----------------------------------------------------------------------------------------------

    def refusal(self, caller: Caller, now: float) -> RateLimited | None:
        """Why this caller should not begin a session now, if so."""
        wait_s = self._wait_s(caller, 1, now)
        return _rate_limited(wait_s) if wait_s > 0 else None

    def charge_text(self, caller: Caller, num_chars: int, now: float) -> RateLimited | None:
        """Enter so many characters, or say why they must wait."""
        if (wait_s := self._wait_s(caller, num_chars, now)) > 0:
            return _rate_limited(wait_s)
        self.charge_anyway(caller, num_chars, now)
        return None

    def charge_anyway(self, caller: Caller, num_chars: int, now: float) -> None:
        """Enter characters that have been let in, here or at another gateway."""
        for budget in self._budgets_of(caller, now):
            budget.take(num_chars, now)

    def is_limited(self, caller: Caller) -> bool:
        """Whether his characters are counted at all."""
        return bool(self._max_chars_per_minute or caller.max_chars_per_minute)

    def _wait_s(self, caller: Caller, num_chars: int, now: float) -> float:
        return max((budget.wait_s(num_chars, now) for budget in self._budgets_of(caller, now)), default=0.0)

    def _budgets_of(self, caller: Caller, now: float) -> list[CharacterBudget]:
        limits = [("", self._max_chars_per_minute), (caller.token, caller.max_chars_per_minute)]
        return [self._budget((caller.tenant, token), limit, now) for token, limit in limits if limit]

    def _budget(self, owner: tuple[str, str], per_minute: int, now: float) -> CharacterBudget:
        if owner not in self._budgets:
            self._purge(now)
            self._budgets[owner] = CharacterBudget(per_minute, now)
        return self._budgets[owner]

    def _purge(self, now: float) -> None:
        """Tokens come and go: a budget that is full again, a minute later at most, need not be remembered."""
        if len(self._budgets) >= self._purge_at:
            self._budgets = {owner: budget for owner, budget in self._budgets.items() if not budget.is_full(now)}
            self._purge_at = max(_MIN_PURGE, 2 * len(self._budgets))


def _rate_limited(wait_s: float) -> RateLimited:
    return RateLimited("more characters than this key or token may have in a minute", retry_after_s=wait_s)
