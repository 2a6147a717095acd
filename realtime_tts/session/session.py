"""State machine of one client's session and its contexts, without I/O.

Inputs are methods, with the time passed in. Outputs are drained: `messages_to_send` for the client, `events` for the
engine. Errors of the client become an error message or a close; errors of the calling code raise.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from realtime_tts.errors import ContextClosed, InternalError, RealtimeTTSError
from realtime_tts.session import messages
from realtime_tts.session.connection import (
    CONNECTION_CLOSED,
    DRAINING,
    INTERNAL_ERROR,
    Close,
    ConnectionState,
    SessionState,
    close_for,
    close_slow,
    close_with_message,
)
from realtime_tts.session.contexts import Contexts
from realtime_tts.session.memory import MemoryLimit, message_bytes
from realtime_tts.session.message_handler import MessageHandler
from realtime_tts.session.sender import SenderCrash, SessionSender
from realtime_tts.session.settings import MAX_ID_CHARS, Choices, ContextSettings, SessionConfig
from realtime_tts.text.planner import Planner

# Memory that a message may add, relative to its own: its answer, and what a planner keeps of its text.
_GROWTH = 10


class Session:
    """Session of one client. Every `now` is in seconds of one monotonic clock.

    After any input, also of `contexts`, drain `messages_to_send`, then `events`, then arrange for `tick` at
    `next_deadline`.

    Args:
        resolve: returns a context's settings from the session's defaults and the message's overrides; raises a typed
            error for an invalid choice.
        make_planner: makes the text planner of a new context.
        refuse: returns the error with which a new context is refused now, or None.
        charge: charges a number of characters that will be spoken, or returns the error with which they are refused.

    Attributes:
        closing: close code and reason once the session is closed: send what `messages_to_send` still returns, then
            close the socket and forget the session.
    """

    def __init__(
        self,
        session_id: str,
        config: SessionConfig,
        *,
        resolve: Callable[[Choices, Choices], ContextSettings],
        make_planner: Callable[[ContextSettings], Planner],
        refuse: Callable[[], RealtimeTTSError | None] = lambda: None,
        charge: Callable[[int], RealtimeTTSError | None] = lambda num_chars: None,
        now: float,
    ) -> None:
        self.session_id = session_id
        self.config = config
        self._connection = connection = ConnectionState(config, now)
        self._memory = MemoryLimit(config.max_session_bytes)
        self._sender = sender = SessionSender(config)
        self._events: list[messages.SessionEvent] = []
        self.contexts = Contexts(config, connection, sender, self._memory, self._events)
        self._handler = MessageHandler(session_id, self.contexts, resolve, make_planner, refuse, charge)
        self.closing: tuple[int, str] | None = None

    @property
    def state(self) -> SessionState:
        return self._connection.state

    @property
    def lost_at(self) -> float | None:
        """Time since which the session waits for its client to reconnect, or None."""
        return self._connection.lost_at

    # ---- from the peer -------------------------------------------------------------------------------------------

    def receive(self, message: messages.ClientMessage, now: float) -> None:
        """Act on a message. Never raises for a client's error: the client gets an error message, and a close after too
        many."""
        if self._connection.advance(now) is not SessionState.CONNECTED:
            return
        self._connection.note_received()
        self._memory.add(_GROWTH * message_bytes(message))
        try:
            close = self._handler.act(message)
            self._connection.note_success()
            if close is not None:
                self._close(close)
            self._close_if_done()
        except RealtimeTTSError as error:
            self._refuse(error, message)
        except Exception as error:
            self._crash(error, message)
        self._relieve()

    def reject(self, error: RealtimeTTSError, now: float) -> None:
        """Refuse a frame that could not be parsed."""
        if self._connection.advance(now) is SessionState.CONNECTED:
            self._connection.note_received()
            self._memory.add_unknown()
            self._refuse(error, error)
            self._relieve()

    def _named(self, message: messages.ClientMessage | RealtimeTTSError) -> str | None:
        """Return the context id of a message or an error, unless it is empty or too long."""
        context_id = getattr(message, "context_id", None)
        return context_id if context_id and len(context_id) <= MAX_ID_CHARS else None

    def _crash(self, error: Exception, message: messages.ClientMessage) -> None:
        """Report an unexpected exception. It fails the context concerned, or the message, and nothing else."""
        context_id = self._named(message)
        if context_id is not None and (context := self.contexts.open.get(context_id)) is not None:
            self.contexts.crash(context, error)
        else:
            self._events.append(messages.Crashed(error))
            self._refuse(InternalError("unexpected error in the server"), message)

    def _refuse(self, error: RealtimeTTSError, message: messages.ClientMessage | RealtimeTTSError) -> None:
        """Refuse a message, or a frame that could not be parsed. A context that it would have opened is over: the rest
        of its text must not open it in mid-sentence."""
        context_id = self._named(message)
        context = None if context_id is None else self.contexts.open.get(context_id)
        if context is not None and self.config.errors_end != "message" and not isinstance(error, ContextClosed):
            self.contexts.fail(context, error)
        else:
            self._post_error(error, context_id)
        if context is None and context_id is not None and isinstance(message, messages.Text | RealtimeTTSError):
            self.contexts.refuse(context_id)
        if (close := self._connection.note_error(error)) is not None:
            if close.error is not None and close.error is not error:
                self._post_error(close.error)
            self._close(close)

    def _post_error(self, error: RealtimeTTSError, context_id: str | None = None) -> None:
        fields = (error.field, error.retry_after_s, error.span)
        self._sender.post(messages.ErrorMessage(error.code, error.message, error.retryable, context_id, *fields))

    def _relieve(self) -> None:
        """Keep within the memory limit of one client: drop what may be dropped, and close the session if that is not
        enough."""
        if not self._memory.is_due:
            return
        contexts, limit, retained = self.contexts, self._memory.max_bytes, self._sender.retained
        num_bytes = contexts.num_bytes
        if (excess := num_bytes - limit) > 0:
            num_bytes -= retained.shrink(max(0, retained.num_bytes - excess - limit // 8))  # some for later
            if num_bytes > limit:
                contexts.drop_finished(0)
                num_bytes = contexts.num_bytes
            if num_bytes > limit:
                self._close(close_slow())
        self._memory.measured(num_bytes)

    # ---- time ----------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._connection.advance(now)
        if (close := self._connection.due_close()) is not None:
            self._close(close)
        self.contexts.tick()
        if self.contexts.open and self._connection.is_keepalive_due():
            self._connection.note_sent(is_audio=False)
            self._sender.post(messages.KeepAlive(tuple(self.contexts.open)))

    def next_deadline(self) -> float | None:
        """Return when to `tick` and drain again if nothing else happens; None: not before another input."""
        if self.state is SessionState.CLOSED:
            return None
        due = min(self._connection.next_deadline(has_contexts=bool(self.contexts.open)), self.contexts.next_deadline())
        if self._connection.is_flowing:
            at = self._sender.next_send_at(self.contexts.sending(), self._connection.now)
            if at is not None and at < due:
                due = at
        return due

    # ---- output --------------------------------------------------------------------------------------------------

    def messages_to_send(self, now: float, max_bytes: float = math.inf) -> list[messages.ServerMessage]:
        """Return the messages that may leave now; they count as sent. Stops soon after `max_bytes` (of memory,
        roughly)."""
        state = self._connection.advance(now)
        if state is SessionState.DISCONNECTED or self._connection.blocked_at is not None:
            return []
        senders = self.contexts.sending() if state is SessionState.CONNECTED else []
        sent: list[messages.ServerMessage] = []
        ends_session = self.config.errors_end == "session"
        try:
            for message in self._sender.take(senders, self._connection.now, max_bytes):
                sent.append(message)
                self.contexts.sent(message)
                if ends_session and isinstance(message, messages.ContextFailed | messages.ErrorMessage):
                    self._connection.closes_as = close_with_message(message.message)
        except SenderCrash as crash:
            if crash.context_id not in self.contexts.open:
                raise
            self.contexts.crash(self.contexts.open[crash.context_id], crash)
        if sent:
            self._connection.note_sent(is_audio=any(isinstance(message, messages.AudioPackets) for message in sent))
        self._close_if_done()
        return sent

    def unsendable(self, message: messages.ServerMessage, error: Exception, now: float) -> None:
        """Handle a message that could not be written. Nothing was written of its context after it."""
        self._connection.advance(now)
        self._events.append(messages.Crashed(error))
        if not isinstance(message, messages.ContextMessage):
            return
        failure = InternalError("a message cannot be written")
        context = self.contexts.open.get(message.context_id)
        if context is None:  # it was the terminal message: the client would wait for it forever
            self._close(close_for(INTERNAL_ERROR, failure))
            return
        self._sender.retained.drop_from(context.id, message.sequence)
        self.contexts.fail(context, failure, next_sequence=message.sequence)

    def events(self) -> list[messages.SessionEvent]:
        """Return and clear the events for the I/O layer, in order. Call it after `messages_to_send`, which may add
        some."""
        self._relieve()  # the engine may have added audio
        events = self._events[:]
        self._events.clear()  # contexts append to this list
        return events

    # ---- the connection ------------------------------------------------------------------------------------------

    def writable(self, is_writable: bool, now: float) -> None:
        """Record whether the socket takes more bytes. If it does not, nothing is sent, and the engine pauses."""
        self._connection.advance(now)
        if self._connection.block(not is_writable):
            self.contexts.report_all()

    def connection_lost(self, now: float, clean: bool = False) -> None:
        """Record that the socket is gone. A `clean` close ends the session; else contexts are parked and wait for
        `resume`."""
        if self._connection.advance(now) is not SessionState.CONNECTED:
            return
        if clean or self.config.resume_window_s <= 0:
            self._close(CONNECTION_CLOSED)
            return
        self._connection.lose()
        self._sender.waiting.clear()  # answers to the lost connection; messages of contexts are kept
        for context in self.contexts.open.values():
            context.engine.park()

    def resume(self, message: messages.Resume, now: float) -> None:
        """Continue this session on a new connection. A connection that still seems to live is replaced.

        Messages that the client lacks are queued again. Open contexts that it does not list are cancelled.

        Raises:
            SessionNotFound: the session is over or cannot be resumed.
        """
        self.connection_lost(now)
        self._connection.restore()
        for context in [c for c in self.contexts.open.values() if c.id not in message.contexts]:
            self.contexts.cancel(context)
        found = [self.contexts.resume(context_id, last) for context_id, last in message.contexts.items()]
        self._sender.waiting.appendleft(messages.SessionResumed(self.session_id, tuple(found)))
        self.contexts.report_all()
        self._memory.add_unknown()

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
        if self._connection.closes_as is None or self.contexts.open or self._sender.waiting:
            return
        # A reconnected client may still lack the end of a finished context.
        if self.state is not SessionState.CONNECTED or not self.contexts.has_late:
            self._close(self._connection.closes_as)

    def _close(self, close: Close) -> None:
        if not self._connection.close():
            return
        self.closing = close.code, close.reason
        for context in list(self.contexts.open.values()):
            if close.error is None:
                self.contexts.cancel(context)
            else:
                self.contexts.fail(context, close.error)
        self._sender.retain_no_more()
