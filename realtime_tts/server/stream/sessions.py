"""Live sessions of one gateway."""

from __future__ import annotations

import functools
import secrets
import time
from typing import TYPE_CHECKING

from realtime_tts.dialects.base import Habits
from realtime_tts.errors import Draining, SessionNotFound, TooManySessions
from realtime_tts.server.admission.client import Client
from realtime_tts.server.admission.peers import session_name
from realtime_tts.server.admission.slots import Grant, Slot
from realtime_tts.server.logs import log_event
from realtime_tts.server.stream.live_session import LiveSession
from realtime_tts.session.messages import Resume
from realtime_tts.session.session import Session
from realtime_tts.session.settings import SessionConfig

if TYPE_CHECKING:
    from realtime_tts.server.gateway import Gateway
    from realtime_tts.server.stream.websocket import Connection


class Sessions(dict[str, LiveSession]):
    """Sessions by their ids, connected or waiting for their client."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__()
        self._gateway, self._config = gateway, gateway.settings.server

    def close_pending(self) -> None:
        """Close the sockets without a session."""
        for slot in list(self._gateway.admission.slots.sockets):
            if slot.go_away is not None:
                slot.go_away()

    def open(self, slot: Slot, habits: Habits, connection: Connection) -> LiveSession:
        """Return a new session for a socket.

        Raises:
            Draining: the server is shutting down.
            Overloaded, TooManySessions: the socket was admitted without a slot, to resume a session.
        """
        client, admission = slot.client, self._gateway.admission
        refusal = admission.session_refusal(client.tenant)
        if isinstance(refusal, Draining):
            raise refusal
        if slot.grant is not Grant.FREE:
            raise refusal or TooManySessions("this connection was admitted to resume a session only")
        admission.slots.sockets.discard(slot)
        defaults = self._gateway.catalogue.defaults
        permissive = habits.accepts_any_voice and not self._config.voices.strict_ids
        session = Session(
            # The id must be unguessable: with it and the key a client can resume the session.
            session_name(self._gateway.peers.index, secrets.token_urlsafe(16)),
            self._session_config(habits),
            resolve=functools.partial(
                defaults.resolve, tenant=client.tenant, permissive=permissive, only_voices=client.voices
            ),
            make_planner=functools.partial(defaults.make_planner, tenant=client.tenant, fill_empty=habits.needs_audio),
            refuse=functools.partial(admission.context_refusal, client.tenant),
            charge=functools.partial(admission.charge, client),
            now=time.monotonic(),
        )
        live = self[session.session_id] = LiveSession(session, self._gateway, client, connection)
        admission.slots.owners.add(live)
        self._gateway.metrics.sessions_total.inc()
        self._gateway.metrics.sessions.set(len(self))
        ids = {"session": session.session_id, "key": client.tenant or None, "token": client.token or None}
        log_event("session_opened", **ids)
        return live

    def find(self, session_id: str, client: Client) -> LiveSession | None:
        """Return a session of the client's key; None if this gateway has none with this id."""
        live = self.get(session_id)
        return live if live is not None and live.client.tenant == client.tenant else None

    def resume(self, slot: Slot, message: Resume, connection: Connection) -> LiveSession:
        """Attach a lost session to its client's new connection; the session keeps its own slot.

        Raises:
            SessionNotFound: the session is unknown or expired, or belongs to another key.
        """
        if (live := self.find(message.session_id, slot.client)) is None:
            raise SessionNotFound("unknown session; it may have expired, or the address lacks ?resume=<session id>")
        live.resume(message, connection)
        self._gateway.admission.slots.sockets.discard(slot)
        return live

    def idle_timeout_s(self, habits: Habits) -> float:
        """Return the time in seconds after which a socket without messages and without speech is closed."""
        return max(self._config.timeouts.idle_timeout_s, habits.min_idle_s)

    def closed(self, live: LiveSession) -> None:
        """Forget a session that is closed."""
        self.pop(live.session.session_id, None)
        self._gateway.admission.slots.owners.discard(live)
        self._gateway.metrics.sessions.set(len(self))
        log_event("session_closed", session=live.session.session_id)

    def _session_config(self, habits: Habits) -> SessionConfig:
        limits = self._config.limits
        return SessionConfig(
            model=self._gateway.catalogue.ready.model,
            max_contexts=limits.max_contexts,
            max_text_chars=limits.max_text_chars,
            max_message_bytes=limits.max_message_bytes,
            max_session_bytes=limits.max_session_bytes,
            max_consecutive_errors=limits.max_bad_messages if habits.forgives_mistakes else 1,
            errors_end=habits.errors_end,
            in_turn=habits.in_turn,
            max_lead_s=self._config.speech.max_lead_s,
            idle_timeout_s=self.idle_timeout_s(habits),
            resume_window_s=self._config.timeouts.resume_window_s if habits.resumes else 0.0,
            slow_consumer_s=self._config.timeouts.slow_consumer_timeout_s,
        )
