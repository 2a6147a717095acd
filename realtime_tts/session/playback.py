"""Playback position of one context's listener. Pure arithmetic on the times that are passed in.

Without acknowledgements the clock assumes that playback starts with the first packet sent, runs in real time and
waits where no audio is left. An acknowledgement overrides the estimate, forwards or backwards. Between two of them the
clock extrapolates up to a limit. A player that sends no acknowledgements, or repeats the same figure, counts as paused.
"""

from __future__ import annotations

import math

STANDSTILL_S = 0.5  # the same figure for this long is a pause, not a coarse timer
MIN_TRUST_MS = 2_000.0  # how far an acknowledgement is extrapolated at least …
MAX_TRUST_MS = 30_000.0  # … and at most; between them, twice the largest step between two acknowledgements
_EPSILON_MS = 0.01  # times are float seconds; a deadline that is due must count as reached


class PlaybackClock:
    """Playback clock of one context. All positions are ms from the start of the context's audio.

    paused: the clock stands still, because acknowledgements are overdue or repeat a figure, or because it is held. The
    next acknowledgement that advances continues a clock that is not held. held: paused on request of the client, until
    `release`; acknowledgements are ignored.

    Three other estimates of a playback exist. `metrics.PlaybackEstimate` counts underruns of a player without a buffer:
    it ignores acknowledgements, so that the metric means the same for every client. `http.speech.heard_ms` is for
    clients over HTTP, which acknowledge nothing but what they read. `ListenerLead` is the worker's: it counts audio
    from when it is made, to schedule by, and extrapolates between the positions that this clock reports.
    """

    def __init__(self) -> None:
        self.sent_ms = 0.0
        self.started_at: float | None = None  # when the first packet left
        self.paused = False
        self.held_at: float | None = None  # paused by request since then: reports do not move the position
        self.heard_to_ms = 0.0  # the farthest position at which it was held
        self._base_ms = 0.0  # the position at `_base_at`
        self._base_at = 0.0
        self._acked_ms: float | None = None
        self._advanced_at = 0.0  # when acknowledgements last moved (or playback ran out of audio)
        self._trust_ms = MIN_TRUST_MS

    @property
    def is_held(self) -> bool:
        return self.held_at is not None

    def position_ms(self, now: float) -> float:
        """Return the best estimate of the position: at most what was sent, at least what was acknowledged."""
        if self.started_at is None:
            return 0.0
        if self.paused:
            return self._base_ms
        elapsed_ms = max(0.0, now - self._base_at) * 1000
        return min(self._base_ms + elapsed_ms, self._ceiling_ms)

    def send(self, end_ms: float, now: float) -> bool:
        """Record that a packet leaves whose audio ends at `end_ms`. Return True if playback (re)starts with it."""
        position_ms = self.position_ms(now)
        restarts = self.started_at is None or position_ms >= self.sent_ms - _EPSILON_MS
        self._base_ms, self._base_at = position_ms, max(now, self._base_at)
        if self.started_at is None:
            self.started_at = now
        if restarts:
            self._advanced_at = now
        self.sent_ms = max(self.sent_ms, end_ms)
        return restarts

    def acknowledge(self, played_ms: float, now: float) -> None:
        """Set the position reported by the listener, ≥ 0. A lower one than before, or one beyond what was sent, is
        clamped."""
        if self.is_held:
            return
        floor_ms = self._acked_ms or 0.0
        played_ms = min(max(played_ms, floor_ms), self.sent_ms)
        if self._acked_ms is None or played_ms > self._acked_ms:
            step_ms = played_ms - floor_ms
            self._trust_ms = min(max(self._trust_ms, 2 * step_ms), MAX_TRUST_MS)
            self._advanced_at = now
            self.paused = False
        elif played_ms < self.sent_ms and now - self._advanced_at >= STANDSTILL_S:
            self.paused = True
        self._acked_ms = played_ms
        self._base_ms, self._base_at = played_ms, now

    def poll(self, now: float) -> bool:
        """Stop the clock if acknowledgements are overdue. Return True if it stops now."""
        due = self.pause_due_at()
        if due is None or self.position_ms(now) < self._trusted_ms - _EPSILON_MS:
            return False
        self._base_ms, self._base_at, self.paused = self._trusted_ms, now, True
        return True

    def pause_due_at(self) -> float | None:
        """Return when `poll` stops the clock, unless an acknowledgement comes first."""
        if self.started_at is None or self.paused or self._trusted_ms >= self.sent_ms:
            return None
        return self._time_of(self._trusted_ms)

    def reaches_at(self, position_ms: float) -> float | None:
        """Return when the clock reaches `position_ms`; None if it needs a new packet or acknowledgement to do so."""
        if self.started_at is None or self.paused or position_ms > self._ceiling_ms + _EPSILON_MS:
            return None
        return self._time_of(position_ms)

    def hold(self, position_ms: float, now: float) -> None:
        """Stop the clock at a position, until `release`. The listener hears all audio up to there, sent or not yet."""
        self._base_ms, self._base_at = position_ms, now
        self.held_at, self.paused = now, True
        self.heard_to_ms = max(self.heard_to_ms, self._base_ms)

    def limit_hold(self, end_ms: float) -> None:
        """Limit the position at which the clock is held; the text heard until there stays the same."""
        if self.is_held:
            self._base_ms = min(self._base_ms, end_ms)

    def release(self, position_ms: float, now: float) -> None:
        """Go on at a position, which may be lower than one that was acknowledged."""
        self.held_at, self.paused = None, False
        self._base_ms, self._base_at, self._advanced_at = position_ms, now, now
        if self._acked_ms is not None:
            self._acked_ms = position_ms

    def rewind(self, received_ms: float, now: float) -> None:
        """Correct what was sent: the listener received no more than `received_ms` of it."""
        self._base_ms, self._base_at = self.position_ms(now), max(now, self._base_at)
        self.paused = self.is_held  # if it is still paused, its next acknowledgements show that
        self.sent_ms = min(self.sent_ms, received_ms)
        if not self.is_held:
            self._base_ms = min(self._base_ms, self.sent_ms)
        if self._acked_ms is not None:
            self._acked_ms = min(self._acked_ms, self.sent_ms)

    @property
    def _trusted_ms(self) -> float:
        return math.inf if self._acked_ms is None else self._acked_ms + self._trust_ms

    @property
    def _ceiling_ms(self) -> float:
        return self.sent_ms if self._acked_ms is None else min(self.sent_ms, self._trusted_ms)

    def _time_of(self, position_ms: float) -> float:
        return self._base_at + (position_ms - self._base_ms) / 1000
