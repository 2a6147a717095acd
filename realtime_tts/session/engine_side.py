"""Events of one context for the engine, and the state that they have reported."""

from __future__ import annotations

from realtime_tts.session import messages
from realtime_tts.session.settings import ContextSettings
from realtime_tts.text.planner import Segment

TOLERANCE_MS = 20.0  # error of the engine's playback position that needs no report: a packet
REPORT_AGAIN_S = 2.0  # longest time between two reports: the engine counts pauses of the text as speech


class EngineSide:
    """Events of one context for the engine. They are appended to the session's list.

    Attributes:
        is_busy: the engine has something to do for the context. has_draft: it was given a draft.
        is_parked: the engine generates no more audio for now.
        priority: as in `PriorityChanged`.
    """

    def __init__(
        self, events: list[messages.SessionEvent], context_id: str, number: int, settings: ContextSettings
    ) -> None:
        self.is_busy = self.is_parked = self.has_draft = False
        self.priority = 0
        self._events = events
        self._context_id, self._number, self._settings = context_id, number, settings
        self._reported: tuple[float, bool, float] | None = None  # playback position in ms, paused, when

    def draft(self, segment: Segment) -> None:
        """Request to make the first segment ahead."""
        self.has_draft = True
        self._events.append(messages.DraftSpeech(self._context_id, self._number, segment, self._settings))

    def speak(self, segment: Segment, *, is_new: bool) -> None:
        """Request a segment, or more text of the last one."""
        if is_new:
            self.is_busy = True
            start = messages.StartSpeech(self._context_id, self._number, segment, self._settings, self.priority)
            self._events.append(start)
            if self.is_parked:
                self._report_parked()
        else:
            self._events.append(messages.ExtendSpeech(self._context_id, segment))

    def end_segments(self) -> None:
        """Report that no segment follows."""
        if self.is_busy:
            self._events.append(messages.EndOfSegments(self._context_id))

    def stop(self) -> None:
        """Request to stop all work and to release the context."""
        if self.is_busy or self.has_draft:
            self.is_busy = self.has_draft = False
            self._events.append(messages.StopSpeech(self._context_id))

    def set_priority(self, priority: int) -> None:
        if priority != self.priority:
            self.priority = priority
            if self.is_busy:
                self._events.append(messages.PriorityChanged(self._context_id, priority))

    def park(self) -> None:
        """Request to generate no more audio until the next playback report."""
        if not self.is_parked:
            self.is_parked = True
            self._report_parked()

    def report_playback(self, position_ms: float, paused: bool, now: float) -> None:
        """Report the playback position if the engine's own estimate is off, or its last report is old. The engine
        extrapolates it in real time unless it was paused."""
        was_parked, self.is_parked = self.is_parked, False
        if self.is_busy and (was_parked or self._is_off(position_ms, paused, now)):
            self._reported = position_ms, paused, now
            self._events.append(messages.PlaybackChanged(self._context_id, position_ms, paused))

    def _report_parked(self) -> None:
        if self.is_busy:
            self._events.append(messages.PlaybackChanged(self._context_id, messages.NOTHING_PLAYED_MS, paused=True))

    def _is_off(self, position_ms: float, paused: bool, now: float) -> bool:
        if self._reported is None:
            return True
        reported_ms, was_paused, reported_at = self._reported
        estimate_ms = reported_ms if was_paused else reported_ms + (now - reported_at) * 1000
        is_wrong = paused != was_paused or abs(position_ms - estimate_ms) > TOLERANCE_MS
        return is_wrong or now - reported_at >= REPORT_AGAIN_S
