"""Slots of the host: one for every session, connected or lost, and for every socket without a session yet.

A client that has lost its connection returns on a new socket, which cannot be recognised at the handshake. So for each
lost session, one socket of the same key is admitted even if all slots are taken. It either resumes that session, or
the session that was lost longest is closed in favour of its new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from realtime_tts.errors import Overloaded, RealtimeTTSError, TooManySessions
from realtime_tts.server.admission.client import Client
from realtime_tts.server.admission.slot_counts import SlotCounts

NOBODY = SlotCounts()


class SlotOwner(Protocol):
    """Owner of a slot: a session, or speech over plain HTTP."""

    @property
    def tenant(self) -> str: ...

    @property
    def token(self) -> str:
        """Id of the token that it was opened with; "" for an API key."""
        ...

    @property
    def num_speaking(self) -> int:
        """Number of contexts that have work at the engine."""
        ...

    @property
    def lost_at(self) -> float | None:
        """Monotonic time in seconds at which the connection was lost; None while the client is connected."""
        ...

    @property
    def voices(self) -> Iterable[str]:
        """Engine ids of the voices that it uses."""
        ...

    def voice_removed(self, voice_id: str) -> None:
        """Fail the speech that uses a removed voice. `voice_id`: the engine's id."""
        ...

    def drain(self) -> None:
        """Let running speech end, and begin no more."""
        ...

    def close(self, code: int, reason: str) -> None:
        """End at once. `code`: close code for a WebSocket."""
        ...


class Slot:
    """Slot of a socket until it has a session.

    Attributes:
        is_lent: the socket was admitted for a lost session only.
    """

    def __init__(self, client: Client, is_lent: bool) -> None:
        self.client, self.is_lent = client, is_lent


class Slots:
    """Counts slots. `sessions`: all sessions of this gateway; `others`: the slots that its peers use.

    Args:
        max_of_key: returns the limit of a key, given its id, the slots of each key, and the number of slots.
    """

    def __init__(self, max_of_key: Callable[[str, Mapping[str, int], int], int]) -> None:
        self._max_of_key = max_of_key
        self._waiting: Counter[str] = Counter()  # sockets without a session, by key
        self._held: set[Slot] = set()

    def take(
        self,
        client: Client,
        sessions: Iterable[SlotOwner],
        max_sessions: int,
        refusal: RealtimeTTSError | None,
        may_resume: bool = True,
        others: SlotCounts = NOBODY,
    ) -> Slot:
        """Take a slot for a new socket of this client.

        Args:
            refusal: error that refuses a new session even if a slot is free; None: none.
            may_resume: the socket may be that of a lost session; False for plain HTTP.

        Raises:
            Overloaded, TooManySessions: no slot is free.
            RealtimeTTSError: the given refusal.
        """
        all_held = self.holdings(sessions) + others
        refusal = self.refusal(client, all_held, max_sessions, refusal)
        has_lost = all_held.waiting[client.tenant] < all_held.lost[client.tenant]
        if _is_token_full(client, all_held):
            has_lost = has_lost and all_held.waiting_tokens[client.token] < all_held.lost_tokens[client.token]
        if refusal is not None and not (may_resume and has_lost):
            raise refusal
        place = Slot(client, is_lent=refusal is not None)
        self._held.add(place)
        self._waiting[client.tenant] += 1
        return place

    def refusal(
        self, client: Client, all_held: SlotCounts, max_sessions: int, refusal: RealtimeTTSError | None
    ) -> RealtimeTTSError | None:
        """Return the error that refuses a client a slot for a new session, if any.

        A full token comes first, then the given refusal, then full slots of the host or of the key.
        """
        if _is_token_full(client, all_held):
            return TooManySessions("all sessions of this token are taken")
        held, tenant = _held_by_key(all_held), client.tenant
        if held.total() >= max_sessions:
            return refusal or Overloaded("all sessions of this server are taken")
        if held[tenant] >= self._max_of_key(tenant, held, max_sessions):
            return refusal or TooManySessions("this API key has as many sessions as it may have now")
        return refusal

    def give_back(self, place: Slot) -> None:
        """Release the slot of a socket: it has a session now, or is closed. Idempotent."""
        if place in self._held:
            self._held.remove(place)
            self._waiting[place.client.tenant] -= 1

    def to_give_up(
        self, client: Client, sessions: Iterable[SlotOwner], max_sessions: int, others: SlotCounts = NOBODY
    ) -> SlotOwner | None:
        """Return the lost session of this gateway to close for a new one of this client; None if none has to close.

        Raises:
            TooManySessions: the sessions of its token are taken, and none of them is lost and at this gateway.
        """
        sessions, tenant = list(sessions), client.tenant
        all_held = self.holdings(sessions) + others
        if _is_token_full(client, all_held):
            lost = [live for live in sessions if live.token == client.token and live.lost_at is not None]
            if not lost:
                raise TooManySessions("all sessions of this token are taken")
            return min(lost, key=lambda live: live.lost_at or 0.0)
        held = _held_by_key(all_held)
        is_full = held.total() >= max_sessions or held[tenant] >= self._max_of_key(tenant, held, max_sessions)
        lost = [live for live in sessions if live.tenant == tenant and live.lost_at is not None]
        return min(lost, key=lambda live: live.lost_at or 0.0, default=None) if is_full else None

    def holdings(self, sessions: Iterable[SlotOwner]) -> SlotCounts:
        """Return the slots that this gateway uses."""
        held = SlotCounts(waiting=+self._waiting)
        for live in sessions:
            held.sessions[live.tenant] += 1
            held.lost[live.tenant] += live.lost_at is not None
            held.speaking[live.tenant] += live.num_speaking
            if live.token:
                held.tokens[live.token] += 1
                held.lost_tokens[live.token] += live.lost_at is not None
        held.waiting_tokens.update(place.client.token for place in self._held if place.client.token)
        return held


def _is_token_full(client: Client, held: SlotCounts) -> bool:
    """Return whether a client's token has reached its limit of sessions, counted as for keys."""
    more_waiting = max(0, held.waiting_tokens[client.token] - held.lost_tokens[client.token])
    return 0 < client.max_sessions <= held.tokens[client.token] + more_waiting


def _held_by_key(held: SlotCounts) -> Counter[str]:
    """Return the slots by key: sessions, and waiting sockets beyond the number of lost sessions."""
    return held.sessions + (held.waiting - held.lost)
