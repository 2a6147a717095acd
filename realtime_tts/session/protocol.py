"""The session: one client's contexts, as a state machine without I/O.

Inputs are methods, with the time passed in. Outputs are drained: `messages_to_send` for the peer, `events` for the
engine's side. Whatever a peer does wrong becomes an error message or a close; what our own caller does wrong raises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum

from realtime_tts.audio.packetizer import Packet
from realtime_tts.errors import (
    ContextClosed,
    Draining,
    InvalidMessage,
    InvalidRequest,
    RealtimeTTSError,
    SessionNotFound,
    SlowConsumer,
    TextTooLong,
    TooManyContexts,
    TooManyErrors,
)
from realtime_tts.session.context import Context, ContextState, queue_overrun
from realtime_tts.session.contexts import ContextTable
from realtime_tts.session.events import (
    CancelContext,
    CloseContext,
    CloseSession,
    EndOfSegments,
    PlaybackChanged,
    PriorityChanged,
    SessionEvent,
    StartSpeech,
)
from realtime_tts.session.liveness import Liveness, is_due
from realtime_tts.session.messages import (
    AudioPacket,
    Cancel,
    CancelAcknowledged,
    ClientMessage,
    ContextDone,
    ContextMessage,
    ContextStarted,
    End,
    ErrorMessage,
    Flush,
    KeepAlive,
    Ping,
    Playback,
    Pong,
    Resume,
    ServerMessage,
    SessionMessage,
    SessionResumed,
    SessionStarted,
    StartSession,
    Text,
)
from realtime_tts.session.planning import Planner, Segment
from realtime_tts.session.reconnect import resume_context
from realtime_tts.session.resume import ResumeBuffer, message_bytes
from realtime_tts.session.settings import ContextSettings, SessionConfig, check_params, merge_params

MAX_WAITING_MESSAGES = 1000  # answers that a peer may leave unread
POLICY_VIOLATION = 1008
NORMAL_CLOSURE = 1000
GOING_AWAY = 1001


class SessionState(Enum):
    """CONNECTED ⇄ DISCONNECTED (by a lost connection and a resume); both → CLOSED, which is final."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    CLOSED = "closed"


