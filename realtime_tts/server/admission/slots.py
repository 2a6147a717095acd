"""Slots: one for each session, connected or lost, and for each socket without a session yet. Pure.

A client that has lost its connection returns on a new socket, which cannot be recognised at the handshake. So if no
slot is free, one socket of the same key is admitted for each lost session: its slot is lent. The socket either resumes
a session, or the session that was lost longest is closed in favour of its new one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from realtime_tts.server.admission.client import Client


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


def _counter() -> Counter[str]:
    return Counter()


@dataclasses.dataclass(frozen=True, slots=True)
class SlotCounts:
    """Counts of one gateway or the sum of several; by the id of the key, the last three by the id of the token.

    Attributes:
        sessions, waiting: sessions, and sockets without one: both use a slot.
        lent: sockets with a lent slot, which are not counted in `waiting`.
        lost: sessions whose client may resume them.
        speaking: contexts that have work at the engine.
        tokens, lent_tokens, lost_tokens: slots used, `lent` and `lost` of clients with a token.
    """

    sessions: Counter[str] = dataclasses.field(default_factory=_counter)
    waiting: Counter[str] = dataclasses.field(default_factory=_counter)
    lent: Counter[str] = dataclasses.field(default_factory=_counter)
    lost: Counter[str] = dataclasses.field(default_factory=_counter)
    speaking: Counter[str] = dataclasses.field(default_factory=_counter)
    tokens: Counter[str] = dataclasses.field(default_factory=_counter)
    lent_tokens: Counter[str] = dataclasses.field(default_factory=_counter)
    lost_tokens: Counter[str] = dataclasses.field(default_factory=_counter)

    @classmethod
    def sum(cls, several: Iterable[SlotCounts]) -> SlotCounts:
        total = cls()
        for counts in several:
            for field in dataclasses.fields(cls):
                getattr(total, field.name).update(getattr(counts, field.name))
        return total

    def __add__(self, other: SlotCounts) -> SlotCounts:
        return SlotCounts.sum([self, other])

    def add_socket(self, tenant: str, token: str, is_lent: bool) -> None:
        """Count a socket without a session."""
        (self.lent if is_lent else self.waiting)[tenant] += 1
        if token:
            (self.lent_tokens if is_lent else self.tokens)[token] += 1

    def add_owner(self, owner: SlotOwner) -> None:
        """Count a session, or speech over plain HTTP."""
        is_lost = owner.lost_at is not None
        self.sessions[owner.tenant] += 1
        self.lost[owner.tenant] += is_lost
        self.speaking[owner.tenant] += owner.num_speaking
        if owner.token:
            self.tokens[owner.token] += 1
            self.lost_tokens[owner.token] += is_lost


class Grant(enum.Enum):
    """Answer to a request for a slot."""

    FREE = "free"  # a free slot
    LENT = "lent"  # the slot of a lost session of the same key
    LENT_BY_TOKEN = "lent_by_token"  # the slot of a lost session of the same token
    TOKEN_FULL = "token_full"
    HOST_FULL = "host_full"
    TENANT_FULL = "tenant_full"
    REFUSED = "refused"  # for the reason that the gateway has

    @property
    def is_lent(self) -> bool:
        return self in (Grant.LENT, Grant.LENT_BY_TOKEN)

    @property
    def has_slot(self) -> bool:
        return self is Grant.FREE or self.is_lent


@dataclasses.dataclass(frozen=True, slots=True)
class SlotRequest:
    """Request for the slot of a new socket.

    Attributes:
        max_of_token: limit of the token's sessions; 0: none.
        max_sessions: number of slots of the host.
        is_refused: the gateway refuses a new session even if a slot is free.
        may_resume: the socket may be that of a lost session; False for plain HTTP.
    """

    tenant: str
    token: str
    max_of_token: int
    max_sessions: int
    is_refused: bool
    may_resume: bool


MaxOfTenant = Callable[[str, Mapping[str, int], int], int]  # of the tenant, the slots by tenant, the number of slots


def grant(request: SlotRequest, counts: SlotCounts, max_of_tenant: MaxOfTenant) -> Grant:
    """Return the answer to a request. `counts`: of the whole host.

    A full token comes first, then the gateway's own refusal, then full slots of the host or of the key.
    """
    tenant, taken = request.tenant, counts.sessions + counts.waiting
    is_token_full = 0 < request.max_of_token <= counts.tokens[request.token]
    if is_token_full:
        refusal = Grant.TOKEN_FULL
    elif request.is_refused:
        refusal = Grant.REFUSED
    elif taken.total() >= request.max_sessions:
        refusal = Grant.HOST_FULL
    elif taken[tenant] >= max_of_tenant(tenant, taken, request.max_sessions):
        refusal = Grant.TENANT_FULL
    else:
        return Grant.FREE
    if not request.may_resume or counts.lent[tenant] >= counts.lost[tenant]:
        return refusal
    if not is_token_full:
        return Grant.LENT
    has_lost = counts.lent_tokens[request.token] < counts.lost_tokens[request.token]
    return Grant.LENT_BY_TOKEN if has_lost else refusal


@dataclasses.dataclass(eq=False, slots=True)
class Slot:
    """Slot of a socket until it has a session. `grant`: None until the request for it is answered."""

    client: Client
    grant: Grant | None = None


class Slots:
    """Slots that this gateway uses."""

    def __init__(self) -> None:
        self.owners: set[SlotOwner] = set()
        self._sockets: set[Slot] = set()
        self._has_left = asyncio.Event()

    def open(self, client: Client) -> Slot:
        """Return a slot for a new socket. It is counted once its `grant` is set."""
        slot = Slot(client)
        self._sockets.add(slot)
        return slot

    def close(self, slot: Slot) -> None:
        """Release the slot of a socket: it has a session now, or is closed. Idempotent."""
        self._sockets.discard(slot)

    def add(self, owner: SlotOwner) -> None:
        self.owners.add(owner)

    def remove(self, owner: SlotOwner) -> None:
        self.owners.discard(owner)
        self._has_left.set()

    async def until_empty(self) -> None:
        """Wait until no session and no speech over plain HTTP is left."""
        while self.owners:
            self._has_left.clear()
            await self._has_left.wait()

    @property
    def counts(self) -> SlotCounts:
        counts = SlotCounts()
        for owner in self.owners:
            counts.add_owner(owner)
        for slot in self._sockets:
            if slot.grant is not None and slot.grant.has_slot:
                counts.add_socket(slot.client.tenant, slot.client.token, slot.grant.is_lent)
        return counts

    def longest_lost(self, slot: Slot) -> SlotOwner | None:
        """Return the lost session of this gateway to close for the new session of a lent slot."""
        by_token, client = slot.grant is Grant.LENT_BY_TOKEN, slot.client
        lost = [owner for owner in self.owners if owner.tenant == client.tenant and owner.lost_at is not None]
        lost = [owner for owner in lost if owner.token == client.token or not by_token]
        return min(lost, key=lambda owner: owner.lost_at or 0.0, default=None)
