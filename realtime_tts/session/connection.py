"""Connection of a session: whether it carries messages, and the times at which the session has to act or to close."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from realtime_tts.errors import (
    ContextClosed,
    Draining,
    InvalidRequest,
    RealtimeTTSError,
    SessionNotFound,
    SlowConsumer,
    TooManyErrors,
)
from realtime_tts.session.settings import SessionConfig

NORMAL_CLOSURE = 1000
GOING_AWAY = 1001
POLICY_VIOLATION = 1008
INTERNAL_ERROR = 1011
TRY_AGAIN_LATER = 1013

_MAX_REASON_BYTES = 123  # of a WebSocket's close
MAX_REFUSED = 100  # refused contexts in a row that close the session: refusing costs time of other clients


class SessionState(Enum):
    """State of a session. CONNECTED ⇄ DISCONNECTED (by a lost connection and a resume); both → CLOSED, which is
    final."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Close:
    """End of a session: WebSocket close code, its reason, and the error with which open contexts fail (None: they are
    cancelled)."""

    code: int
    reason: str
    error: RealtimeTTSError | None = None


CLIENT_LEFT = Close(NORMAL_CLOSURE, "client_left")
DRAINING = Close(GOING_AWAY, "draining")
CONNECTION_CLOSED = Close(NORMAL_CLOSURE, "connection_closed")


def close_for(code: int, error: RealtimeTTSError) -> Close:
    return Close(code, error.code, error)


def close_with_message(message: str, error: RealtimeTTSError | None = None) -> Close:
    """Return the close after an error whose text is the reason, as far as it fits."""
    reason = message.encode(errors="replace")[:_MAX_REASON_BYTES].decode(errors="ignore")
    return Close(POLICY_VIOLATION, reason, error)


def close_slow() -> Close:
    return close_for(POLICY_VIOLATION, SlowConsumer("messages are not read"))


class ConnectionState:
    """State of one session's connection, and the deadlines that follow from it. Times are seconds of one clock.

    Attributes:
        now: latest time passed in; it never goes back.
        blocked_at: time since which the socket accepts no more bytes, or None.
        lost_at: time since which the session waits for its client to reconnect, or None.
        closes_as: close of the session once no context is open, or None; new contexts are refused.
    """

    def __init__(self, config: SessionConfig, now: float) -> None:
        self._config = config
        self.now = now
        self.state = SessionState.CONNECTED
        self.blocked_at: float | None = None
        self.lost_at: float | None = None
        self.closes_as: Close | None = None
        # Deadlines; they do not apply while they are infinite.
        self._expires_at = math.inf  # end of the wait for a lost client to reconnect
        self._too_slow_at = math.inf  # the socket must have accepted bytes
        self._idle_at = now + config.idle_timeout_s  # the client must have sent something, or was sent audio
        self._keepalive_at = now + config.keepalive_s  # while messages can be sent: something must have been sent
        self._num_errors = 0  # errors of the client in a row
        self._num_refused = 0  # contexts refused in a row

    def advance(self, now: float) -> SessionState:
        self.now = max(self.now, now)
        return self.state

    @property
    def is_flowing(self) -> bool:
        """True if messages can be sent."""
        return self.state is SessionState.CONNECTED and self.blocked_at is None

    # ---- traffic -------------------------------------------------------------------------------------------------

    def note_received(self) -> None:
        """Record that the client sent something."""
        self._idle_at = self.now + self._config.idle_timeout_s

    def note_sent(self, *, is_audio: bool) -> None:
        """Record that a message left."""
        self._keepalive_at = self.now + self._config.keepalive_s
        if is_audio:
            self._idle_at = self.now + self._config.idle_timeout_s

    def note_success(self) -> None:
        """Record that a message was accepted."""
        self._num_errors = 0

    def note_error(self, error: RealtimeTTSError) -> Close | None:
        """Record that a message was refused. Return how the session closes if that was one too many.

        A limit is not the client's error, and a message for a closed context is a race that a correct client can lose.
        """
        if isinstance(error, InvalidRequest) and not isinstance(error, ContextClosed):
            self._num_errors += 1
        if self._num_errors >= self._config.max_consecutive_errors:
            if self._config.max_consecutive_errors == 1:
                return close_with_message(error.message, error)
            return close_for(POLICY_VIOLATION, TooManyErrors(f"bad messages in a row: {self._num_errors}"))
        return close_for(TRY_AGAIN_LATER, error) if self._num_refused >= MAX_REFUSED else None

    def note_context(self, *, is_refused: bool) -> None:
        """Record that a context was opened, or refused because of a limit."""
        self._num_refused = self._num_refused + 1 if is_refused else 0

    def check_new_context(self) -> None:
        """Check that contexts are still opened.

        Raises:
            ContextClosed: the client leaves.
            Draining: the server shuts down.
        """
        if self.closes_as is CLIENT_LEFT:
            raise ContextClosed("the client leaves")
        if self.closes_as is not None:
            raise Draining("the server is shutting down")

    # ---- changes -------------------------------------------------------------------------------------------------

    def block(self, is_blocked: bool) -> bool:
        """Record whether the socket accepts no more bytes. Return True if that is a change."""
        if self.state is not SessionState.CONNECTED or (self.blocked_at is not None) is is_blocked:
            return False
        self.blocked_at = self.now if is_blocked else None
        self._too_slow_at = self.now + self._config.slow_consumer_s if is_blocked else math.inf
        if not is_blocked:
            self._idle_at = self.now + self._config.idle_timeout_s
        return True

    def lose(self) -> None:
        self.state = SessionState.DISCONNECTED
        self.lost_at, self.blocked_at = self.now, None
        self._expires_at = self.now + self._config.resume_window_s
        self._too_slow_at = self._idle_at = math.inf

    def restore(self) -> None:
        """Record that the client is connected again.

        Raises:
            SessionNotFound: the session is over.
        """
        if self.state is SessionState.CLOSED or self.now >= self._expires_at:
            raise SessionNotFound("the session is unknown or cannot be resumed any more", field="session_id")
        self.state = SessionState.CONNECTED
        self.lost_at, self._expires_at = None, math.inf
        self.note_received()
        self.note_sent(is_audio=False)
        self._num_errors = 0

    def close(self) -> bool:
        """Return True if the session was not closed before."""
        was_open = self.state is not SessionState.CLOSED
        self.state, self.lost_at = SessionState.CLOSED, None
        return was_open

    # ---- deadlines -----------------------------------------------------------------------------------------------

    def due_close(self) -> Close | None:
        """Return how the session closes now because of a deadline, or None."""
        if self.now >= self._expires_at:
            return Close(GOING_AWAY, "resume_window_over")
        if self.now >= self._too_slow_at:
            return close_slow()
        if self.state is SessionState.CONNECTED and self.now >= self._idle_at:
            return Close(NORMAL_CLOSURE, "idle_timeout")
        return None

    def is_keepalive_due(self) -> bool:
        """Return True if a keep-alive is due, provided that a context is open."""
        return self.is_flowing and self.now >= self._keepalive_at

    def next_deadline(self, *, has_contexts: bool) -> float:
        """Return the time of the next close or keep-alive. `has_contexts`: a context is open."""
        keepalive_at = self._keepalive_at if has_contexts and self.is_flowing else math.inf
        return min(self._expires_at, self._too_slow_at, self._idle_at, keepalive_at)