class Session:
    """One client.

    Args:
        make_planner: a text planner for a new context; may raise `UnsupportedLanguage`.
        resolve_voice: a voice id for what the client asked for (None: nothing); raises `VoiceNotFound`.
        seed_source: a seed for a context whose client left it open.
        now: seconds of a monotonic clock, here and in every method.
    """

    def __init__(
        self,
        session_id: str,
        config: SessionConfig,
        *,
        make_planner: Callable[[ContextSettings], Planner],
        resolve_voice: Callable[[str | None], str],
        seed_source: Callable[[], int],
        now: float,
    ) -> None:
        self.session_id = session_id
        self.config = config
        self.state = SessionState.CONNECTED
        self._make_planner = make_planner
        self._resolve_voice = resolve_voice
        self._seed_source = seed_source
        self._now = now
        self._defaults = StartSession()
        self._announced = False
        self._is_draining = False
        self._num_bad = 0
        self._contexts = ContextTable()
        self._retained = ResumeBuffer(config.retain_s, config.retain_max_bytes)
        self._liveness = Liveness(config, now)
        self._events: list[SessionEvent] = []
        self._outbox: deque[SessionMessage | Context] = deque()  # a context stands for what it has ready

    # ---- from the peer -------------------------------------------------------------------------------------------

    def receive(self, message: ClientMessage, now: float) -> None:
        """Act on a message. Never raises for what a peer does wrong: it is told, and after too many, closed."""
        if self._advance(now) is not SessionState.CONNECTED:
            return
        self._liveness.active(self._now)
        try:
            self._dispatch(message)
        except RealtimeTTSError as error:
            self._refuse(error, getattr(message, "context_id", None))
        else:
            self._num_bad = 0

    def reject(self, error: RealtimeTTSError, now: float) -> None:
        """A frame that could not be parsed."""
        if self._advance(now) is SessionState.CONNECTED:
            self._liveness.active(self._now)
            self._refuse(error, None)

    def _dispatch(self, message: ClientMessage) -> None:
        if isinstance(message, Text):
            self._on_text(message)
        elif isinstance(message, Playback):
            self._on_playback(message)
        elif isinstance(message, Flush):
            context = self._require(message.context_id)
            self._speak(context, context.flush(message.flush_id, self._now))
        elif isinstance(message, End):
            self._on_end(message)
        elif isinstance(message, Cancel):
            self._on_cancel(message.context_id)
        elif isinstance(message, StartSession):
            self._on_start(message)
        elif isinstance(message, Ping):
            self._post(Pong(message.id))
        else:
            raise InvalidMessage("session.resume must be the first message of a connection", field="type")

    def _on_start(self, message: StartSession) -> None:
        if self._contexts.any_yet:
            raise InvalidMessage("session.start comes before the first context", field="type")
        check_params(message.params, self.config)
        self._resolve_voice(message.voice)
        self._defaults = message
        self._announce()

    def _announce(self) -> None:
        self._announced = True
        self._post(
            SessionStarted(
                session_id=self.session_id,
                model=self.config.model,
                voice=self._resolve_voice(self._defaults.voice),
                audio=self._defaults.audio or self.config.audio,
                params=merge_params(self._defaults.params, self.config.params),
                limits=self.config.limits,
            )
        )

    def _on_text(self, message: Text) -> None:
        context = self._contexts.open.get(message.context_id) or self._open(message)
        self._speak(context, context.push_text(message.text, self.config.max_text_chars, self._now))

    def _open(self, message: Text) -> Context:
        self._check_new(message)
        settings = self._settings(message)
        planner = self._make_planner(settings)
        if not self._announced:
            self._announce()
        started = ContextStarted(
            context_id=message.context_id,
            sequence=0,
            number=self._contexts.take_number(),
            voice=settings.voice,
            seed=settings.seed,
            audio=settings.audio,
        )
        context = Context(started, settings, planner)
        self._contexts.add(context)
        self._outbox.append(context)
        self._rerank()
        return context

    def _check_new(self, message: Text) -> None:
        if not 1 <= len(message.context_id) <= self.config.max_id_chars:
            raise InvalidMessage(f"a context_id has 1 to {self.config.max_id_chars} characters", field="context_id")
        if (state := self._contexts.ended_as(message.context_id)) is not None:
            raise ContextClosed(f"the context is {state}", field="context_id")
        if self._is_draining:
            raise Draining("the server is shutting down")
        if len(self._contexts.open) >= self.config.max_contexts:
            raise TooManyContexts(f"at most {self.config.max_contexts} contexts at a time", field="context_id")
        if len(message.text) > self.config.max_text_chars:
            raise TextTooLong(f"a context takes at most {self.config.max_text_chars} characters", field="text")

    def _settings(self, message: Text) -> ContextSettings:
        check_params(message.params, self.config)
        params = merge_params(merge_params(message.params, self._defaults.params), self.config.params)
        return ContextSettings(
            voice=self._resolve_voice(self._defaults.voice if message.voice is None else message.voice),
            audio=message.audio or self._defaults.audio or self.config.audio,
            seed=self._seed_source() if params.seed is None else params.seed,
            cfg=params.cfg,
            steps=params.steps,
            language=params.language,
        )

    def _on_end(self, message: End) -> None:
        context = self._require(message.context_id)
        if context.ended:
            return
        self._speak(context, context.end(self._now))
        if context.num_segments:
            self._events.append(EndOfSegments(context.id))

    def _on_cancel(self, context_id: str | None) -> None:
        targets = list(self._contexts.open.values())
        if context_id is not None:
            targets = [context for context in targets if context.id == context_id]
        ended = [c for c in self._contexts.finished.values() if context_id in (None, c.id)]
        for context in targets:
            self._cancel(context)
        for context in ended:
            context.outflow.drop()
            if context_id is not None or context.state is ContextState.DONE:
                self._post(CancelAcknowledged(context.id, context.state.value, *context.freeze(self._now)))
        if context_id is None:
            self._post(CancelAcknowledged(None, "all"))
        elif not targets and not ended:
            self._post(CancelAcknowledged(context_id, self._contexts.ended_as(context_id) or "unknown"))

    def _on_playback(self, message: Playback) -> None:
        context = self._contexts.get(message.context_id)
        if context is None:
            return  # a late one, of a context that is long over
        clock = context.outflow.clock
        clock.acknowledge(message.played_ms, self._now)
        played_samples = clock.position_ms(self._now) * context.settings.audio.sample_rate / 1000
        self._retained.acknowledge(context.id, played_samples)
        self._report_playback(context)

    def _require(self, context_id: str) -> Context:
        if (context := self._contexts.open.get(context_id)) is not None:
            return context
        if (state := self._contexts.ended_as(context_id)) is not None:
            raise ContextClosed(f"the context is {state}", field="context_id")
        raise InvalidRequest("no such context", field="context_id")

    def _refuse(self, error: RealtimeTTSError, context_id: str | None) -> None:
        self._post(ErrorMessage(error.code, error.message, error.retryable, context_id, error.field))
        if not isinstance(error, InvalidRequest) or isinstance(error, ContextClosed):
            return  # not a mistake: a limit, or a race that a correct client can lose
        self._num_bad += 1
        if self._num_bad >= self.config.max_consecutive_errors:
            too_many = TooManyErrors(f"{self._num_bad} bad messages in a row")
            self._post(ErrorMessage(too_many.code, too_many.message, too_many.retryable))
            self._close(POLICY_VIOLATION, too_many.code, too_many)

    # ---- from the engine's side ----------------------------------------------------------------------------------

    def audio(self, context_id: str, packet: Packet, now: float) -> None:
        """A packet of a context; packets follow on each other. Ignored once the context is over."""
        self._advance(now)
        context = self._contexts.open.get(context_id)
        if context is None:
            return
        context.outflow.add_packet(packet)
        if (error := queue_overrun(context, self.config.max_queued_s)) is not None:
            self._fail(context, error)

    def segment_progress(self, context_id: str, segment_index: int, audio_ms: float, done: bool, now: float) -> None:
        """The segment has `audio_ms` of audio so far, all of it delivered through `audio` before."""
        self._advance(now)
        if (context := self._contexts.open.get(context_id)) is not None:
            context.progress(segment_index, audio_ms, done)

    def audio_finished(self, context_id: str, now: float) -> None:
        """Every segment was spoken and every packet delivered.

        Raises:
            ValueError: the context has not ended, or was finished before.
        """
        self._advance(now)
        context = self._contexts.open.get(context_id)
        if context is None:
            return
        if not context.ended or context.audio_complete:
            raise ValueError("audio_finished comes once, after EndOfSegments")
        context.complete_audio()
        self._events.append(CloseContext(context_id))

    def failed(self, context_id: str, error: RealtimeTTSError, now: float) -> None:
        """The context cannot be spoken. What waits of it is dropped."""
        self._advance(now)
        if (context := self._contexts.open.get(context_id)) is not None:
            self._fail(context, error)

    # ---- time ----------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._advance(now) is SessionState.CLOSED:
            return
        if is_due(self._liveness.expires_at, self._now):
            self._close(GOING_AWAY, "resume_window_over")
        elif is_due(self._liveness.too_slow_at, self._now):
            self._close_slow()
        elif is_due(self._liveness.idle_at, self._now):
            self._close(NORMAL_CLOSURE, "idle_timeout")
        for context in list(self._contexts.open.values()):
            self._speak(context, context.tick(self._now))
            if context.outflow.clock.poll(self._now):
                self._report_playback(context)
        if self._contexts.open and is_due(self._liveness.keepalive_at, self._now):
            self._liveness.sent(self._now)
            self._post(KeepAlive(tuple(self._contexts.open)))

    def next_deadline(self) -> float | None:
        """When to `tick` and drain again if nothing else happens; None: not before something does."""
        if self.state is SessionState.CLOSED:
            return None
        flowing = self._is_flowing
        due = [self._liveness.expires_at, self._liveness.too_slow_at, self._liveness.idle_at]
        for context in self._contexts.open.values():
            due += [context.text_deadline(), context.outflow.clock.pause_due_at()]
        if self._contexts.open:
            due.append(self._liveness.keepalive_at)
        if flowing:
            lead_ms = self.config.max_lead_s * 1000
            due += [context.outflow.next_send_at(self._now, lead_ms) for context in self._contexts.sending()]
            due += [self._now] if self._outbox else []
        return min((at for at in due if at is not None), default=None)

    # ---- output --------------------------------------------------------------------------------------------------

    def events(self) -> list[SessionEvent]:
        """What the I/O layer is to do, in order. Drain it after `messages_to_send`, which may add to it."""
        events, self._events = self._events, []
        return events

    def messages_to_send(self, now: float, max_bytes: int | None = None) -> list[ServerMessage]:
        """Messages that may leave now; they count as sent. Stops soon after `max_bytes` (of memory, roughly)."""
        state = self._advance(now)
        if state is SessionState.DISCONNECTED or self._liveness.blocked_at is not None:
            return []
        budget = float("inf") if max_bytes is None else max_bytes
        sent: list[ServerMessage] = []
        while self._outbox and budget > 0:
            item = self._outbox.popleft()
            if isinstance(item, Context):
                budget -= self._pull(item, sent, budget, only_ready=True)
            else:
                sent.append(item)
                budget -= 200
        for context in self._contexts.sending() if state is SessionState.CONNECTED else []:
            budget -= self._pull(context, sent, budget)
        if sent:
            self._liveness.sent(self._now)
        self._close_if_drained()
        return sent

    def _pull(self, context: Context, sent: list[ServerMessage], budget: float, only_ready: bool = False) -> float:
        """Take what the context may send; returns its bytes."""
        lead_ms = self.config.max_lead_s * 1000
        num_bytes = 0
        while num_bytes < budget and (context.outflow.has_ready or not only_ready):
            message = context.outflow.pull(self._now, lead_ms)
            if message is None:
                break
            sent.append(message)
            num_bytes += message_bytes(message)
            self._sent(context, message)
        return num_bytes

    def _sent(self, context: Context, message: ContextMessage) -> None:
        if self.config.resume_window_s > 0:
            self._retained.add(message, self._now)
        if isinstance(message, AudioPacket):
            self._liveness.active(self._now)
            if context.state is ContextState.QUEUED:
                context.state = ContextState.SPEAKING
            if context.outflow.playback_restarted:
                context.outflow.playback_restarted = False
                self._report_playback(context)
        elif isinstance(message, ContextDone) and not context.state.is_final:
            context.finish()
            self._retire(context)

    @property
    def num_open_contexts(self) -> int:
        return len(self._contexts.open)

    @property
    def queued_bytes(self) -> int:
        """Audio that waits to be sent, and what is kept for a resume."""
        return self._retained.num_bytes + sum(c.outflow.queued_bytes for c in self._contexts.sending())

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
        if self._advance(now) is SessionState.CONNECTED and self._liveness.blocked_at is not None:
            self._liveness.unblocked()
            self._report_all()

    def connection_lost(self, now: float, clean: bool = False) -> None:
        """The socket is gone. After a `clean` close nobody comes back; else contexts wait for `resume`, parked."""
        if self._advance(now) is not SessionState.CONNECTED:
            return
        if clean or self.config.resume_window_s <= 0:
            self._close(NORMAL_CLOSURE, "connection_closed")
            return
        self.state = SessionState.DISCONNECTED
        self._outbox.clear()
        self._liveness.lost(self._now)
        self._report_all()

    def resume(self, message: Resume, now: float) -> None:
        """A new connection goes on with this session. A connection that still seems to live is taken over.

        Raises:
            SessionNotFound: the session is over or cannot be resumed.
        """
        self.connection_lost(now)
        if self._advance(now) is SessionState.CLOSED or is_due(self._liveness.expires_at, self._now):
            raise SessionNotFound("nothing to resume", field="session_id")
        self.state = SessionState.CONNECTED
        self._liveness.connected(self._now)
        self._num_bad = 0
        for context in [c for c in self._contexts.open.values() if c.id not in message.contexts]:
            self._cancel(context)
        found = [
            resume_context(context_id, last, self._contexts, self._retained, self._now)
            for context_id, last in message.contexts.items()
        ]
        self._outbox.appendleft(SessionResumed(self.session_id, tuple(found)))
        for context in [c for c in self._contexts.open.values() if c.state.is_final]:
            self._end_context(context)
        self._report_all()

    def drain(self, now: float) -> None:
        """The server shuts down: no new contexts; the session closes when the open ones are over."""
        self._advance(now)
        self._is_draining = True
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

    def _post(self, message: SessionMessage) -> None:
        self._outbox.append(message)
        if len(self._outbox) > MAX_WAITING_MESSAGES:
            self._close_slow()

    def _speak(self, context: Context, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._events.append(StartSpeech(context.id, context.number, segment, context.settings, context.priority))

    def _cancel(self, context: Context) -> None:
        context.cancel(self._now)
        self._end_context(context)

    def _fail(self, context: Context, error: RealtimeTTSError) -> None:
        context.fail(error)
        self._end_context(context)

    def _end_context(self, context: Context) -> None:
        """A context was cancelled or has failed: tell the client and free what the engine holds."""
        self._outbox.append(context)
        if context.num_segments and not context.audio_complete:
            self._events.append(CancelContext(context.id))
        self._retire(context)

    def _retire(self, context: Context) -> None:
        for dropped in self._contexts.retire(context):
            self._retained.forget(dropped)
        self._rerank()

    def _rerank(self) -> None:
        for context in self._contexts.rerank():
            if context.num_segments and not context.audio_complete:
                self._events.append(PriorityChanged(context.id, context.priority))

    def _report_all(self) -> None:
        for context in self._contexts.open.values():
            self._report_playback(context)

    def _report_playback(self, context: Context) -> None:
        """The engine stays so far ahead of playback; while nothing can be sent, it is to stop as if paused."""
        if context.num_segments and not context.audio_complete and not context.state.is_final:
            clock = context.outflow.clock
            paused = clock.paused or not self._is_flowing
            self._events.append(PlaybackChanged(context.id, clock.position_ms(self._now), paused))

    def _close_if_drained(self) -> None:
        if self._is_draining and not self._contexts.open and not self._outbox:
            self._close(GOING_AWAY, "draining")

    def _close_slow(self) -> None:
        error = SlowConsumer("messages are not read")
        self._close(POLICY_VIOLATION, error.code, error)

    def _close(self, code: int, reason: str, error: RealtimeTTSError | None = None) -> None:
        if self.state is SessionState.CLOSED:
            return
        self.state = SessionState.CLOSED
        for context in list(self._contexts.open.values()):
            if error is None:
                self._cancel(context)
            else:
                self._fail(context, error)
        self._retained.clear()
        self._events.append(CloseSession(code, reason))
