"""Admission: which clients get a slot, a session and a context, and what each tenant has used."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator

from starlette.requests import HTTPConnection

from realtime_tts.config import ServerConfig
from realtime_tts.errors import (
    Draining,
    EngineLost,
    Forbidden,
    LimitExceeded,
    Overloaded,
    RealtimeTTSError,
    TooManySessions,
    Unauthorized,
)
from realtime_tts.server.admission.auth import Authenticator
from realtime_tts.server.admission.availability import Availability, GatewayState
from realtime_tts.server.admission.capacity import RecentRequests, SpeechLoad, refusal
from realtime_tts.server.admission.client import Client
from realtime_tts.server.admission.lateness import Lateness
from realtime_tts.server.admission.peers import Charge, Peers
from realtime_tts.server.admission.quota import Quotas
from realtime_tts.server.admission.refusal_delay import RefusalDelay
from realtime_tts.server.admission.slots import Grant, Slot, SlotOwner, SlotRequest, Slots, grant
from realtime_tts.server.logs import Throttle, log_event
from realtime_tts.server.metrics import Metrics
from realtime_tts.session.connection import GOING_AWAY
from realtime_tts.workers.client import EngineClient

SESSIONS_PER_STREAM = 4  # a voice agent's session is silent most of the time


class Admission:
    """Decisions of one gateway, under the limits of its whole host.

    Attributes:
        client_came: set when a connection is admitted; the task that waits for it clears it.
    """

    def __init__(
        self, config: ServerConfig, engine: EngineClient, availability: Availability, peers: Peers, metrics: Metrics
    ) -> None:
        self.authenticator = Authenticator(config)
        self.lateness = Lateness(config.limits.max_late_ms / 1000)
        self.slots = Slots()
        self.client_came = asyncio.Event()
        self._config, self._engine, self._availability = config, engine, availability
        self._peers, self._metrics = peers, metrics
        peers.on_charged = self._charged_by_peer
        self._quotas = Quotas(config.limits, self.authenticator.num_keys)
        self._recent_requests, self._refusal_delay, self._throttle = RecentRequests(), RefusalDelay(), Throttle()

    def identify(self, connection: HTTPConnection) -> Client:
        """Return the client of a request or a handshake.

        Raises:
            InvalidRequest, Unauthorized, Forbidden
        """
        address = connection.client.host if connection.client is not None else ""
        with self.noting_refusals(Client(address=address)):
            self.authenticator.check_origin(connection.headers)
            client = self.authenticator.authenticate(connection.headers, connection.query_params)
        return dataclasses.replace(client, address=address)

    @property
    def is_idle(self) -> bool:
        """True without a connection, a session or speech."""
        return not (self.slots.sockets or self.slots.owners)

    # ---- slots ---------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def slot(
        self, client: Client, *, resumed: SlotOwner | None = None, replaces: bool = False
    ) -> AsyncIterator[Slot]:
        """Hold a slot for a new connection.

        Args:
            resumed: the session that the connection resumes. It is admitted without a free slot, too.
            replaces: where no slot is free, the longest lost session is closed.

        Raises:
            Draining, EngineLost, Overloaded, TooManySessions, RateLimited
        """
        slot = Slot(client, resumed)
        self.slots.sockets.add(slot)
        try:
            with self.noting_refusals(client):
                await self._take(slot, replaces)
            self.client_came.set()
            yield slot
        finally:
            self.slots.sockets.discard(slot)

    async def _take(self, slot: Slot, replaces: bool) -> None:
        if slot.resumed is None:
            await self._availability.load()
        self._recent_requests.note(slot.client.tenant, time.monotonic())
        if (refusal := self._refusal(slot.client)) is None:
            await self._peers.request_slot(slot, self._request(slot.client), self._decide)
        if slot.grant is Grant.FREE or self.slots.may_resume(slot):
            return
        if refusal is not None or not replaces or (lost := self.slots.longest_lost(slot)) is None:
            raise refusal or _refusal_of(slot.grant)
        lost.close(GOING_AWAY, "given_up")
        slot.grant = Grant.FREE

    def check(self, client: Client) -> None:
        """Refuse a request for speech before its body is read, if it would be refused now. The slot is taken later.

        Raises:
            Draining, EngineLost, Overloaded, TooManySessions, RateLimited
        """
        self._availability.check()
        if self._engine.is_unloaded:
            return  # its streams are unknown until it is loaded
        found, refusal = self._decide(self._request(client)), self._refusal(client)
        if found is not Grant.FREE or refusal is not None:
            self._recent_requests.note(client.tenant, time.monotonic())  # others are counted when they request a slot
            with self.noting_refusals(client):
                raise refusal or _refusal_of(found)

    def _decide(self, request: SlotRequest) -> Grant:
        """Return the answer to a request as far as it is known here: some milliseconds ago at the peers."""
        return grant(request, self.slots.counts + self._peers.others, self._quotas.max_sessions)

    def _request(self, client: Client) -> SlotRequest:
        return SlotRequest(client.tenant, client.token, client.max_sessions, self._max_sessions)

    def _refusal(self, client: Client) -> RealtimeTTSError | None:
        """Return the error that refuses this client a new session now, if any, even if a slot is free."""
        return self.session_refusal(client.tenant) or self._quotas.refusal(client, time.monotonic())

    @property
    def _max_sessions(self) -> int:
        if self._engine.ready is None:
            raise EngineLost("the model is still being loaded")
        max_streams = max(1, self._engine.ready.max_streams) * self._engine.num_ready
        return self._config.limits.max_sessions or SESSIONS_PER_STREAM * max_streams

    # ---- speech --------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def speech(self, owner: SlotOwner, num_chars: int) -> AsyncIterator[None]:
        """Hold a slot for speech over plain HTTP, which counts as a session with one context; charge its characters.

        Raises:
            Draining, EngineLost, Overloaded, TooManySessions, RateLimited
        """
        async with self.slot(owner.client) as slot:
            if (too_many := self.charge(owner.client, num_chars)) is not None:
                with self.noting_refusals(owner.client):
                    raise too_many
            self.lateness.begin()
            self.slots.owners.add(owner)
            self.slots.sockets.discard(slot)
            try:
                with self._metrics.http_speeches.track_inprogress():
                    yield
            finally:
                self.slots.owners.discard(owner)

    def session_refusal(self, tenant: str) -> RealtimeTTSError | None:
        """Return the error that refuses this key a new session now, if any, even if a slot is free."""
        if self._availability.state is not GatewayState.RUNNING:
            return Draining("the server is shutting down")
        return refusal(self._load(), tenant, max_waiting=0)

    def context_refusal(self, tenant: str) -> RealtimeTTSError | None:
        """Return the error that refuses this key a new context now, if any; `max_queued` contexts may wait."""
        self._recent_requests.note(tenant, time.monotonic())
        load = self._load()
        found = refusal(load, tenant, max_waiting=self._config.limits.max_queued or load.num_streams)
        if found is None:
            self.lateness.begin()
        return found

    def _load(self) -> SpeechLoad:
        speaking = Counter(self._peers.others.speaking)
        for owner in self.slots.owners:
            speaking[owner.client.tenant] += owner.num_speaking
        is_late, asked = not self.lateness.may_begin, self._recent_requests.counts(time.monotonic())
        return SpeechLoad(speaking, self._engine.num_streams, is_late, asked)

    # ---- characters ----------------------------------------------------------------------------------------------

    def charge(self, client: Client, num_chars: int) -> RealtimeTTSError | None:
        """Charge characters here and at the other gateways, or return the error that refuses them."""
        too_many = self._quotas.refusal(client, time.monotonic(), num_chars)
        if too_many is None:
            self.charge_accepted(client, num_chars)
        return too_many

    def charge_accepted(self, client: Client, num_chars: int) -> None:
        """Charge characters of an accepted text, and those that lexicons have added to it."""
        if num_chars:
            self._quotas.charge(client, num_chars, time.monotonic())
            if self._quotas.is_limited(client):
                self._peers.charge(Charge(client.tenant, client.token, client.max_chars_per_minute, num_chars))

    def _charged_by_peer(self, charge: Charge) -> None:
        client = Client(charge.tenant, charge.token, max_chars_per_minute=charge.max_chars_per_minute)
        self._quotas.charge(client, charge.num_chars, time.monotonic())

    # ---- refusals ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def noting_refusals(self, client: Client) -> Iterator[None]:
        """Count an error of the block as a refused handshake or request, and set the delay of its answer."""
        try:
            yield
        except RealtimeTTSError as error:
            if isinstance(error, Overloaded | LimitExceeded | Unauthorized | Forbidden):
                error.delay_s = self._refusal_delay.delay_s(client.tenant, client.address, time.monotonic())
            self._metrics.refused.labels(error.code).inc()
            if count := self._throttle.take(error.code, time.monotonic()):
                log_event("handshake_refused", code=error.code, count=count)
            raise


def _refusal_of(found: Grant | None) -> RealtimeTTSError:
    """Return the error for a request that was not granted."""
    if found is Grant.TOKEN_FULL:
        return TooManySessions("all sessions of this token are taken")
    if found is Grant.TENANT_FULL:
        return TooManySessions("this API key has as many sessions as it may have now")
    return Overloaded("all sessions of this server are taken")
