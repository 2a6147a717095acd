"""How much of a context its listener has heard. Pure arithmetic on the times that are passed in.

Without acknowledgements the clock assumes that playback starts with the first packet sent, runs in real time and
waits where it has nothing left. An acknowledgement overrides the estimate, forwards or backwards; between two of them
the clock extrapolates, but only so far: a player that stays silent about its progress, or repeats the same figure, has
been paused, and is believed.
"""

from __future__ import annotations

import math

STANDSTILL_S = 0.5  # the same figure for so long is a pause, not a coarse timer
MIN_TRUST_MS = 2_000.0  # how far an acknowledgement is extrapolated at least …
MAX_TRUST_MS = 30_000.0  # … and at most; between them, twice the largest step between two acknowledgements
TOLERANCE_MS = 20.0  # what the engine may believe beside the truth: a packet
TELL_AGAIN_S = 2.0  # it is told at least so often: pauses of a text are our business, and it takes them for speech
_EPSILON_MS = 0.01  # times are float seconds; a deadline that is due must count as reached


class PlaybackClock:
    """One context's listener. All positions are ms from the start of the context's audio."""

    def __init__(self) -> None:
        self.sent_ms = 0.0
        self.started_at: float | None = None  # when the first packet left
        self.paused = False
        self._base_ms = 0.0  # the position at `_base_at`
        self._base_at = 0.0
        self._acked_ms: float | None = None
        self._advanced_at = 0.0  # when acknowledgements last moved (or playback had run dry)
        self._trust_ms = MIN_TRUST_MS

    def position_ms(self, now: float) -> float:
        """Best knowledge of what was heard; never more than was sent, never less than was acknowledged."""
        if self.started_at is None:
            return 0.0
        if self.paused:
            return self._base_ms
        elapsed_ms = max(0.0, now - self._base_at) * 1000
        return min(self._base_ms + elapsed_ms, self._ceiling_ms)

    def send(self, end_ms: float, now: float) -> bool:
        """A packet leaves whose audio ends at `end_ms`. True if playback (re)starts with it."""
        position_ms = self.position_ms(now)
        dry = self.started_at is None or position_ms >= self.sent_ms - _EPSILON_MS
        self._base_ms, self._base_at = position_ms, max(now, self._base_at)
        if self.started_at is None:
            self.started_at = now
        if dry:
            self._advanced_at = now
        self.sent_ms = max(self.sent_ms, end_ms)
        return dry

    def acknowledge(self, played_ms: float, now: float) -> None:
        """The listener's own figure, ≥ 0. It cannot fall, nor pass what was sent: such values are clamped."""
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
        """True if the clock stops now because acknowledgements have stayed away for too long."""
        due = self.pause_due_at()
        if due is None or self.position_ms(now) < self._trusted_ms - _EPSILON_MS:
            return False
        self._base_ms, self._base_at, self.paused = self._trusted_ms, now, True
        return True

    def pause_due_at(self) -> float | None:
        """When `poll` will stop the clock, unless an acknowledgement comes first."""
        if self.started_at is None or self.paused or self._trusted_ms >= self.sent_ms:
            return None
        return self._time_of(self._trusted_ms)

    def reaches_at(self, position_ms: float) -> float | None:
        """When the clock will be at `position_ms`; None if not without a new packet or acknowledgement."""
        if self.started_at is None or self.paused or position_ms > self._ceiling_ms + _EPSILON_MS:
            return None
        return self._time_of(position_ms)

    def rewind(self, received_ms: float, now: float) -> None:
        """The listener turns out to have got no more than `received_ms` of what was sent."""
        self._settle(now)
        self.paused = False  # if it still is, its next acknowledgements say so
        self.sent_ms = min(self.sent_ms, received_ms)
        self._base_ms = min(self._base_ms, self.sent_ms)
        if self._acked_ms is not None:
            self._acked_ms = min(self._acked_ms, self.sent_ms)

    @property
    def _trusted_ms(self) -> float:
        return math.inf if self._acked_ms is None else self._acked_ms + self._trust_ms

    @property
    def _ceiling_ms(self) -> float:
        return self.sent_ms if self._acked_ms is None else min(self.sent_ms, self._trusted_ms)

    def _settle(self, now: float) -> None:
        self._base_ms, self._base_at = self.position_ms(now), max(now, self._base_at)

    def _time_of(self, position_ms: float) -> float:
        return self._base_at + (position_ms - self._base_ms) / 1000


class ToldPlayback:
    """What the engine was told of a context's playback, which it takes to go on in real time unless it was paused."""

    def __init__(self) -> None:
        self._told: tuple[float, bool, float] | None = None  # position, paused, when

    def tell(self, position_ms: float, paused: bool, now: float) -> None:
        self._told = position_ms, paused, now

    def is_off(self, position_ms: float, paused: bool, now: float) -> bool:
        """Whether the engine believes something else."""
        if self._told is None:
            return True
        told_ms, was_paused, told_at = self._told
        believed_ms = told_ms if was_paused else told_ms + (now - told_at) * 1000
        if now - told_at >= TELL_AGAIN_S:
            return True
        return paused != was_paused or abs(position_ms - believed_ms) > TOLERANCE_MS
