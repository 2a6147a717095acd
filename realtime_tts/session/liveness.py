"""When silence means something: keep-alives, idle sessions, slow readers, lost connections."""

from __future__ import annotations

from realtime_tts.session.settings import SessionConfig


class Liveness:
    """Times of the last signs of life of one session, and what is due when."""

    def __init__(self, config: SessionConfig, now: float) -> None:
        self._config = config
        self._active_at = now  # the peer said something, or was sent audio
        self._sent_at = now  # anything was sent
        self.blocked_at: float | None = None  # the socket takes no more bytes
        self.lost_at: float | None = None  # the connection broke

    def active(self, now: float) -> None:
        self._active_at = now

    def sent(self, now: float) -> None:
        self._sent_at = now

    def blocked(self, now: float) -> None:
        self.blocked_at = now

    def unblocked(self, now: float) -> None:
        self.blocked_at = None
        self._active_at = now

    def lost(self, now: float) -> None:
        self.lost_at, self.blocked_at = now, None

    def connected(self, now: float) -> None:
        self.lost_at = None
        self._active_at = self._sent_at = now

    @property
    def expires_at(self) -> float | None:
        """End of the wait for a lost client."""
        return None if self.lost_at is None else self.lost_at + self._config.resume_window_s

    @property
    def too_slow_at(self) -> float | None:
        return None if self.blocked_at is None else self.blocked_at + self._config.slow_consumer_s

    @property
    def idle_at(self) -> float | None:
        return None if self.lost_at is not None else self._active_at + self._config.idle_timeout_s

    @property
    def keepalive_at(self) -> float | None:
        """When the next keep-alive is due, if a context is open."""
        flowing = self.lost_at is None and self.blocked_at is None
        return self._sent_at + self._config.keepalive_s if flowing else None


def is_due(at: float | None, now: float) -> bool:
    return at is not None and now >= at
