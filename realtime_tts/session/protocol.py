"""The session: one client's contexts, as a state machine without I/O.

Inputs are methods, with the time passed in. Outputs are drained: `messages_to_send` for the peer, `events` for the
engine's side. Whatever a peer does wrong becomes an error message or a close; what our own caller does wrong raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum

from realtime_tts.audio.packetizer import Packet
from realtime_tts.errors import RealtimeTTSError, SessionNotFound, SlowConsumer, TooManyErrors
from realtime_tts.session.context import Context, ContextState, queue_overrun
from realtime_tts.session.contexts import ContextTable
from realtime_tts.session.events import CloseSession, SessionEvent
from realtime_tts.session.inbound import Inbound
from realtime_tts.session.liveness import Liveness, is_due
from realtime_tts.session.messages import (
    AudioPacket,
    ClientMessage,
    ContextDone,
    ErrorMessage,
    KeepAlive,
    Resume,
    ServerMessage,
    SessionResumed,
)
from realtime_tts.session.opening import ContextFactory
from realtime_tts.session.planning import Planner
from realtime_tts.session.reconnect import resume_contexts
from realtime_tts.session.sender import Sender
from realtime_tts.session.settings import Choices, ContextSettings, SessionConfig
from realtime_tts.session.turns import Turns

NORMAL_CLOSURE = 1000
GOING_AWAY = 1001
POLICY_VIOLATION = 1008


class SessionState(Enum):
    """CONNECTED ⇄ DISCONNECTED (by a lost connection and a resume); both → CLOSED, which is final."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    CLOSED = "closed"


