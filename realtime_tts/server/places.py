"""Who holds a place at the host: every session, connected or lost, and every socket that has no session yet.

A client that has lost its connection comes back on a new socket, which at the handshake looks like anybody's. So for
each lost session one socket of its key is let in even where all places are taken: it either resumes that session, or
the session that was lost longest is given up for its new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from realtime_tts.errors import Overloaded, RealtimeTTSError, TooManySessions
from realtime_tts.server.caller import Caller
from realtime_tts.server.holdings import Holdings

NOBODY = Holdings()


class Holder(Protocol):
    """Who holds a place: a session, or speech over plain HTTP."""

    @property
    def tenant(self) -> str: ...

    @property
    def token(self) -> str:
        """Id of the token that it was opened with; "" for a key."""
        ...

    @property
    def num_speaking(self) -> int:
        """Contexts that have work at the engine."""
        ...

    @property
    def lost_at(self) -> float | None:
        """Since when its client is waited for."""
        ...

    @property
    def voices(self) -> Iterable[str]:
        """That it speaks with, by the engine's ids."""
        ...

    def voice_removed(self, voice_id: str) -> None:
        """A voice is gone, by the engine's id; whatever speaks with it fails."""
        ...

    def drain(self) -> None:
        """Let what is being spoken end, and begin nothing more."""
        ...

    def close(self, code: int, reason: str) -> None:
        """End at once; the code is a socket's."""
        ...


class Place:
    """A socket's claim until it has a session.

    Attributes:
        is_lent: it was let in for a lost session only.
    """

    def __init__(self, caller: Caller, is_lent: bool) -> None:
        self.caller, self.is_lent = caller, is_lent


class Places:
    """Counts them. `sessions`: all that live here, of all keys; `others`: what other gateways of the host hold.

    Args:
        max_of_key: how many a key may hold, given its name, what each key holds, and how many places there are.
    """

    def __init__(self, max_of_key: Callable[[str, Mapping[str, int], int], int]) -> None:
        self._max_of_key = max_of_key
        self._waiting: Counter[str] = Counter()  # sockets without a session, by key
        self._held: set[Place] = set()

    def take(
        self,
        caller: Caller,
        sessions: Iterable[Holder],
        max_sessions: int,
        refusal: RealtimeTTSError | None,
        may_resume: bool = True,
        others: Holdings = NOBODY,
    ) -> Place:
        """For a new socket of this caller.

        Args:
            refusal: why no new session is wanted now though there were places.
            may_resume: it may be that of a lost session; a request over plain HTTP never is.

        Raises:
            Overloaded, TooManySessions: there is none.
            RealtimeTTSError: the refusal.
        """
        all_held = self.holdings(sessions) + others
        refusal = self.refusal(caller, all_held, max_sessions, refusal)
        has_lost = all_held.waiting[caller.tenant] < all_held.lost[caller.tenant]
        if _is_token_full(caller, all_held):
            has_lost = has_lost and all_held.waiting_tokens[caller.token] < all_held.lost_tokens[caller.token]
        if refusal is not None and not (may_resume and has_lost):
            raise refusal
        place = Place(caller, is_lent=refusal is not None)
        self._held.add(place)
        self._waiting[caller.tenant] += 1
        return place

    def refusal(
        self, caller: Caller, all_held: Holdings, max_sessions: int, refusal: RealtimeTTSError | None
    ) -> RealtimeTTSError | None:
        """Return why a caller gets no place for a new session: those of its token are taken, the given refusal, or
        that there is none."""
        if _is_token_full(caller, all_held):
            return TooManySessions("all sessions of this token are taken")
        held, tenant = _held_by_key(all_held), caller.tenant
        if held.total() >= max_sessions:
            return refusal or Overloaded("all sessions of this server are taken")
        if held[tenant] >= self._max_of_key(tenant, held, max_sessions):
            return refusal or TooManySessions("this API key has as many sessions as it may have now")
        return refusal

    def give_back(self, place: Place) -> None:
        """The socket has found its session, or is gone. Idempotent."""
        if place in self._held:
            self._held.remove(place)
            self._waiting[place.caller.tenant] -= 1

    def to_give_up(
        self, caller: Caller, sessions: Iterable[Holder], max_sessions: int, others: Holdings = NOBODY
    ) -> Holder | None:
        """Return the lost session of ours that has to go for a new one of this caller, if there are too many.

        Raises:
            TooManySessions: the sessions of its token are taken, and none of them is lost and ours.
        """
        sessions, tenant = list(sessions), caller.tenant
        all_held = self.holdings(sessions) + others
        if _is_token_full(caller, all_held):
            lost = [live for live in sessions if live.token == caller.token and live.lost_at is not None]
            if not lost:
                raise TooManySessions("all sessions of this token are taken")
            return min(lost, key=lambda live: live.lost_at or 0.0)
        held = _held_by_key(all_held)
        is_full = held.total() >= max_sessions or held[tenant] >= self._max_of_key(tenant, held, max_sessions)
        lost = [live for live in sessions if live.tenant == tenant and live.lost_at is not None]
        return min(lost, key=lambda live: live.lost_at or 0.0, default=None) if is_full else None

    def holdings(self, sessions: Iterable[Holder]) -> Holdings:
        """What is held here."""
        held = Holdings(waiting=+self._waiting)
        for live in sessions:
            held.sessions[live.tenant] += 1
            held.lost[live.tenant] += live.lost_at is not None
            held.speaking[live.tenant] += live.num_speaking
            if live.token:
                held.tokens[live.token] += 1
                held.lost_tokens[live.token] += live.lost_at is not None
        held.waiting_tokens.update(place.caller.token for place in self._held if place.caller.token)
        return held


def _is_token_full(caller: Caller, held: Holdings) -> bool:
    """Whether a caller's token has as many sessions as it may have, counted as those of keys are."""
    more_waiting = max(0, held.waiting_tokens[caller.token] - held.lost_tokens[caller.token])
    return 0 < caller.max_sessions <= held.tokens[caller.token] + more_waiting


def _held_by_key(held: Holdings) -> Counter[str]:
    """Sessions, and sockets that are more than a lost session waits for."""
    return held.sessions + (held.waiting - held.lost)
