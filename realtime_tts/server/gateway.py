"""The state of one gateway, in one object that is passed to the code that needs it. No globals."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import functools
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from starlette.requests import HTTPConnection

from realtime_tts import __version__
from realtime_tts.audio.provenance import Provenance
from realtime_tts.config import Settings
from realtime_tts.contract import frames
from realtime_tts.contract.watch import watch
from realtime_tts.dialects.base import Habits
from realtime_tts.dialects.native import NativeDialect
from realtime_tts.errors import (
    Draining,
    EngineLost,
    EngineStartError,
    Forbidden,
    InternalError,
    LimitExceeded,
    ModelNotFound,
    Overloaded,
    RealtimeTTSError,
    SessionNotFound,
    Unauthorized,
)
from realtime_tts.server.admission.auth import Authenticator
from realtime_tts.server.admission.capacity import SpeechLoad, refusal
from realtime_tts.server.admission.client import Client
from realtime_tts.server.admission.lateness import IDLE_PROBE_EVERY_S, PROBE_EVERY_S, Lateness, Pace
from realtime_tts.server.admission.quota import Quotas
from realtime_tts.server.admission.refusal_delay import RefusalDelay
from realtime_tts.server.admission.request_rate import RequestRate
from realtime_tts.server.admission.slot_counts import SlotCounts
from realtime_tts.server.admission.slots import Slot, SlotOwner, Slots
from realtime_tts.server.host.heap import keep_heap_small, settle_heap, unsettle_heap
from realtime_tts.server.host.messages import Charge
from realtime_tts.server.host.pause import pause
from realtime_tts.server.host.peers import Peers, session_name
from realtime_tts.server.host.prefetch import prefetch
from realtime_tts.server.http.catalogue import Catalogue
from realtime_tts.server.logs import Throttle, log_crash, log_event
from realtime_tts.server.metrics import Metrics
from realtime_tts.server.stream.live_session import LiveSession, MessageSink, Services
from realtime_tts.server.stream.warm_up import warm_up_sessions
from realtime_tts.server.voices.limits import VoiceMaking
from realtime_tts.server.voices.previews import Previews
from realtime_tts.server.voices.shared_job import SharedJobs
from realtime_tts.session import messages
from realtime_tts.session.messages import Resume
from realtime_tts.session.session import Session
from realtime_tts.session.settings import SessionConfig
from realtime_tts.speech.adapters import AdapterRegistry
from realtime_tts.speech.consents import Consents
from realtime_tts.speech.defaults import SpeechDefaults
from realtime_tts.speech.dictionaries import Dictionaries
from realtime_tts.speech.encoders import Encoders
from realtime_tts.speech.lexicons import Lexicons
from realtime_tts.speech.voice_store import open_store
from realtime_tts.speech.voices import VoiceRegistry
from realtime_tts.workers.client import EngineClient, EngineState

logger = logging.getLogger(__name__)

_FOLLOW_EVERY_S = 2.0
SESSIONS_PER_STREAM = 4  # a voice agent's session is silent most of the time
GOING_AWAY = 1001


class PendingSocket(Protocol):
    """A socket that has no session yet."""

    def go_away(self) -> None:
        """Close the socket: the server is shutting down, and this client has no speech to wait for."""


class GatewayState(enum.Enum):
    """STARTING → RUNNING → DRAINING → CLOSED; FAILED if the engine did not start."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    CLOSED = "closed"
    FAILED = "failed"