class Session:
    """One client. Every `now` is in seconds of one monotonic clock; the other arguments are those of `ContextFactory`.

    After any input, drain `messages_to_send`, then `events`, then arrange for `tick` at `next_deadline`.
    """

    def __init__(
        self,
        session_id: str,
        config: SessionConfig,
        *,
        resolve: Callable[[Choices, Choices], ContextSettings],
        make_planner: Callable[[ContextSettings], Planner],
        now: float,
    ) -> None:
        self.session_id = session_id
        self.config = config
        self.state = SessionState.CONNECTED
        self._now = now
        self._liveness = Liveness(config, now)
        self._contexts = ContextTable()
        self._sender = Sender(config, self._contexts)
        self._turns = Turns(self._contexts, self._sender)
        factory = ContextFactory(session_id, config, resolve, make_planner)
        self._inbound = Inbound(config, factory, self._contexts, self._turns, self._sender)

    # ---- from the peer -------------------------------------------------------------------------------------------

    def receive(self, message: ClientMessage, now: float) -> None:
        """Act on a message. Never raises for what a peer does wrong: it is told, and after too much of it, closed."""
        if self._advance(now) is not SessionState.CONNECTED:
            return
        self._liveness.active(self._now)
        try:
            self._inbound.act(message, self._now, is_flowing=self._is_flowing)
        except RealtimeTTSError as error:
            self._refuse(error, getattr(message, "context_id", None))
        if self._sender.is_overfull:
            self._close_slow()

    def reject(self, error: RealtimeTTSError, now: float) -> None:
        """A frame that could not be parsed."""
        if self._advance(now) is SessionState.CONNECTED:
            self._liveness.active(self._now)
            self._refuse(error, None)

    def _refuse(self, error: RealtimeTTSError, context_id: str | None) -> None:
        self._sender.post(ErrorMessage(error.code, error.message, error.retryable, context_id, error.field))
        if self._inbound.count(error):
            too_many = TooManyErrors(f"{self._inbound.num_bad} bad messages in a row")
            self._sender.post(ErrorMessage(too_many.code, too_many.message, too_many.retryable))
            self._close(POLICY_VIOLATION, too_many.code, too_many)

    # ---- from the engine's side; ignored once the context is over ------------------------------------------------

    def audio(self, context_id: str, packet: Packet, now: float) -> None:
        """The next packet of a context.

        Raises:
            ValueError: it does not follow on the last one.
        """
        if (context := self._live(context_id, now)) is not None:
            context.outflow.add_packet(packet)
            if (error := queue_overrun(context, self.config.max_queued_s)) is not None:
                self._turns.fail(context, error)

    def segment_progress(self, context_id: str, segment_index: int, audio_ms: float, done: bool, now: float) -> None:
        """The segment has `audio_ms` of audio so far, all of it delivered through `audio` before.

        Raises:
            ValueError: there is no such segment.
        """
        if (context := self._live(context_id, now)) is not None:
            context.progress(segment_index, audio_ms, done)

    def audio_finished(self, context_id: str, now: float) -> None:
        """Every segment was spoken and every packet delivered.

        Raises:
            ValueError: the context's text has not ended, or this was said before.
        """
        if (context := self._live(context_id, now)) is not None:
            if not context.ended or context.audio_complete:
                raise ValueError("audio_finished comes once, after EndOfSegments")
            self._turns.complete_audio(context)

    def failed(self, context_id: str, error: RealtimeTTSError, now: float) -> None:
        """The context cannot be spoken. What waits of it is dropped."""
        if (context := self._live(context_id, now)) is not None:
            self._turns.fail(context, error)

    # ---- time ----------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due."""
        state = self._advance(now)
        if is_due(self._liveness.expires_at, self._now):
            self._close(GOING_AWAY, "resume_window_over")
        elif is_due(self._liveness.too_slow_at, self._now):
            self._close_slow()
        elif state is SessionState.CONNECTED and is_due(self._liveness.idle_at, self._now):
            self._close(NORMAL_CLOSURE, "idle_timeout")
        for context in list(self._contexts.open.values()):
            self._turns.speak(context, context.tick(self._now))
            if context.outflow.clock.poll(self._now):
                self._report_playback(context)
        if self._contexts.open and is_due(self._liveness.keepalive_at, self._now):
            self._liveness.sent(self._now)
            self._sender.post(KeepAlive(tuple(self._contexts.open)))

    def next_deadline(self) -> float | None:
        """When to `tick` and drain again if nothing else happens; None: not before something does."""
        if self.state is SessionState.CLOSED:
            return None
        due = [self._liveness.expires_at, self._liveness.too_slow_at, self._liveness.idle_at]
        for context in self._contexts.open.values():
            due += [context.text_deadline(), context.outflow.clock.pause_due_at()]
        if self._contexts.open:
            due.append(self._liveness.keepalive_at)
        if self._is_flowing:
            due.append(self._sender.next_send_at(self._now))
        return min((at for at in due if at is not None), default=None)

    # ---- output --------------------------------------------------------------------------------------------------

    def messages_to_send(self, now: float, max_bytes: int | None = None) -> list[ServerMessage]:
        """Messages that may leave now; they count as sent. Stops soon after `max_bytes` (of memory, roughly)."""
        state = self._advance(now)
        if state is SessionState.DISCONNECTED or self._liveness.blocked_at is not None:
            return []
        sent: list[ServerMessage] = []
        limit = math.inf if max_bytes is None else max_bytes
        for message, context in self._sender.take(self._now, limit, with_speech=state is SessionState.CONNECTED):
            sent.append(message)
            if context is not None:
                self._sent(context, message)
        if sent:
            self._liveness.sent(self._now)
        self._close_if_drained()
        return sent

    def events(self) -> list[SessionEvent]:
        """What the I/O layer is to do, in order. Drain it after `messages_to_send`, which may add to it."""
        return self._turns.drain_events()

    def _sent(self, context: Context, message: ServerMessage) -> None:
        if isinstance(message, AudioPacket):
            self._liveness.active(self._now)
            context.begin_speaking()
            if context.outflow.take_restart():
                self._report_playback(context)
        elif isinstance(message, ContextDone) and context.state is not ContextState.DONE:
            self._turns.finish(context)

    @property
    def num_open_contexts(self) -> int:
        return len(self._contexts.open)

    @property
    def queued_bytes(self) -> int:
        """Audio that waits to be sent, and what is kept for a resume."""
        return self._sender.queued_bytes

    def queued_ms(self, context_id: str) -> float:
        """Audio of one context that waits to be sent."""
        context = self._contexts.open.get(context_id)
        return context.outflow.queued_ms if context is not None else 0.0

    # ---- the connection ------------------------------------------------------------------------------------------

    def pause_writing(self, now: float) -> None:
        """The socket takes no more bytes for now: nothing is sent, and the engine parks."""
        if self._advance(now) is SessionState.CONNECTED and self._liveness.blocked_at is None:
            self._liveness.blocked(self._now)
            self._report_all()

    def resume_writing(self, now: float) -> None:
        """The socket takes bytes again."""
        if self._advance(now) is SessionState.CONNECTED and self._liveness.blocked_at is not None:
            self._liveness.unblocked(self._now)
            self._report_all()

    def connection_lost(self, now: float, clean: bool = False) -> None:
        """The socket is gone. After a `clean` close nobody comes back; else contexts wait for `resume`, parked."""
        if self._advance(now) is not SessionState.CONNECTED:
            return
        if clean or self.config.resume_window_s <= 0:
            self._close(NORMAL_CLOSURE, "connection_closed")
            return
        self.state = SessionState.DISCONNECTED
        self._sender.lose_connection()
        self._liveness.lost(self._now)
        self._report_all()

    def resume(self, message: Resume, now: float) -> None:
        """A new connection goes on with this session. A connection that still seems to live is taken over.

        Raises:
            SessionNotFound: the session is over or cannot be resumed.
        """
        self.connection_lost(now)
        if self.state is SessionState.CLOSED or is_due(self._liveness.expires_at, self._now):
            raise SessionNotFound("nothing to resume", field="session_id")
        self.state = SessionState.CONNECTED
        self._liveness.connected(self._now)
        self._inbound.num_bad = 0
        found = resume_contexts(message, self._contexts, self._turns, self._sender, self._now)
        self._sender.reconnect(SessionResumed(self.session_id, found))
        self._report_all()

    def drain(self, now: float) -> None:
        """The server shuts down: no new contexts; the session closes when the open ones are over."""
        self._advance(now)
        self._inbound.is_draining = True
        self._close_if_drained()

    def close(self, now: float, code: int, reason: str) -> None:
        """End the session and all of its contexts. Does nothing if it is over."""
        self._advance(now)
        self._close(code, reason)

    # ---- inside --------------------------------------------------------------------------------------------------

    @property
    def _is_flowing(self) -> bool:
        return self.state is SessionState.CONNECTED and self._liveness.blocked_at is None

    def _advance(self, now: float) -> SessionState:
        self._now = max(self._now, now)
        return self.state

    def _live(self, context_id: str, now: float) -> Context | None:
        self._advance(now)
        return self._contexts.open.get(context_id)

    def _report_playback(self, context: Context) -> None:
        self._turns.report_playback(context, self._now, is_flowing=self._is_flowing)

    def _report_all(self) -> None:
        for context in self._contexts.open.values():
            self._report_playback(context)

    def _close_if_drained(self) -> None:
        if self._inbound.is_draining and not self._contexts.open and not self._sender.has_waiting:
            self._close(GOING_AWAY, "draining")

    def _close_slow(self) -> None:
        error = SlowConsumer("messages are not read")
        self._close(POLICY_VIOLATION, error.code, error)

    def _close(self, code: int, reason: str, error: RealtimeTTSError | None = None) -> None:
        """`error`: contexts fail with it; without one they are cancelled."""
        if self.state is SessionState.CLOSED:
            return
        self.state = SessionState.CLOSED
        for context in list(self._contexts.open.values()):
            if error is None:
                self._turns.cancel(context, self._now)
            else:
                self._turns.fail(context, error)
        self._sender.retain_no_more()
        self._turns.post(CloseSession(code, reason))
