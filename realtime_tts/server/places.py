"""Who holds a place at the server: every session, connected or lost, and every socket that has no session yet.

A client that has lost its connection comes back on a new socket, which at the handshake looks like anybody's. So for
each lost session one socket of its key is let in even where all places are taken: it either resumes that session, or
the session that was lost longest is given up for its new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from realtime_tts.errors import Overloaded, RealtimeTTSError, TooManySessions
from realtime_tts.server.live_session import LiveSession


class Place:
    """A socket's claim until it has a session.

    Attributes:
        is_lent: it was let in for a lost session only.
    """

    def __init__(self, tenant: str, is_lent: bool) -> None:
        self.tenant, self.is_lent = tenant, is_lent


class Places:
    """Counts them. `sessions`: all that live, of all keys."""

    def __init__(self, max_sessions_per_key: int) -> None:
        self._max_per_key = max_sessions_per_key  # 0: no limit
        self._waiting: Counter[str] = Counter()  # sockets without a session, by key
        self._held: set[Place] = set()

    def take(
        self, tenant: str, sessions: Iterable[LiveSession], max_sessions: int, refusal: RealtimeTTSError | None
    ) -> Place:
        """For a new socket of this key. `refusal`: why no new session is wanted now though there were places.

        Raises:
            Overloaded, TooManySessions: there is none.
            RealtimeTTSError: the refusal.
        """
        sessions = list(sessions)
        if self._num_taken(sessions) >= max_sessions:
            refusal = refusal or Overloaded("all sessions of this server are taken")
        elif self._max_per_key and self._num_of_key(tenant, sessions) >= self._max_per_key:
            refusal = refusal or TooManySessions("all sessions of this API key are taken")
        if refusal is not None and self._waiting[tenant] >= _lost(sessions)[tenant]:
            raise refusal
        place = Place(tenant, is_lent=refusal is not None)
        self._held.add(place)
        self._waiting[tenant] += 1
        return place

    def give_back(self, place: Place) -> None:
        """The socket has found its session, or is gone. Idempotent."""
        if place in self._held:
            self._held.remove(place)
            self._waiting[place.tenant] -= 1

    def to_give_up(self, tenant: str, sessions: Iterable[LiveSession], max_sessions: int) -> LiveSession | None:
        """The lost session that has to go for a new one of this key, if there are too many."""
        sessions = list(sessions)
        is_full = self._num_taken(sessions) >= max_sessions
        if self._max_per_key:
            is_full = is_full or self._num_of_key(tenant, sessions) >= self._max_per_key
        lost = [live for live in sessions if live.tenant == tenant and live.lost_at is not None]
        return min(lost, key=lambda live: live.lost_at or 0.0, default=None) if is_full else None

    def _num_taken(self, sessions: list[LiveSession]) -> int:
        lost = _lost(sessions)
        return len(sessions) + sum(max(0, number - lost[tenant]) for tenant, number in self._waiting.items())

    def _num_of_key(self, tenant: str, sessions: list[LiveSession]) -> int:
        num_sessions = sum(live.tenant == tenant for live in sessions)
        return num_sessions + max(0, self._waiting[tenant] - _lost(sessions)[tenant])


def _lost(sessions: list[LiveSession]) -> Counter[str]:
    """Sessions that wait for their clients, by key."""
    return Counter(live.tenant for live in sessions if live.lost_at is not None)