class Gateway:
    """Engine, sessions and limits of one server.

    Args:
        engine: engine client that is not started yet; `start` starts it and `close` closes it.
        peers: the other gateways of the host.
    """

    def __init__(self, settings: Settings, engine: EngineClient, peers: Peers | None = None) -> None:
        self.settings, self.engine = settings, engine
        self.peers = peers or Peers()
        self.peers.on_charge = self._charged_elsewhere
        self.peers.on_voices_changed = self._refresh_voices
        self._adapter_news: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.peers.on_adapter_changed = lambda *news: self._adapter_news.put_nowait(news)
        self._store = open_store(settings.server.voices_dir, settings.server.voice_consent)
        self.voices = VoiceRegistry(engine, self._store)
        self.voices.on_removed = self._voice_removed
        self.adapters = AdapterRegistry(engine, _directory(settings.engine.adapters_dir))
        self.adapters.on_changed = self.peers.adapter_changed
        self.consents = Consents(self._store)
        self.dictionaries = Dictionaries(None if self._store is None else self._store.directory / "dictionaries")
        self.voices.on_stored = self.peers.voices_changed
        self.voice_making = VoiceMaking()
        self.making_previews: SharedJobs[bytes] = SharedJobs()
        self.previews = Previews(None if self._store is None else self._store.directory / "previews")
        self.authenticator = Authenticator(settings.server)
        self._lexicons = Lexicons(settings.server.lexicon, settings.server.key_lexicons)
        self.metrics = Metrics()
        self._quotas = Quotas(
            self.authenticator.num_keys,
            settings.server.max_sessions_per_key,
            settings.server.max_chars_per_minute,
            settings.server.fair_share_from,
        )
        self.encoders = Encoders(settings.server.encoder_threads, settings.server.opus_complexity)
        self.lateness = Lateness(settings.server.max_late_ms / 1000)
        self.state = GatewayState.STARTING
        self.start_error: RealtimeTTSError | None = None
        self.started = asyncio.Event()  # RUNNING or FAILED
        self.has_failed = False  # a required part has ended
        self.on_failed: Callable[[], None] = lambda: None
        engine.on_failed = self.fail
        self.sessions: dict[str, LiveSession] = {}
        self._speeches: set[SlotOwner] = set()  # over plain HTTP
        self._pending_sockets: set[PendingSocket] = set()
        self._catalogue: Catalogue | None = None
        self._slots = Slots(self._quotas.max_sessions)
        self._request_rate, self._refusals = RequestRate(), RefusalDelay()
        self._num_connections = 0
        self._throttle = Throttle()
        self._changed = asyncio.Event()
        self._client_came = asyncio.Event()
        self._voices_changed = asyncio.Event()  # set when another gateway changes voices
        self._start_task: asyncio.Task[None] | None = None
        self._upkeep: list[asyncio.Task[None]] = []

    # ---- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the engine in the background, so that the server answers health checks meanwhile."""
        self._start_task = watch(self._start(), "start engine", self.fail)
        self._upkeep = [
            watch(self._probe_lateness(), "probe lateness", self.fail),
            watch(keep_heap_small(self.encoders.run), "keep heap small", self.fail),
            watch(self._follow_voices(), "follow voices", self.fail),
        ]

    def fail(self) -> None:
        """Mark the gateway as unhealthy, since a required task has ended, and shut down unless that has begun."""
        if not self.has_failed:
            self.has_failed = True
            if self.state not in (GatewayState.DRAINING, GatewayState.CLOSED):
                self.on_failed()

    async def _start(self) -> None:
        begun = time.monotonic()
        try:
            await asyncio.gather(self.engine.start(), self.encoders.warm_up(), prefetch())
            assert self.engine.ready is not None
            await self.voices.refresh()
            if self._store is not None:
                kept = await asyncio.to_thread(
                    self._store.ids
                )  # voices of other models too: another server may use them
                await asyncio.to_thread(self.previews.drop_others, set(kept))
            await self.adapters.load_all(dict(self.settings.engine.adapters))
            while not self._adapter_news.empty():  # adapters that earlier gateways have loaded
                await self.adapters.follow(*self._adapter_news.get_nowait())
            self._upkeep.append(watch(self._follow_adapters(), "follow adapters", self.fail))
            self._catalogue = self._make_catalogue(self.engine.ready)
            await warm_up_sessions(
                lambda name: self._make_session(name, Client(""), NativeDialect.habits, lambda: None), self._services
            )
        except RealtimeTTSError as error:
            self.start_error = error
        except Exception as error:
            log_crash(logger, "start_crashed", error)
            self.start_error = EngineStartError(f"starting failed: {type(error).__name__}")
            self.start_error.__cause__ = error
        settle_heap()  # blocks the event loop, before there are clients
        if self.state is GatewayState.STARTING:
            self.state = GatewayState.FAILED if self.start_error else GatewayState.RUNNING
        self.started.set()
        if ready := self.engine.ready:
            seconds = time.monotonic() - begun
            log_event(logger, logging.INFO, "ready", model=ready.model, device=ready.device, seconds=seconds)

    async def drain(self, timeout_s: float) -> None:
        """Admit no session, let running speech end, then close all sessions; after `timeout_s` speech is cut off."""
        self.state = GatewayState.DRAINING
        log_event(logger, logging.INFO, "draining", sessions=len(self.sessions))
        self._close_pending_sockets()
        for holder in self._holders():
            holder.drain()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._until_empty(), timeout_s)
        self._close_pending_sockets()
        for holder in self._holders():
            holder.close(GOING_AWAY, "draining")

    def _close_pending_sockets(self) -> None:
        for pending_socket in list(self._pending_sockets):
            pending_socket.go_away()

    async def _until_empty(self) -> None:
        while self._holders():
            self._changed.clear()
            await self._changed.wait()

    async def close(self) -> None:
        """Close the engine, all sessions and all tasks. Idempotent."""
        self.state = GatewayState.CLOSED
        unsettle_heap()
        for holder in self._holders():
            holder.close(GOING_AWAY, "draining")
        tasks = [*self._upkeep, *([self._start_task] if self._start_task is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.engine.close()
        self.encoders.close()
        if self._store is not None:
            self._store.close()

    async def _probe_lateness(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + PROBE_EVERY_S
            await asyncio.sleep(PROBE_EVERY_S)
            await self.encoders.run(_nothing)
            pace = self.lateness.pace
            self.lateness.observe(loop.time() - due, loop.time())
            self.metrics.lateness.set(self.lateness.typical_s)
            self.metrics.late.set(self.lateness.pace is Pace.LATE)
            if self.lateness.pace is not pace:
                late_ms = 1000 * self.lateness.typical_s
                # Under load the pace may change between LATE and CAREFUL many times.
                level = logging.INFO if Pace.FREE in (pace, self.lateness.pace) else logging.DEBUG
                log_event(logger, level, "pace", is_now=self.lateness.pace.value, late_ms=late_ms)
            if self.lateness.is_calm and not (self._num_connections or self._holders()):
                await pause(IDLE_PROBE_EVERY_S, self._client_came)

    async def _follow_voices(self) -> None:
        """Apply changes that other processes make in the voices directory, and remove expired temporary voices."""
        is_readable = True
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._voices_changed.wait(), _FOLLOW_EVERY_S)
            self._voices_changed.clear()
            if self._catalogue is None:
                continue
            was_readable = is_readable
            try:
                await self.voices.refresh()
                in_use = {voice for holder in self._holders() for voice in holder.voices}
                await self.voices.expire(in_use, time.time())
            except InternalError as error:
                is_readable = False
                if was_readable:  # log once, not at every attempt
                    log_crash(logger, "voices_unreadable", error)
            else:
                is_readable = True
                if not was_readable:
                    log_event(logger, logging.INFO, "voices_readable")

    async def _follow_adapters(self) -> None:
        """Load and unload the adapters that the host's other gateways load and unload."""
        while True:
            await self.adapters.follow(*await self._adapter_news.get())

    def _refresh_voices(self) -> None:
        self._voices_changed.set()

    def _voice_removed(self, voice_id: str) -> None:
        self.previews.forget(voice_id)
        self.voice_making.forget(voice_id)
        for holder in self._holders():
            holder.voice_removed(voice_id)

    # ---- questions -----------------------------------------------------------------------------------------------

    @property
    def catalogue(self) -> Catalogue:
        """Raises:
        EngineLost: no worker has become ready yet.
        """
        if self._catalogue is None:
            raise EngineLost("the model is still being loaded")
        return self._catalogue

    def check_ready(self) -> None:
        """Raises:
        Draining, EngineLost: speech cannot be made now.
        """
        if self.state in (GatewayState.DRAINING, GatewayState.CLOSED):
            raise Draining("the server is shutting down")
        if self.state is not GatewayState.RUNNING:
            raise self.start_error or EngineLost("the model is still being loaded")
        if self.engine.state is not EngineState.READY:
            raise EngineLost("no engine worker is ready; one is being started")

    def adapter_of(self, model: str | None) -> str | None:
        """Return the adapter that a client's model name ends with, if any. The name may be another service's model.

        Raises:
            ModelNotFound: the model is not the loaded one, and the setting `strict_ids` is on.
            EngineLost: no worker has been ready yet.
        """
        config = self.settings.server
        name, adapter = self.adapters.split(model)
        if config.strict_ids and name not in (None, known := self.catalogue.ready.model, *config.model_aliases):
            raise ModelNotFound(f"there is no such model; the model is {known}", field="model")
        return adapter

    def provenance(self, voice_id: str) -> Provenance | None:
        """Return the provenance to write into an audio file; None if it is off. `voice_id`: the engine's id."""
        if not self.settings.server.provenance:
            return None
        return Provenance(f"realtime-tts {__version__}", self.catalogue.ready.model, voice_id)

    @property
    def voices_directory(self) -> Path | None:
        """Directory of the added voices; None if they are kept in memory only."""
        return None if self._store is None else self._store.directory

    @property
    def num_connections(self) -> int:
        """Number of open connections that were admitted, with or without a session."""
        return self._num_connections

    # ---- sessions ------------------------------------------------------------------------------------------------

    def _holders(self) -> list[SlotOwner]:
        """Return all that holds a slot: sessions, and speech over plain HTTP."""
        return [*self.sessions.values(), *self._speeches]

    @property
    def holdings(self) -> SlotCounts:
        """Slots that this gateway uses."""
        return self._slots.holdings(self._holders())

    @property
    def num_sessions(self) -> int:
        """Number of sessions of the whole host."""
        return len(self.sessions) + self.peers.others.sessions.total()

    @property
    def num_speeches(self) -> int:
        """Number of requests for speech over plain HTTP that are running."""
        return len(self._speeches)

    def identify(self, connection: HTTPConnection) -> Client:
        """Return the client of a request or a handshake.

        Raises:
            InvalidRequest, Unauthorized, Forbidden
        """
        address = connection.client.host if connection.client is not None else ""
        try:
            self.authenticator.check_origin(connection.headers)
            client = self.authenticator.authenticate(connection.headers, connection.query_params)
        except RealtimeTTSError as error:
            self.note_refusal(error, Client(address=address))
            raise
        return dataclasses.replace(client, address=address)

    @contextlib.contextmanager
    def admission(self, client: Client, may_resume: bool = True) -> Iterator[Slot]:
        """Hold a slot for a new connection. `may_resume`: it may be lent the slot of a lost session.

        Raises:
            Draining, EngineLost, Overloaded, TooManySessions, RateLimited
        """
        if self.state is not GatewayState.DRAINING or not self.sessions:  # a lost session may be resumed
            self.check_ready()
        self._request_rate.note(client.tenant, time.monotonic())
        with contextlib.ExitStack() as held:
            with self.peers.taking(lambda: self.holdings) as others:
                refusal = self._refusal_now(client)
                place = self._slots.take(client, self._holders(), self._max_sessions, refusal, may_resume, others)
                held.callback(self._slots.give_back, place)
            self._num_connections += 1
            self._client_came.set()
            held.callback(self._connection_ended)
            yield place

    def check_room(self, client: Client) -> None:
        """Refuse a request for speech before its body is read, if it would be refused now. The slot is taken later.

        Raises:
            Draining, EngineLost, Overloaded, TooManySessions, RateLimited
        """
        self.check_ready()
        try:
            held = self._slots.holdings(self._holders()) + self.peers.others
            refusal = self._refusal_now(client)
            if (refusal := self._slots.refusal(client, held, self._max_sessions, refusal)) is not None:
                raise refusal
        except RealtimeTTSError as error:
            self._request_rate.note(client.tenant, time.monotonic())  # others are counted at their admission
            self.note_refusal(error, client)
            raise

    def _refusal_now(self, client: Client) -> RealtimeTTSError | None:
        """Return the error that refuses this client a new session now, even if a slot is free."""
        return self._refusal(client.tenant) or self._quotas.refusal(client, time.monotonic())

    def _connection_ended(self) -> None:
        self._num_connections -= 1

    @contextlib.contextmanager
    def speech(self, client: Client, num_chars: int, holder: SlotOwner) -> Iterator[None]:
        """Hold a slot for speech over plain HTTP, which counts as a session with one context; charge its characters.

        Raises:
            Draining, EngineLost, Overloaded, TooManySessions, RateLimited
        """
        with self.admission(client, may_resume=False) as place:
            if (too_many := self._charge(client, num_chars)) is not None:
                raise too_many
            self.lateness.begin()
            self._speeches.add(holder)
            self.metrics.http_speeches.set(len(self._speeches))
            self._slots.give_back(place)
            try:
                yield
            finally:
                self._speeches.discard(holder)
                self.metrics.http_speeches.set(len(self._speeches))
                self._changed.set()

    def _charge(self, client: Client, num_chars: int) -> RealtimeTTSError | None:
        """Charge characters here and at the other gateways, or return the error that refuses them."""
        too_many = self._quotas.charge_text(client, num_chars, time.monotonic())
        if too_many is None and self._quotas.is_limited(client):
            self.peers.charge(Charge(client.tenant, client.token, client.max_chars_per_minute, num_chars))
        return too_many

    def _charge_message(self, client: Client, message: messages.ClientMessage, now: float) -> RealtimeTTSError | None:
        return self._charge(client, len(message.text)) if isinstance(message, messages.Text) else None

    def charge_added(self, client: Client, num_chars: int) -> None:
        """Charge the characters that lexicons have added to an accepted text."""
        if num_chars and self._quotas.is_limited(client):
            self._quotas.charge_anyway(client, num_chars, time.monotonic())
            self.peers.charge(Charge(client.tenant, client.token, client.max_chars_per_minute, num_chars))

    def _charged_elsewhere(self, charge: Charge) -> None:
        client = Client(charge.tenant, charge.token, max_chars_per_minute=charge.max_chars_per_minute)
        self._quotas.charge_anyway(client, charge.num_chars, time.monotonic())

    @property
    def _max_sessions(self) -> int:
        max_streams = max(1, self.catalogue.ready.max_streams) * self.engine.num_ready
        return self.settings.server.max_sessions or SESSIONS_PER_STREAM * max_streams

    def _refusal(self, tenant: str) -> RealtimeTTSError | None:
        """Return the error that refuses this key a new session now, if any, even if a slot is free."""
        if self.state is not GatewayState.RUNNING:
            return Draining("the server is shutting down")
        return refusal(self._load(), tenant, max_waiting=0)

    def context_refusal(self, tenant: str) -> RealtimeTTSError | None:
        """Return the error that refuses this key a new context now, if any; `max_queued` contexts may wait."""
        self._request_rate.note(tenant, time.monotonic())
        load = self._load()
        found = refusal(load, tenant, max_waiting=self.settings.server.max_queued or load.num_streams)
        if found is None:
            self.lateness.begin()
        return found

    def _load(self) -> SpeechLoad:
        speaking = Counter(self.peers.others.speaking)
        for holder in self._holders():
            speaking[holder.tenant] += holder.num_speaking
        is_late, asked = not self.lateness.may_begin, self._request_rate.counts(time.monotonic())
        return SpeechLoad(speaking, self.engine.num_streams, is_late, asked)

    def note_refusal(self, error: RealtimeTTSError, client: Client) -> None:
        """Count a refused handshake or request, and set the delay of its answer."""
        if isinstance(error, Overloaded | LimitExceeded | Unauthorized | Forbidden):
            error.hold_s = self._refusals.hold_s(client.tenant, client.address, time.monotonic())
        self.metrics.refused.labels(error.code).inc()
        if count := self._throttle.take(error.code, time.monotonic()):
            log_event(logger, logging.INFO, "handshake_refused", code=error.code, count=count)

    @contextlib.contextmanager
    def pending_socket(self, pending_socket: PendingSocket) -> Iterator[None]:
        """Register a socket that has no session yet, so that it is closed if the server shuts down meanwhile."""
        self._pending_sockets.add(pending_socket)
        try:
            yield
        finally:
            self._pending_sockets.discard(pending_socket)

    def open_session(self, place: Slot, habits: Habits) -> LiveSession:
        """Return a new session that is not attached to a socket yet.

        Raises:
            Draining: the server is shutting down.
            Overloaded: the slot was lent for a lost session, and the engine has no capacity for another one.
            TooManySessions: the slot was lent for a lost session of this token at another gateway.
        """
        is_new = not place.is_lent and self.state is GatewayState.RUNNING
        if not is_new and (refusal := self._refusal(place.client.tenant)) is not None:
            raise refusal
        client = place.client
        self._slots.give_back(place)
        lost = self._slots.to_give_up(client, self._holders(), self._max_sessions, self.peers.others)
        if lost is not None:
            lost.close(GOING_AWAY, "given_up")
        # The id must be unguessable: with it and the key a client can resume the session.
        session_id = session_name(self.peers.index, secrets.token_urlsafe(16))
        refuse = functools.partial(self.context_refusal, client.tenant)
        session, services = self._make_session(session_id, client, habits, refuse), self._services
        charge = functools.partial(self._charge_message, client)
        charge_added = functools.partial(self.charge_added, client)
        live = LiveSession(
            session, services, client.tenant, charge, self._forget, charge_added=charge_added, token=client.token
        )
        self.sessions[session.session_id] = live
        self.metrics.sessions_total.inc()
        self.metrics.sessions.set(len(self.sessions))
        ids = {"session": session.session_id, "key": client.tenant or None, "token": client.token or None}
        log_event(logger, logging.INFO, "session_opened", **ids)
        return live

    def _make_session(
        self, session_id: str, client: Client, habits: Habits, refuse: Callable[[], RealtimeTTSError | None]
    ) -> Session:
        defaults = self.catalogue.defaults
        permissive = habits.accepts_any_voice and not self.settings.server.strict_ids
        return Session(
            session_id,
            self._session_config(self.catalogue, habits),
            resolve=functools.partial(
                defaults.resolve, tenant=client.tenant, permissive=permissive, only_voices=client.voices
            ),
            make_planner=functools.partial(defaults.make_planner, tenant=client.tenant, fill_empty=habits.needs_audio),
            refuse=refuse,
            now=time.monotonic(),
        )

    @property
    def _services(self) -> Services:
        return Services(self.engine, self.voices, self.encoders, self.metrics)

    def idle_timeout_s(self, habits: Habits) -> float:
        """Return the time in seconds after which a socket without messages and without speech is closed."""
        return max(self.settings.server.idle_timeout_s, habits.min_idle_s)

    def resume_session(self, place: Slot, message: Resume, sink: MessageSink) -> LiveSession:
        """Attach a lost session to its client's new connection; the session keeps its own slot.

        Raises:
            SessionNotFound: the session is unknown or expired, or belongs to another key.
        """
        live = self.sessions.get(message.session_id)
        if live is None or live.tenant != place.client.tenant:
            raise SessionNotFound("there is no such session; it may have expired")
        live.resume(message, sink)
        self._slots.give_back(place)
        return live

    def _forget(self, live: LiveSession) -> None:
        self.sessions.pop(live.session.session_id, None)
        self.metrics.sessions.set(len(self.sessions))
        log_event(logger, logging.INFO, "session_closed", session=live.session.session_id)
        self._changed.set()

    def _make_catalogue(self, ready: frames.Ready) -> Catalogue:
        config = self.settings.server
        defaults = SpeechDefaults(
            ready,
            voices=self.voices.names,
            language=config.language,
            mode=None if config.mode == "auto" else config.mode,
            stall_flush_s=config.stall_flush_s or None,
            sentence_pause_ms=config.sentence_pause_ms,
            lexicons=self._lexicons,
            draw_seed=lambda: secrets.randbelow(2**31),
            voice_aliases=dict(config.voice_aliases),
            name_of=self.voices.name_of,
            adapters=self.adapters.names,
            max_steps=config.max_steps,
        )
        return Catalogue(ready, defaults, config.max_text_chars, config.voice_consent)

    def _session_config(self, catalogue: Catalogue, habits: Habits) -> SessionConfig:
        limits = self.settings.server
        return SessionConfig(
            model=catalogue.ready.model,
            max_contexts=limits.max_contexts,
            max_text_chars=limits.max_text_chars,
            max_message_bytes=limits.max_message_bytes,
            max_session_bytes=limits.max_session_bytes,
            max_consecutive_errors=limits.max_bad_messages if habits.forgives_mistakes else 1,
            refusals_are_final=habits.refusals_are_final,
            in_turn=habits.in_turn,
            max_lead_s=limits.max_lead_s,
            idle_timeout_s=self.idle_timeout_s(habits),
            resume_window_s=limits.resume_window_s if habits.resumes else 0.0,
            slow_consumer_s=limits.slow_consumer_timeout_s,
        )


def _directory(path: str) -> Path | None:
    return Path(path).expanduser() if path else None


def _nothing() -> None:
    """A probe's work in the encoders' thread."""
