"""State machine of one client's session and its contexts, without I/O.

Inputs are methods, with the time passed in. Outputs are drained: `messages_to_send` for the client, `events` for the
engine. Errors of the client become an error message or a close; errors of the calling code raise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import assert_never

from realtime_tts.audio.packets import Packets
from realtime_tts.errors import (
    ContextClosed,
    InternalError,
    InvalidMessage,
    InvalidRequest,
    RealtimeTTSError,
    ResumeGap,
    TooManyContexts,
)
from realtime_tts.session import messages
from realtime_tts.session.connection import (
    CLIENT_LEFT,
    CONNECTION_CLOSED,
    DRAINING,
    INTERNAL_ERROR,
    Close,
    ConnectionState,
    SessionState,
    close_for,
    close_slow,
)
from realtime_tts.session.context import Context, ContextState, ContextTable, check_length
from realtime_tts.session.context_text import Planner
from realtime_tts.session.memory import (
    ITEM_BYTES,
    OBJECT_BYTES,
    RETAINED_BYTES,
    MemoryLimit,
    message_bytes,
    packets_bytes,
)
from realtime_tts.session.sender import SenderCrash, SessionSender
from realtime_tts.session.settings import Choices, ContextSettings, SessionConfig

AHEAD_MS = 1000.0  # lead from which a delay of some 10 ms is harmless
PLAN_CHARS = 32  # characters planned before other sessions get their turn: one stretch
# Memory that a message may add, relative to its own: its answer, and what a planner keeps of its text.
_GROWTH = 10


class Session:
    """Session of one client. Every `now` is in seconds of one monotonic clock.

    After any input, drain `messages_to_send`, then `events`, then arrange for `tick` at `next_deadline`.

    Args:
        resolve: returns a context's settings from the session's defaults and the message's overrides; raises a typed
            error for an invalid choice.
        make_planner: makes the text planner of a new context.
        refuse: returns the error with which a new context is refused now, or None.
    """

    def __init__(
        self,
        session_id: str,
        config: SessionConfig,
        *,
        resolve: Callable[[Choices, Choices], ContextSettings],
        make_planner: Callable[[ContextSettings], Planner],
        refuse: Callable[[], RealtimeTTSError | None] = lambda: None,
        now: float,
    ) -> None:
        self.session_id = session_id
        self.config = config
        self._resolve = resolve
        self._make_planner = make_planner
        self._refuse_new = refuse
        self._defaults = Choices()
        self._announced = False  # `SessionStarted` was posted
        self._connection = ConnectionState(config, now)
        self._memory = MemoryLimit(config.max_session_bytes)
        self._contexts = ContextTable()
        self._sender = SessionSender(config)
        self._events: list[messages.SessionEvent] = []

    @property
    def state(self) -> SessionState:
        return self._connection.state

    # ---- from the peer -------------------------------------------------------------------------------------------

    def receive(self, message: messages.ClientMessage, now: float) -> None:
        """Act on a message. Never raises for a client's error: the client gets an error message, and a close after too
        many."""
        if self._connection.advance(now) is not SessionState.CONNECTED:
            return
        self._connection.note_received()
        self._memory.add(_GROWTH * message_bytes(message))
        try:
            self._act(message)
            self._connection.note_success()
        except RealtimeTTSError as error:
            self._refuse(error, self._named(message))
        except Exception as error:
            self._crash(error, self._named(message))
        self._relieve()

    def reject(self, error: RealtimeTTSError, now: float, message: messages.ClientMessage | None = None) -> None:
        """Refuse a frame that could not be parsed, or a message that has to wait."""
        if self._connection.advance(now) is SessionState.CONNECTED:
            self._connection.note_received()
            self._memory.add_unknown()
            self._refuse(error, self._named(error if message is None else message))
            self._relieve()

    def _named(self, message: messages.ClientMessage | RealtimeTTSError) -> str | None:
        """Return the context id of a message or an error, unless it is empty or too long."""
        context_id = getattr(message, "context_id", None)
        return context_id if context_id and len(context_id) <= self.config.max_id_chars else None

    def _crash(self, error: Exception, context_id: str | None) -> None:
        """Report an unexpected exception. It fails the context concerned, or the message, and nothing else."""
        self._events.append(messages.Crashed(error))
        failure = InternalError("unexpected error in the server")
        if context_id is not None and (context := self._contexts.open.get(context_id)) is not None:
            self._fail(context, failure)
        else:
            self._refuse(failure, context_id)

    def _refuse(self, error: RealtimeTTSError, context_id: str | None) -> None:
        if not self._is_failed_by(error, context_id):
            self._post_error(error, context_id)
        if (close := self._connection.note_error(error)) is not None:
            if close.error is not None and close.error is not error:
                self._post_error(close.error)
            self._close(close)

    def _post_error(self, error: RealtimeTTSError, context_id: str | None = None) -> None:
        fields = (error.field, error.retry_after_s)
        self._sender.post(messages.ErrorMessage(error.code, error.message, error.retryable, context_id, *fields))

    def _is_failed_by(self, error: RealtimeTTSError, context_id: str | None) -> bool:
        """Fail the context of the message or mark it as refused, if refusals are final. Return True if it failed."""
        if not self.config.refusals_are_final or context_id is None or isinstance(error, ContextClosed):
            return False
        if (context := self._contexts.open.get(context_id)) is not None:
            self._fail(context, error)
        elif self._contexts.ended_as(context_id) is None:
            self._contexts.refuse(context_id)
        return context is not None

    def _relieve(self) -> None:
        """Keep within the memory limit of one client: drop what may be dropped, and close the session if that is not
        enough."""
        if not self._memory.is_due:
            return
        limit, retained = self._memory.max_bytes, self._sender.retained
        if (excess := self.memory_bytes - limit) > 0:
            retained.shrink(max(0, retained.num_bytes - excess - limit // 8))  # some more, for the next messages
            if self.memory_bytes > limit:
                for dropped in self._contexts.drop_finished(0):
                    retained.forget(dropped)
            if self.memory_bytes > limit:
                self._close(close_slow())
        self._memory.measured(self.memory_bytes)

    def _act(self, message: messages.ClientMessage) -> None:  # noqa: C901 (one branch for each message)
        """Execute the message.

        Raises:
            RealtimeTTSError: the message is refused and has changed nothing.
        """
        self._check_ids(message)
        match message:
            case messages.Text():
                self._on_text(message)
            case messages.PlaybackReport():
                self._on_playback(message)
            case messages.Commit():
                self._on_commit(message)
            case messages.Flush():
                context = self._require(message.context_id)
                context.flush(message.flush_id)
                self._plan(context, PLAN_CHARS)
            case messages.End():
                self._on_end(message)
            case messages.CancelRequest():
                self._on_cancel(message.context_id)
            case messages.Hold():
                self._on_hold(message)
            case messages.Release():
                self._on_release(message)
            case messages.StartSession():
                self._on_start(message)
            case messages.Ping():
                self._sender.post(messages.Pong(message.id))
            case messages.Leave():
                self._on_leave(message)
            case messages.Resume():
                raise InvalidMessage("session.resume must be the first message of a connection", field="type")
            case _:
                assert_never(message)

    def _check_ids(self, message: messages.ClientMessage) -> None:
        """Check the length of every id in the message: ids are kept and sent back."""
        for name in ("context_id", "flush_id", "id"):
            value = getattr(message, name, None)
            if value is not None and len(value) > self.config.max_id_chars:
                raise InvalidMessage(
                    f"{name} may have at most {self.config.max_id_chars} characters, got {len(value)}", field=name
                )
        if getattr(message, "context_id", None) == "":
            raise InvalidMessage("context_id is empty", field="context_id")

    def _on_start(self, message: messages.StartSession) -> None:
        if self._contexts.any_yet:
            raise InvalidMessage("session.start must come before the first context", field="type")
        defaults = Choices(message.voice, message.audio, message.params)
        settled = self._resolve(defaults, Choices())
        self._defaults = defaults
        self._announce(settled)

    def _announce(self, settled: ContextSettings) -> None:
        """Report the session's effective defaults. A seed that the client left open differs from context to context."""
        self._announced = True
        params = settled.params.copy()
        if "seed" not in self._defaults.params:
            del params["seed"]
        limits = self.config.limits
        started = messages.SessionStarted(
            self.session_id, self.config.model, settled.voice, settled.audio, params, limits
        )
        self._sender.post(started)

    def _on_text(self, message: messages.Text) -> None:
        context = self._contexts.open.get(message.context_id) or self._open(message)
        context.push_text(message.text, self._connection.now)
        self._plan(context, PLAN_CHARS)

    def charged_chars(self, message: messages.ClientMessage) -> int:
        """Return the number of characters that a message adds to what is spoken: none for the text of a draft, which
        is charged with its commit."""
        if not isinstance(message, messages.Text | messages.Commit):
            return 0
        context = self._contexts.open.get(message.context_id)
        is_draft = context is not None and context.draft_at is not None
        if isinstance(message, messages.Text):
            return 0 if is_draft or (context is None and message.draft) else len(message.text)
        if context is None or not is_draft:
            return 0
        return context.text.num_chars if message.text is None else len(message.text)

    def _on_commit(self, message: messages.Commit) -> None:
        context = self._require(message.context_id)
        if context.draft_at is None:
            raise InvalidRequest("the context is not a draft", field="context_id")
        if (refusal := self._refuse_new()) is not None:
            self._fail(context, refusal)
            return
        context.commit(message.text, self._make_planner(context.settings), self._connection.now)
        self._contexts.rank(self.config.in_turn)
        self._plan(context, PLAN_CHARS)

    def _open(self, message: messages.Text) -> Context:
        """Return a new context for its opening message, whose text is not added yet."""
        self._check_unused(message.context_id)
        self._connection.check_new_context()
        check_length(len(message.text), self.config.max_text_chars)
        settings = self._resolve(self._defaults, Choices(message.voice, message.audio, message.params))
        planner = self._make_planner(settings)
        if (refusal := self._find_no_room()) is not None:
            self._contexts.refuse(message.context_id)
            self._connection.note_context(is_refused=True)
            raise refusal
        self._connection.note_context(is_refused=False)
        if not self._announced:
            self._announce(self._resolve(self._defaults, Choices()))
        started = messages.ContextStarted(
            context_id=message.context_id,
            sequence=0,
            number=self._contexts.take_number(),
            voice=settings.voice,
            seed=settings.params["seed"],
            audio=settings.audio,
        )
        context = Context(started, settings, planner, self._events, self.config.max_text_chars)
        context.draft_at = self._connection.now if message.draft else None
        self._contexts.add(context)
        self._sender.post(context.sender)
        self._contexts.rank(self.config.in_turn)
        self._memory.add_unknown()
        return context

    def _find_no_room(self) -> RealtimeTTSError | None:
        """Return the error for which no context can be opened now, whatever its settings, or None. The rest of a
        refused text must not open the context later, in mid-sentence."""
        if len(self._contexts.open) >= self.config.max_contexts:
            return TooManyContexts(f"at most {self.config.max_contexts} contexts at a time", field="context_id")
        return self._refuse_new()

    def _on_end(self, message: messages.End) -> None:
        context = self._require(message.context_id)
        if not context.ended:
            context.end()
            self._plan(context, PLAN_CHARS)

    def _on_cancel(self, context_id: str | None) -> None:
        targets = [c for c in self._contexts.open.values() if context_id in (None, c.id)]
        over = [c for c in self._contexts.finished.values() if context_id in (None, c.id)]
        for context in targets:
            self._cancel(context, by_client=True)
        for context in over:
            heard = context.freeze(self._connection.now)
            if context_id is not None or context.state is ContextState.DONE:
                state, rest = context.state.value, context.unspoken_text
                self._sender.post(messages.CancelAcknowledged(context.id, state, *heard, rest))
        if context_id is None:
            self._sender.post(messages.CancelAcknowledged(None, "all"))
        elif not targets and not over:
            self._sender.post(messages.CancelAcknowledged(context_id, self._contexts.ended_as(context_id) or "unknown"))

    def _on_hold(self, message: messages.Hold) -> None:
        if message.played_ms is not None:
            _check_ms("played_ms", message.played_ms)
        context = self._require_audible(message.context_id)
        heard = context.hold(message, self._connection.now)
        self._sender.post(messages.ContextHeld(context.id, *heard, self.config.hold_timeout_s))
        self._report_playback(context)

    def _on_release(self, message: messages.Release) -> None:
        _check_ms("clause_after_ms", message.clause_after_ms)
        context = self._require_audible(message.context_id)
        from_ms = context.release(message.clause_after_ms, self._connection.now)
        self._sender.post(messages.ContextReleased(context.id, from_ms))
        self._report_playback(context)

    def _require_audible(self, context_id: str) -> Context:
        """Return a context that is open, or done and perhaps still playing.

        Raises:
            InvalidRequest: there is no such context, it is over, or it is a draft.
        """
        context = self._contexts.finished.get(context_id)
        if context is None or context.state is not ContextState.DONE:
            context = self._require(context_id)
        if context.draft_at is not None:
            raise InvalidRequest("a draft has no speech yet", field="context_id")
        return context

    def _on_playback(self, message: messages.PlaybackReport) -> None:
        _check_ms("played_ms", message.played_ms)
        context = self._contexts.get(message.context_id)
        if context is None:
            return  # a late message of a context that is long over
        clock = context.sender.clock
        now = self._connection.now
        clock.acknowledge(message.played_ms, now)
        played_samples = clock.position_ms(now) * context.settings.audio.sample_rate / 1000
        self._sender.retained.acknowledge(context.id, played_samples)
        self._report_playback(context, only_news=True)

    def _on_leave(self, message: messages.Leave) -> None:
        if message.at_once:
            self._close(CLIENT_LEFT)
        else:
            self._connection.closes_as = self._connection.closes_as or CLIENT_LEFT
            self._close_if_done()

    def _require(self, context_id: str) -> Context:
        if (context := self._contexts.open.get(context_id)) is not None:
            return context
        self._check_unused(context_id)
        raise InvalidRequest("unknown context", field="context_id")

    def _check_unused(self, context_id: str) -> None:
        if (state := self._contexts.ended_as(context_id)) is not None:
            raise ContextClosed(f"the context is {state}", field="context_id")

    # ---- from the engine; ignored once the context is over ----------------------------------------------------------

    def audio(self, context_id: str, packets: Packets, now: float) -> None:
        """Queue the next packets of a context.

        Raises:
            ValueError: they do not continue the last ones.
        """
        if (context := self._live(context_id, now)) is not None:
            context.sender.add_packets(packets)
            context.rest()
            self._memory.add(packets_bytes(packets))
            if context.sender.queued_ms > self.config.max_queued_s * 1000:
                self._fail(context, InternalError(f"more than {self.config.max_queued_s:g} s of audio wait to be sent"))

    def _relieve_engine(self, context: Context) -> None:
        """If the client reads nothing, park the context once a quarter of the session's memory is used. Otherwise
        messages are taken soon, at most a batch later, and memory is checked then."""
        if self._connection.is_flowing:
            return
        if not context.engine.is_parked and self.memory_bytes > self.config.max_session_bytes / 4:
            context.engine.park()
        self._relieve()

    def segment_progress(
        self,
        context_id: str,
        segment_index: int,
        audio_ms: float,
        done: bool,
        now: float,
        reached: tuple[float, float] | None = None,
    ) -> None:
        """Record that the segment has `audio_ms` of audio so far, all of it passed to `audio` before.

        Args:
            reached: see `WordAligner.progress`.

        Raises:
            ValueError: there is no such segment.
        """
        if (context := self._live(context_id, now)) is not None:
            context.progress(segment_index, audio_ms, done, reached)
            self._relieve_engine(context)
            if done:
                self._plan(context, PLAN_CHARS)

    def audio_finished(self, context_id: str, now: float, report: messages.SpeechReport = messages.NO_REPORT) -> None:
        """Record that every segment was spoken and every packet delivered.

        Raises:
            ValueError: the context's text has not ended, or this was called before.
        """
        if (context := self._live(context_id, now)) is not None:
            if not context.text.is_planned or context.audio_complete:
                raise ValueError("audio_finished comes once, after EndOfSegments")
            context.complete_audio(report)

    def failed(self, context_id: str, error: RealtimeTTSError, now: float) -> None:
        """Fail the context: it cannot be spoken. Its queued messages are dropped."""
        if (context := self._live(context_id, now)) is not None:
            self._fail(context, error)

    # ---- time ----------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._connection.advance(now)
        if (close := self._connection.due_close()) is not None:
            self._close(close)
        num_chars = PLAN_CHARS
        for context in reversed(list(self._contexts.open.values())):
            if num_chars > 0:
                num_chars -= self._plan(context, num_chars)
            if context.sender.clock.poll(self._connection.now):
                self._report_playback(context)
            if self._connection.now >= self._times_out_at(context):
                self._cancel(context)
        if self._contexts.open and self._connection.is_keepalive_due():
            self._connection.note_sent(is_audio=False)
            self._sender.post(messages.KeepAlive(tuple(self._contexts.open)))

    def next_deadline(self) -> float | None:
        """Return when to `tick` and drain again if nothing else happens; None: not before another input."""
        if self.state is SessionState.CLOSED:
            return None
        now = self._connection.now
        due = self._connection.next_deadline(has_contexts=bool(self._contexts.open))
        for context in self._contexts.open.values():
            if not self._waits(context) and (at := context.text_due_at(now)) is not None and at < due:
                due = at
            if (at := context.sender.clock.pause_due_at()) is not None and at < due:
                due = at
            due = min(due, self._times_out_at(context))
        if self._connection.is_flowing:
            at = self._sender.next_send_at(self._contexts.sending(), now)
            if at is not None and at < due:
                due = at
        return due

    def _times_out_at(self, context: Context) -> float:
        """Return when a context is cancelled if it is still held, or a draft, then."""
        if context.held_at is not None:
            return context.held_at + self.config.hold_timeout_s
        return math.inf if context.draft_at is None else context.draft_at + self.config.draft_timeout_s

    # ---- output --------------------------------------------------------------------------------------------------

    def messages_to_send(self, now: float, max_bytes: int | None = None) -> list[messages.ServerMessage]:
        """Return the messages that may leave now; they count as sent. Stops soon after `max_bytes` (of memory,
        roughly)."""
        state = self._connection.advance(now)
        if state is SessionState.DISCONNECTED or self._connection.blocked_at is not None:
            return []
        senders = self._contexts.sending() if state is SessionState.CONNECTED else []
        sent: list[messages.ServerMessage] = []
        try:
            limit_bytes = math.inf if max_bytes is None else max_bytes
            for message in self._sender.take(senders, self._connection.now, limit_bytes):
                sent.append(message)
                self._sent(message)
        except SenderCrash as crash:
            if crash.context_id not in self._contexts.open:
                raise
            self._crash(crash, crash.context_id)
        if sent:
            self._connection.note_sent(is_audio=any(isinstance(message, messages.AudioPackets) for message in sent))
        self._relieve()
        self._close_if_done()
        return sent

    def _sent(self, message: messages.ServerMessage) -> None:
        if isinstance(message, messages.AudioPackets):
            self._memory.add(RETAINED_BYTES + OBJECT_BYTES)  # the packets were counted when they were queued
            context = self._kept(message.context_id)
            context.begin_speaking()
            if context.sender.take_restart():
                self._report_playback(context)
            return
        self._memory.add(RETAINED_BYTES + 2 * message_bytes(message))
        if isinstance(message, messages.ContextDone):
            context = self._kept(message.context_id)
            if context.state is not ContextState.DONE:
                context.finish()
                self._retire(context)

    def _kept(self, context_id: str) -> Context:
        context = self._contexts.get(context_id)
        if context is None:
            raise AssertionError("a context with something to send is kept")
        return context

    def unsendable(self, message: messages.ServerMessage, error: Exception, now: float) -> None:
        """Handle a message that could not be written. Nothing was written of its context after it."""
        self._connection.advance(now)
        self._events.append(messages.Crashed(error))
        if not isinstance(message, messages.ContextMessage):
            return
        failure = InternalError("a message cannot be written")
        context = self._contexts.open.get(message.context_id)
        if context is None:  # it was the terminal message: the client would wait for it forever
            self._close(close_for(INTERNAL_ERROR, failure))
            return
        self._sender.retained.drop_from(context.id, message.sequence)
        self._fail(context, failure, next_sequence=message.sequence)

    def events(self) -> list[messages.SessionEvent]:
        """Return and clear the events for the I/O layer, in order. Call it after `messages_to_send`, which may add
        some."""
        events = self._events[:]
        self._events.clear()  # contexts append to this list
        return events

    @property
    def lost_at(self) -> float | None:
        """Time since which the session waits for its client to reconnect, or None."""
        return self._connection.lost_at if self.state is SessionState.DISCONNECTED else None

    @property
    def num_open_contexts(self) -> int:
        return len(self._contexts.open)

    @property
    def memory_bytes(self) -> int:
        """Approximate memory that the client occupies, in bytes."""
        return self._sender.num_bytes + self._contexts.num_bytes

    def is_ahead(self, context_id: str, now: float) -> bool:
        """Return True if the listener has enough audio buffered that a short delay is harmless."""
        context = self._live(context_id, now)
        return context is not None and context.sender.lead_ms(self._connection.now) >= AHEAD_MS

    def queued_ms(self, context_id: str) -> float:
        """Return the amount of audio of one context that waits to be sent, ms."""
        context = self._contexts.open.get(context_id)
        return context.sender.queued_ms if context is not None else 0.0

    # ---- the connection ------------------------------------------------------------------------------------------

    def pause_writing(self, now: float) -> None:
        """Record that the socket takes no more bytes for now: nothing is sent, and the engine pauses."""
        self._connection.advance(now)
        if self._connection.block(True):
            self._report_all()

    def resume_writing(self, now: float) -> None:
        """Record that the socket takes bytes again."""
        self._connection.advance(now)
        if self._connection.block(False):
            self._report_all()

    def connection_lost(self, now: float, clean: bool = False) -> None:
        """Record that the socket is gone. A `clean` close ends the session; else contexts are parked and wait for
        `resume`."""
        if self._connection.advance(now) is not SessionState.CONNECTED:
            return
        if clean or self.config.resume_window_s <= 0:
            self._close(CONNECTION_CLOSED)
            return
        self._connection.lose()
        self._sender.lose_connection()
        self._report_all()

    def resume(self, message: messages.Resume, now: float) -> None:
        """Continue this session on a new connection. A connection that still seems to live is replaced.

        Messages that the client lacks are queued again. Open contexts that it does not list are cancelled.

        Raises:
            SessionNotFound: the session is over or cannot be resumed.
        """
        self.connection_lost(now)
        self._connection.restore()
        for context in [c for c in self._contexts.open.values() if c.id not in message.contexts]:
            self._cancel(context)
        found = [self._resume_context(context_id, last) for context_id, last in message.contexts.items()]
        self._sender.reconnect(messages.SessionResumed(self.session_id, tuple(found)))
        self._report_all()
        self._memory.add_unknown()
        self._relieve()

    def _resume_context(self, context_id: str, last_sequence: int) -> messages.ResumedContext:
        context = self._contexts.get(context_id)
        if context is None:
            return messages.ResumedContext(
                context_id, "unknown" if self._contexts.ended_as(context_id) is None else "lost"
            )
        missing = self._sender.retained.take_missing(context_id, last_sequence, context.sender.next_sequence)
        if missing.has_gap and not context.state.is_final:
            gap = ResumeGap("messages that the client lacks are no longer kept")
            self._fail(context, gap, next_sequence=missing.first)
            state = "lost"
        else:
            state = context.resend(missing, self._connection.now)
        return messages.ResumedContext(
            context_id=context_id,
            state=state,
            number=context.number,
            received_chars=context.text.num_chars,
            ended=context.ended,
            num_flushes=context.num_flushes,
            draft=context.draft_at is not None,
        )

    def drain(self, now: float) -> None:
        """Accept no new contexts; the session closes when the open ones are over. For a shutdown of the server."""
        self._connection.advance(now)
        self._connection.closes_as = DRAINING
        self._close_if_done()

    def close(self, now: float, code: int, reason: str, error: RealtimeTTSError | None = None) -> None:
        """End the session and all of its contexts: they fail with `error`, or without one are cancelled.

        Does nothing if the session is over.
        """
        self._connection.advance(now)
        self._close(Close(code, reason, error))

    def _close_if_done(self) -> None:
        if self._connection.closes_as is None or self._contexts.open or self._sender.has_waiting:
            return
        # A reconnected client may still lack the end of a finished context.
        if self.state is not SessionState.CONNECTED or not self._contexts.has_late:
            self._close(self._connection.closes_as)

    def _close(self, close: Close) -> None:
        if not self._connection.close():
            return
        for context in list(self._contexts.open.values()):
            if close.error is None:
                self._cancel(context)
            else:
                self._fail(context, close.error)
        self._sender.retain_no_more()
        self._events.append(messages.CloseSession(close.code, close.reason))

    # ---- changes of a context, reported to both client and engine --------------------------------------------------

    def _plan(self, context: Context, max_chars: int) -> int:
        """Have the next segments spoken and warn the client of text that is not. Return the work done, in characters.

        Text beyond `max_chars` is planned at the next tick: other sessions get their turn in between.
        """
        if self._waits(context):
            return 0
        try:
            num_chars = context.plan(max_chars, self._connection.now)
        except RealtimeTTSError as error:
            self._fail(context, error)
            return max_chars
        except Exception as error:
            self._crash(error, context.id)
            return max_chars
        self._memory.add(ITEM_BYTES * num_chars)  # a word and a range that is not spoken have two characters at least
        # Otherwise they stay collected for a later call.
        if self.state is SessionState.CONNECTED and context.draft_at is None:
            for code, message, spans in context.text.take_warnings():
                self._sender.post(messages.WarningMessage(context.id, code, message, spans))
        return num_chars

    def _waits(self, context: Context) -> bool:
        """Return True if contexts are spoken in turn and this one's turn has not come."""
        return self.config.in_turn and context is not next(iter(self._contexts.open.values()), context)

    def _cancel(self, context: Context, by_client: bool = False) -> None:
        try:
            context.cancel(self._connection.now, by_client and context.draft_at is None)
        except Exception as error:  # what was heard is unknown; the other contexts are cancelled all the same
            self._crash(error, context.id)
        else:
            self._abort(context)

    def _fail(self, context: Context, error: RealtimeTTSError, next_sequence: int | None = None) -> None:
        """Fail the context. `next_sequence`: number of the terminal message, after a gap in the client's messages."""
        context.fail(error, next_sequence)
        self._abort(context)

    def _abort(self, context: Context) -> None:
        self._sender.post(context.sender)
        self._retire(context)

    def _retire(self, context: Context) -> None:
        self._memory.add_unknown()
        for dropped in self._contexts.retire(context):
            self._sender.retained.forget(dropped)
        self._contexts.rank(self.config.in_turn)

    def _report_playback(self, context: Context, only_news: bool = False) -> None:
        """Report the playback position to the engine, which stays a little ahead of it. While nothing can be sent,
        report a pause.

        `only_news`: only if it differs from the engine's own estimate.
        """
        now, clock = self._connection.now, context.sender.clock
        if context.rest():
            return
        # Up to where a context is held, audio is made as if it were played: the rest of a word may be due.
        paused = (clock.paused and not clock.is_held) or not self._connection.is_flowing
        context.engine.report_playback(clock.position_ms(now), paused, now, only_news=only_news)

    def _report_all(self) -> None:
        for context in self._contexts.open.values():
            self._report_playback(context)

    def _live(self, context_id: str, now: float) -> Context | None:
        self._connection.advance(now)
        return self._contexts.open.get(context_id)


def _check_ms(name: str, value: float) -> None:
    """Raises InvalidMessage for a time that is no number of at least 0."""
    if not (math.isfinite(value) and value >= 0):
        raise InvalidMessage(f"{name} must be a number of at least 0", field=name)
