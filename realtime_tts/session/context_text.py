"""A context's text: received as it comes, planned only as far as it can be spoken soon, and a little at a time.

A planner that waits for whole segments returns the same ones for every split of a text. A live one treats text with the
same time as one piece, and slices carry the time of the latest text. So slicing does not change the result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from realtime_tts.session.memory import OBJECT_BYTES, text_bytes
from realtime_tts.text.planner import Planner, Planning, Segment

SLICE_CHARS = 32  # characters read at a time; each stretch of work counts as this many
MAX_SPANS = 16  # ranges reported at most; the first ones are enough of a text full of unspeakable parts
_PENDING_BYTES = 8  # bytes of a character that a planner keeps until its segment ends
_UNSPEAKABLE = "parts of the text cannot be spoken and are left out"
_IGNORED = "this markup has no effect; the text in it is spoken"


@dataclass(frozen=True, slots=True)
class _Mark:
    """A flush, or the end, after the first `position` characters."""

    position: int
    is_end: bool
    flush_id: str | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """Result of one planning step.

    Attributes:
        num_chars: amount of work, in characters.
        is_flushed: all text before a flush with `flush_id` has been planned.
    """

    num_chars: int
    segments: Sequence[Segment]
    is_flushed: bool = False
    flush_id: str | None = None


class ContextText:
    """Text of one context and the planner that reads it.

    Attributes:
        is_planned: the text has ended, and all of it was planned.
        silent_from: offset of the unspoken text after the last word planned so far.
    """

    def __init__(self, planner: Planner) -> None:
        self.is_planned = False
        self.silent_from: int | None = None
        self._planner: Planner | None = planner
        self._text = ""
        self._marks: deque[_Mark] = deque()
        self._num_read = 0
        self._work: Planning | None = None  # the planner's work in progress
        self._work_chars = 0  # work counted when it ends: a stretch of its own if there was none
        self._reached: _Mark | None = None  # the mark reached when that work ends
        self._last_text_at = 0.0
        self._tick_at: float | None = None
        self._last_word_end = 0  # end of the last word planned
        self._planned_end = 0  # end of the last final segment; the planner holds only what follows
        self._skipped: list[tuple[int, int]] = []  # not reported yet
        self._ignored: list[tuple[int, int]] = []  # ranges of markup, not reported yet

    def push(self, text: str, now: float) -> None:
        """Append text; not allowed after `end`."""
        if text:
            self._last_text_at = now
            self._text += text

    def flush(self, flush_id: str | None) -> None:
        """Have the text pushed so far planned without waiting for more."""
        self._marks.append(_Mark(self.num_chars, False, flush_id))

    def end(self) -> None:
        """Mark the text as complete."""
        self._marks.append(_Mark(self.num_chars, True))

    def close(self) -> None:
        """Stop planning and release the planner."""
        self._planner, self._tick_at, self._work = None, None, None
        self._marks.clear()

    @property
    def num_chars(self) -> int:
        """Number of characters received."""
        return len(self._text)

    @property
    def num_bytes(self) -> int:
        """Approximate memory in use, bytes."""
        num_pending = 0 if self._planner is None else self._num_read - self._planned_end
        marks_bytes = sum(OBJECT_BYTES + text_bytes(mark.flush_id) for mark in self._marks)
        return text_bytes(self._text) + marks_bytes + _PENDING_BYTES * num_pending

    def head(self, num_chars: int) -> str:
        """Return the first `num_chars` characters of the text."""
        return self._text[:num_chars]

    def due_at(self, now: float) -> float | None:
        """Return when `step` has something to do; `now`: at once; None: not before more input."""
        is_due = self._work is not None or self._num_read < self.num_chars or self._marks
        return now if is_due else self._tick_at

    def step(self, now: float) -> Planned | None:
        """Plan a stretch of the text, or of what is pending at a flush, at the end, or at the planner's deadline.

        Returns None if there is nothing to do now. Exceptions of a faulty planner pass through.
        """
        if self._planner is None:
            # A flush after the end has nothing to speak.
            return Planned(SLICE_CHARS, (), True, self._marks.popleft().flush_id) if self._marks else None
        if self._work is None and (work := self._begin(self._planner, now)) is not None:
            self._work, self._work_chars = work, SLICE_CHARS
        if self._work is None:
            return None
        if (segments := next(self._work, None)) is not None:
            self._note_ranges(self._planner, segments)
            self._work_chars = 0
            return Planned(SLICE_CHARS + sum(segment.end - segment.start for segment in segments), segments)
        return self._finish_work(self._planner)

    def _begin(self, planner: Planner, now: float) -> Planning | None:
        """Return the next work of the planner, or None."""
        end = self._marks[0].position if self._marks else self.num_chars
        if self._num_read < end:
            start, self._num_read = self._num_read, min(self._num_read + SLICE_CHARS, end)
            return planner.pushing(self._text[start : self._num_read], self._last_text_at)
        if self._marks:
            self._reached = self._marks.popleft()
            return planner.ending(now) if self._reached.is_end else planner.flushing(now)
        if self._tick_at is not None and now >= self._tick_at:
            return planner.ticking(now)
        return None

    def _finish_work(self, planner: Planner) -> Planned:
        reached, self._reached, self._work = self._reached, None, None
        self._tick_at = planner.next_deadline()
        self._note_ranges(planner)
        if reached is not None and reached.is_end:
            self.is_planned = True
            self._planner, self._tick_at = None, None
        if reached is None or reached.is_end:
            return Planned(self._work_chars, ())
        return Planned(self._work_chars, (), True, reached.flush_id)

    def take_warnings(self) -> list[tuple[str, str, tuple[tuple[int, int], ...]]]:
        """Return code, message and text ranges of new warnings; of very many ranges only the first."""
        found = (("unspeakable_text", _UNSPEAKABLE, self._skipped), ("ignored_markup", _IGNORED, self._ignored))
        self._skipped, self._ignored = [], []
        return [(code, message, tuple(spans)) for code, message, spans in found if spans]

    def _note_ranges(self, planner: Planner, segments: Sequence[Segment] = ()) -> None:
        """Collect the ranges that the planner has found, with the segments that it has returned meanwhile."""
        self._ignored += planner.take_ignored()[: MAX_SPANS - len(self._ignored)]
        if segments:
            last = segments[-1]
            self.silent_from = None
            self._planned_end = last.end if last.final else last.start
            self._last_word_end = last.words[-1].end if last.words else last.start
        for span in planner.take_skipped():
            if self.silent_from is None and span[0] >= self._last_word_end:
                self.silent_from = span[0]
            if len(self._skipped) < MAX_SPANS:
                self._skipped.append(span)
