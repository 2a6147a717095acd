"""Slots: one for each session, connected or lost, and for each socket without a session yet. Pure.

A lost session keeps its slot for its client: a socket whose address names the session needs no other. Where no slot is
free, a new session takes the slot of the longest lost session of its key, or of its token if the token's slots are
taken.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from realtime_tts.server.admission.client import Client


class SlotOwner(Protocol):
    """Owner of a slot: a session, or speech over plain HTTP."""

    @property
    def client(self) -> Client:
        """The client that it was opened for."""

    @property
    def num_speaking(self) -> int:
        """Number of contexts that have work at the engine."""

    @property
    def lost_at(self) -> float | None:
        """Monotonic time in seconds at which the connection was lost; None while the client is connected."""

    @property
    def voices(self) -> Iterable[str]:
        """Engine ids of the voices that it uses."""

    def voice_removed(self, voice_id: str) -> None:
        """Fail the speech that uses a removed voice. `voice_id`: the engine's id."""

    def drain(self) -> None:
        """Let running speech end, and begin no more."""

    def close(self, code: int, reason: str) -> None:
        """End at once. `code`: close code for a WebSocket."""


@dataclasses.dataclass(frozen=True, slots=True)
class SlotCounts:
    """Counts of one gateway or the sum of several; by the id of the key, `tokens` by the id of the token.

    Attributes:
        sessions, waiting: sessions, and sockets without one: both use a slot.
        speaking: contexts that have work at the engine.
        tokens: slots used by clients with a token.
    """

    sessions: Counter[str] = dataclasses.field(default_factory=Counter[str])
    waiting: Counter[str] = dataclasses.field(default_factory=Counter[str])
    speaking: Counter[str] = dataclasses.field(default_factory=Counter[str])
    tokens: Counter[str] = dataclasses.field(default_factory=Counter[str])

    def __add__(self, other: SlotCounts) -> SlotCounts:
        return SlotCounts(*(mine + theirs for mine, theirs in zip(self._all, other._all, strict=True)))

    def __sub__(self, other: SlotCounts) -> SlotCounts:
        return SlotCounts(*(mine - theirs for mine, theirs in zip(self._all, other._all, strict=True)))

    @property
    def _all(self) -> tuple[Counter[str], ...]:
        return self.sessions, self.waiting, self.speaking, self.tokens

    def add_socket(self, tenant: str, token: str) -> None:
        """Count a socket without a session."""
        self.waiting[tenant] += 1
        if token:
            self.tokens[token] += 1

    def add_owner(self, owner: SlotOwner) -> None:
        """Count a session, or speech over plain HTTP."""
        self.sessions[owner.client.tenant] += 1
        self.speaking[owner.client.tenant] += owner.num_speaking
        if owner.client.token:
            self.tokens[owner.client.token] += 1


class Grant(enum.StrEnum):
    """Answer to a request for a slot."""

    FREE = "free"  # the slot is granted
    TOKEN_FULL = "token_full"
    HOST_FULL = "host_full"
    TENANT_FULL = "tenant_full"


@dataclasses.dataclass(frozen=True, slots=True)
class SlotRequest:
    """Request for the slot of a new socket.

    Attributes:
        max_of_token: limit of the token's sessions; 0: none.
        max_sessions: number of slots of the host.
    """

    tenant: str
    token: str
    max_of_token: int
    max_sessions: int


MaxOfTenant = Callable[[str, Mapping[str, int], int], int]  # of the tenant, the slots by tenant, the number of slots


def grant(request: SlotRequest, counts: SlotCounts, max_of_tenant: MaxOfTenant) -> Grant:
    """Return the answer to a request. `counts`: of the whole host.

    A full token comes first, then full slots of the host or of the key.
    """
    tenant, taken = request.tenant, counts.sessions + counts.waiting
    if 0 < request.max_of_token <= counts.tokens[request.token]:
        return Grant.TOKEN_FULL
    if taken.total() >= request.max_sessions:
        return Grant.HOST_FULL
    if taken[tenant] >= max_of_tenant(tenant, taken, request.max_sessions):
        return Grant.TENANT_FULL
    return Grant.FREE


@dataclasses.dataclass(eq=False, slots=True)
class Slot:
    """Slot of a socket until it has a session.

    Attributes:
        resumed: the session that the socket's address names, if this gateway has it.
        grant: None until the request for the slot is answered, or if the gateway itself refuses one.
        go_away: closes the socket, since the server is shutting down and this client has no speech to wait for; None
            before the socket is open, and after it.
    """

    client: Client
    resumed: SlotOwner | None = None
    grant: Grant | None = None
    go_away: Callable[[], None] | None = None


class Slots:
    """Slots that this gateway uses.

    Attributes:
        owners: sessions, and speech over plain HTTP.
        sockets: slots of the sockets without a session; they are counted once they are granted.
    """

    def __init__(self) -> None:
        self.owners: set[SlotOwner] = set()
        self.sockets: set[Slot] = set()

    @property
    def counts(self) -> SlotCounts:
        counts = SlotCounts()
        for owner in self.owners:
            counts.add_owner(owner)
        for slot in self.sockets:
            if slot.grant is Grant.FREE:
                counts.add_socket(slot.client.tenant, slot.client.token)
        return counts

    def may_resume(self, slot: Slot) -> bool:
        """Return whether a socket is the only one that resumes its session, and so needs no slot of its own."""
        return slot.resumed is not None and sum(other.resumed is slot.resumed for other in self.sockets) == 1

    def longest_lost(self, slot: Slot) -> SlotOwner | None:
        """Return the lost session of this gateway whose slot a new session takes."""
        by_token, client = slot.grant is Grant.TOKEN_FULL, slot.client
        lost = [owner for owner in self.owners if owner.client.tenant == client.tenant and owner.lost_at is not None]
        lost = [owner for owner in lost if owner.client.token == client.token or not by_token]
        lost = [owner for owner in lost if all(other.resumed is not owner for other in self.sockets)]
        return min(lost, key=lambda owner: owner.lost_at or 0.0, default=None)
