"""A context: one turn of speech, from its first text to its one terminal message."""

from __future__ import annotations

import math
from collections import deque
from enum import Enum
from typing import NamedTuple

from realtime_tts.errors import ContextClosed, RealtimeTTSError, TextTooLong
from realtime_tts.session.context_text import ContextText
from realtime_tts.session.engine_side import EngineSide
from realtime_tts.session.memory import OBJECT_BYTES, text_bytes
from realtime_tts.session.messages import (
    NO_REPORT,
    ContextCancelled,
    ContextFailed,
    ContextStarted,
    Hold,
    SessionEvent,
    SpeechReport,
    TerminalMessage,
)
from realtime_tts.session.resume import Missing
from realtime_tts.session.sender import ContextSender
from realtime_tts.session.settings import ContextSettings
from realtime_tts.text.planner import Planner, Segment

# The engine takes two segments; the third is ready when one of them ends. Text beyond these stays unplanned.
MAX_UNSPOKEN = 3
CONTEXT_BYTES = 8000  # a context without text: its objects, and its planner


class ContextState(Enum):
    """State of a context.

    OPEN → DONE         ended, and the last packet left
    OPEN → CANCELLED    by the client, or with the session
    OPEN → FAILED       its engine, or the session under it

    The last three are final; each is announced by one message, after which nothing of the context is sent.
    """

    OPEN = "open"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self is not ContextState.OPEN


class HeardSpeech(NamedTuple):
    """Speech of a context heard by the listener: `spoken_text` is the first `spoken_chars` characters of its text, and
    `word_share` (0 to 1) how much of the next word was heard."""

    played_ms: float
    spoken_text: str
    spoken_chars: int
    word_share: float


class Context:
    """State of one context. `Contexts` makes the decisions; the context does the bookkeeping.

    Attributes:
        ended: no more text comes.
        audio_complete: no more packets come; the engine has nothing left to do for it.
        num_segments: segments handed to the engine so far; the last one may be open, with more text to come.
        draft_at: time since which it is a draft, or None.
        added_chars: number of characters that lexicons have added to the text planned so far.
        text: the text, and how far it is planned.
        engine: the context's events for the engine, and what they have reported.
    """

    def __init__(
        self,
        started: ContextStarted,
        settings: ContextSettings,
        planner: Planner,
        events: list[SessionEvent],
        max_text_chars: int,
    ) -> None:
        self.id = started.context_id
        self.number = started.number
        self.settings = settings
        self.state = ContextState.OPEN
        self.sender = ContextSender(started, settings.params["speed"])
        self.ended = False
        self.draft_at: float | None = None
        self.audio_complete = False
        self.num_segments = 0
        self.added_chars = 0
        self.num_flushes = 0
        self.engine = EngineSide(events, self.id, self.number, settings)
        self._max_text_chars = max_text_chars
        lexicon = settings.params.get("lexicon", {})
        self._lexicon_bytes = sum(text_bytes(word) + text_bytes(said) for word, said in lexicon.items())
        self.text = ContextText(planner)
        self._first_text_at: float | None = None
        self._flushes: deque[tuple[int, str | None]] = deque()  # number of segments before the flush, its id
        self._frozen: HeardSpeech | None = None
        self._had_draft = False

    # ---- text ----------------------------------------------------------------------------------------------------

    def check_text(self, text: str) -> None:
        """Check that text can be appended.

        Raises:
            ContextClosed: the text has ended.
            TextTooLong: with this text the context would be too long.
        """
        if self.ended:
            raise ContextClosed("the context's text has ended", field="context_id")
        check_length(self.text.num_chars + len(text), self._max_text_chars)

    def push_text(self, text: str, now: float) -> None:
        """Append text for which `check_text` has passed."""
        if self._first_text_at is None and text.strip():
            self._first_text_at = now
        self.text.push(text, now)

    def flush(self, flush_id: str | None) -> None:
        self.num_flushes += self.draft_at is None  # that of a draft only closes what is made ahead
        self.text.flush(flush_id)

    def commit(self, text: str | None, planner: Planner, now: float) -> None:
        """Turn the draft into a context that is spoken; see `Commit`. The length of `text` was checked."""
        has_ended = self.ended and text is None
        text = self.text.head(self.text.num_chars) if text is None else text
        self.draft_at, self._had_draft = None, True
        self.text, self.ended, self._first_text_at = ContextText(planner), False, None
        self.push_text(text, now)
        if has_ended:
            self.end()

    def end(self) -> None:
        """Mark the text as complete."""
        self.ended = True
        self.text.end()

    def plan(self, max_chars: int, now: float) -> int:
        """Request the segments to speak now, until enough of them wait. Return the work this took, in characters.

        A segment that was not final is extended. Stops soon after `max_chars`. A context without any segment is
        complete when all of its text was planned.

        Raises:
            TextTooLong: lexicons have added too many characters.
        """
        if self.draft_at is not None:
            return self._plan_draft(max_chars, now)
        segments: list[Segment] = []
        num_requested, was_planned, num_chars = self.num_segments, self.text.is_planned, 0
        while self._has_room and num_chars < max_chars and (planned := self.text.step(now)):
            num_chars += planned.num_chars
            for segment in planned.segments:
                self._note_segment(segment)
            segments += planned.segments
            if planned.is_flushed:
                self._flushes.append((self.num_segments, planned.flush_id))
                self._settle_flushes()
        if self.text.is_planned and self.num_segments == 0 and not self.audio_complete:
            self.complete_audio()
        check_added(self.added_chars, self._max_text_chars)
        for segment in segments:
            self.engine.speak(segment, is_new=segment.index >= num_requested)
            num_requested = max(num_requested, segment.index + 1)
        if self.text.is_planned and not was_planned:
            self.engine.end_segments()
        return num_chars

    def _plan_draft(self, max_chars: int, now: float) -> int:
        """Plan until the first segment is complete, and have it made ahead. Return the work this took."""
        num_chars = 0
        while not self.engine.has_draft and num_chars < max_chars and (planned := self.text.step(now)):
            num_chars += planned.num_chars
            first = next((segment for segment in planned.segments if segment.final and not segment.silence_ms), None)
            if first is not None:
                self.engine.draft(first)
        return num_chars

    def _note_segment(self, segment: Segment) -> None:
        self.added_chars += segment.added_chars
        self.sender.aligner.put_segment(segment)
        self.num_segments = max(self.num_segments, segment.index + 1)

    def text_due_at(self, now: float) -> float | None:
        """Return when to `plan` next; `now` if something can be planned at once."""
        return self.text.due_at(now) if self._has_room else None

    @property
    def _has_room(self) -> bool:
        """True if another segment may be planned. An open segment is always the newest and gets its text while it is
        spoken; without room, complete segments are spoken before it. A draft is planned up to its first segment."""
        if self.draft_at is not None and self.engine.has_draft:
            return False
        return not self.state.is_final and self.num_segments - self.sender.aligner.num_done < MAX_UNSPOKEN

    # ---- audio ---------------------------------------------------------------------------------------------------

    def progress(
        self, segment_index: int, audio_ms: float, done: bool, reached: tuple[float, float] | None = None
    ) -> None:
        self.sender.aligner.progress(segment_index, audio_ms, done, reached)
        self._settle_flushes()

    def complete_audio(self, report: SpeechReport = NO_REPORT) -> None:
        """Record that the last packet has been queued."""
        report = report._replace(draft_used=bool(report.draft_used) if self._had_draft else None)
        self.sender.aligner.finish()
        self._settle_flushes()
        self.sender.add_done(self.text.num_chars, self._first_text_at, report)
        self.audio_complete = True
        self.engine.stop()

    @property
    def num_bytes(self) -> int:
        """Approximate memory in use, bytes."""
        flush_bytes = sum(OBJECT_BYTES + text_bytes(flush_id) for _, flush_id in self._flushes)
        return CONTEXT_BYTES + self.text.num_bytes + self.sender.num_bytes + flush_bytes + self._lexicon_bytes

    # ---- the end -------------------------------------------------------------------------------------------------

    def cancel(self, now: float, by_client: bool) -> None:
        """Drop what is queued and queue the terminal message."""
        self.sender.place_late_words()
        self._frozen = self.heard(now)
        cancelled = ContextCancelled(self.id, 0, *self._frozen, by_client, self.unspoken_text)
        self._stop(ContextState.CANCELLED, cancelled)

    def hold(self, message: Hold, now: float) -> HeardSpeech:
        """Stop the speech, which `release` continues. Return what is heard until there. No effect if it is held."""
        clock, aligner = self.sender.clock, self.sender.aligner
        if not clock.is_held:
            self.sender.send_late_words()
            if message.played_ms is None:
                stop_ms = clock.position_ms(now)
            else:
                clock.acknowledge(message.played_ms, now)
                stop_ms = min(message.played_ms, aligner.word_end_ms(clock.sent_ms))  # as far as a word needs it
            clock.hold(aligner.word_end_ms(stop_ms) if message.at == "word" else stop_ms, now)
            if self.audio_complete or aligner.num_done == self.num_segments:
                self.sender.limit_hold()
        return self._heard_at(clock.position_ms(now), math.inf)

    def rest(self) -> bool:
        """Park the engine if the context is held and all audio up to there is made. Return whether it is."""
        if is_over := self.sender.clock.is_held and self.sender.has_all_to_hold:
            self.engine.park()
        return is_over

    def release(self, clause_after_ms: float, now: float) -> float:
        """Continue the speech. Return the position at which it goes on, in ms: the current one if it is not held."""
        clock = self.sender.clock
        from_ms = clock.position_ms(now)
        if clock.held_at is None:
            return from_ms
        if (now - clock.held_at) * 1000 >= clause_after_ms:
            from_ms = self.sender.aligner.clause_start_ms(from_ms, self.text.head(self.text.num_chars))
        clock.release(from_ms, now)
        return from_ms

    def fail(self, error: RealtimeTTSError, next_sequence: int | None = None) -> None:
        """Drop what is queued; audio that was sent will still be heard. `next_sequence`: number of the terminal
        message, after a gap."""
        audio_ms = self.sender.clock.sent_ms
        num_chars = self.sender.aligner.heard_chars(audio_ms)
        failed = ContextFailed(
            context_id=self.id,
            sequence=0,  # numbered when it leaves
            code=error.code,
            message=error.message,
            retryable=error.retryable,
            audio_ms=audio_ms,
            spoken_text=self.text.head(num_chars),
            spoken_chars=num_chars,
        )
        self._stop(ContextState.FAILED, failed, next_sequence)

    def heard(self, now: float) -> HeardSpeech:
        """Return what the listener has heard by now, or had heard when the context was cancelled."""
        if self._frozen is not None:
            return self._frozen
        clock = self.sender.clock
        return self._heard_at(min(clock.position_ms(now), clock.sent_ms), clock.sent_ms)

    def _heard_at(self, played_ms: float, sent_ms: float) -> HeardSpeech:
        """Return what is heard up to a position, if `sent_ms` of audio reach the listener."""
        heard_ms = min(max(played_ms, self.sender.clock.heard_to_ms), sent_ms)
        all_heard = self.state is ContextState.DONE and heard_ms >= self.sender.clock.sent_ms - 0.5
        num_chars = self._num_spoken_chars() if all_heard else self.sender.aligner.heard_chars(heard_ms)
        word_share = 0.0 if all_heard else self.sender.aligner.word_share(heard_ms)
        return HeardSpeech(played_ms, self.text.head(num_chars), num_chars, word_share)

    @property
    def unspoken_text(self) -> str:
        """Text after what the listener had heard when the context was cancelled; empty before that."""
        return "" if self._frozen is None else self.text.head(self.text.num_chars)[self._frozen.spoken_chars :]

    def freeze(self, now: float) -> HeardSpeech:
        """Cancel a context that is over but still playing: playback stops here, and no audio is sent again."""
        self.sender.drop()
        self._frozen = self.heard(now)
        return self._frozen

    def resend(self, missing: Missing, now: float) -> str:
        """Send again what a reconnected client lacks. Return the state for `ResumedContext`."""
        clock = self.sender.clock
        if self.state.is_final and clock.is_held:  # nothing else would release it, and what is lacking would stay here
            clock.release(clock.position_ms(now), now)
        self.sender.resend(missing.messages, now)
        if not self.state.is_final:
            return "open"
        is_unwanted = self._frozen is not None
        if is_unwanted or missing.has_gap:
            self.sender.drop(next_sequence=missing.first)
        # If the client has cancelled the context, only its start and its end can be missing.
        has_ends = missing.first > 0 and is_unwanted and not self.sender.is_empty
        return "lost" if missing.has_gap and not has_ends else "finished"

    def _stop(self, state: ContextState, message: TerminalMessage, next_sequence: int | None = None) -> None:
        if self.state.is_final:
            raise AssertionError(f"context {self.id} ends twice: {self.state.value}, then {state.value}")
        self.state = state
        self.engine.stop()
        self.text.close()
        self._flushes.clear()
        self.sender.end(message, next_sequence)

    def _num_spoken_chars(self) -> int:
        """Number of characters of a context heard to its end: with its last punctuation, without unspoken text after
        its last word."""
        if self.num_segments == 0:
            return 0
        silent_from = self.text.silent_from
        return self.text.num_chars if silent_from is None else silent_from

    def _settle_flushes(self) -> None:
        while self._flushes and self._flushes[0][0] <= self.sender.aligner.num_done:
            _, flush_id = self._flushes.popleft()
            self.sender.add_flushed(flush_id)


def check_length(num_chars: int, max_text_chars: int) -> None:
    """Check the length of a context's text.

    Raises:
        TextTooLong: it has more than `max_text_chars` characters.
    """
    if num_chars > max_text_chars:
        raise TextTooLong(f"a context takes at most {max_text_chars} characters", field="text")


def check_added(added_chars: int, max_text_chars: int) -> None:
    """Check that lexicons have not added more characters to a text than a text may have.

    Raises:
        TextTooLong: more characters were added.
    """
    if added_chars > max_text_chars:
        raise TextTooLong(
            f"the lexicon makes the text longer by more than {max_text_chars} characters", field="lexicon"
        )
