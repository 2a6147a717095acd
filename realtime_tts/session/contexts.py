"""Contexts of one session, with their audio, their time limits and their ends."""

from __future__ import annotations

import math
from collections import OrderedDict

from realtime_tts.audio.packets import Packets
from realtime_tts.errors import ContextClosed, InternalError, InvalidRequest, RealtimeTTSError, ResumeGap
from realtime_tts.session import messages
from realtime_tts.session.connection import ConnectionState, SessionState
from realtime_tts.session.context import Context, ContextState
from realtime_tts.session.memory import (
    ID_BYTES,
    ITEM_BYTES,
    OBJECT_BYTES,
    RETAINED_BYTES,
    MemoryLimit,
    message_bytes,
    packets_bytes,
    text_bytes,
)
from realtime_tts.session.sender import ContextSender, SessionSender
from realtime_tts.session.settings import ContextSettings, SessionConfig
from realtime_tts.text.planner import Planner

AHEAD_MS = 1000.0  # lead from which a delay of some 10 ms is harmless
PLAN_CHARS = 32  # characters planned before other sessions get their turn: one stretch
MAX_FINISHED = 16  # kept whole: they may still be playing, or be asked for after a reconnect
MAX_REMEMBERED = 1024  # ids, with their final states


class Contexts:
    """Owner of one session's contexts by id, oldest first: open ones, recently finished ones, and the ids already used.

    Takes the engine's audio. Reports each change of a context to the client, through `sender`, and to the engine, as
    an event appended to `events`.

    Attributes:
        ended: done, cancelled or failed by the id of a context that is over, until it is forgotten.
        last_number: number of the newest context. They count from 1 and are never reused.
    """

    def __init__(
        self,
        config: SessionConfig,
        connection: ConnectionState,
        sender: SessionSender,
        memory: MemoryLimit,
        events: list[messages.SessionEvent],
    ) -> None:
        self.open: dict[str, Context] = {}
        self.finished: dict[str, Context] = {}
        self.ended: OrderedDict[str, str] = OrderedDict()
        self.last_number = 0
        self.config, self.connection, self.sender, self._memory = config, connection, sender, memory
        self._events = events

    # ---- the table -----------------------------------------------------------------------------------------------

    def add(self, context_id: str, settings: ContextSettings, planner: Planner, *, is_draft: bool) -> Context:
        """Open a context."""
        self.last_number += 1
        started = messages.ContextStarted(
            context_id=context_id,
            sequence=0,
            number=self.last_number,
            voice=settings.voice,
            seed=settings.params["seed"],
            audio=settings.audio,
        )
        context = Context(started, settings, planner, self._events, self.config.max_text_chars)
        context.draft_at = self.connection.now if is_draft else None
        self.open[context_id] = context
        self.sender.post(context.sender)
        self.rank()
        self._memory.add_unknown()
        return context

    def get(self, context_id: str) -> Context | None:
        """Return an open or a recently finished context."""
        return self.open.get(context_id) or self.finished.get(context_id)

    def require(self, context_id: str) -> Context:
        """Return an open context.

        Raises:
            ContextClosed, InvalidRequest: there is none with this id.
        """
        if (context := self.open.get(context_id)) is not None:
            return context
        self.check_unused(context_id)
        raise InvalidRequest("unknown context", field="context_id")

    def check_unused(self, context_id: str) -> None:
        """Raise ContextClosed if a context with this id is over."""
        if (state := self.ended.get(context_id)) is not None:
            raise ContextClosed(f"the context is {state}", field="context_id")

    def refuse(self, context_id: str) -> None:
        """Record that no context was opened under this id; the rest of its text must not open it either."""
        if context_id not in self.ended:
            self._remember(context_id, ContextState.FAILED)

    def drop_finished(self, num_kept: int) -> None:
        """Keep this many finished contexts, and those that still have something to send."""
        settled = [key for key, kept in self.finished.items() if kept.sender.is_empty]
        for key in settled[: max(0, len(self.finished) - num_kept)]:
            del self.finished[key]
            self.sender.retained.forget(key)

    @property
    def num_bytes(self) -> int:
        """Approximate memory that the client occupies, in bytes, with all that waits for it or was sent."""
        ids_bytes = sum(ID_BYTES + text_bytes(context_id) for context_id in self.ended)
        contexts_bytes = sum(c.num_bytes for c in (*self.open.values(), *self.finished.values()))
        return ids_bytes + contexts_bytes + self.sender.num_bytes

    @property
    def has_late(self) -> bool:
        """True if a finished context still has something to send."""
        return any(not context.sender.is_empty for context in self.finished.values())

    def sending(self) -> list[ContextSender]:
        """Return the senders that may have something to send, newest first."""
        sending = [context.sender for context in reversed(self.open.values())]
        if self.finished:
            sending += [context.sender for context in self.finished.values() if not context.sender.is_empty]
        return sending

    def rank(self) -> None:
        """Give the highest priority to the newest open context, or to the oldest where contexts are spoken in turn;
        drafts have none."""
        spoken = [context for context in self.open.values() if context.draft_at is None]
        for rank, context in enumerate(spoken if self.config.in_turn else reversed(spoken)):
            context.engine.set_priority(min(rank, 1))

    def _remember(self, context_id: str, state: ContextState) -> None:
        self.ended[context_id] = state.value
        while len(self.ended) > MAX_REMEMBERED:
            self.ended.popitem(last=False)

    # ---- from the engine; ignored once the context is over ---------------------------------------------------------

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
                self.fail(context, InternalError(f"more than {self.config.max_queued_s:g} s of audio wait to be sent"))

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
            # Messages of a client that reads are taken soon, at most a batch later, and memory is checked then.
            is_waiting = not self.connection.is_flowing and not context.engine.is_parked
            if is_waiting and self.num_bytes > self.config.max_session_bytes / 4:
                context.engine.park()
            if done:
                self.plan(context)

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
            self.fail(context, error)

    def is_ahead(self, context_id: str, now: float) -> bool:
        """Return True if the listener has enough audio buffered that a short delay is harmless."""
        context = self._live(context_id, now)
        return context is not None and context.sender.lead_ms(self.connection.now) >= AHEAD_MS

    def _live(self, context_id: str, now: float) -> Context | None:
        self.connection.advance(now)
        return self.open.get(context_id)

    # ---- time ----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what is due of the open contexts."""
        num_chars, now = PLAN_CHARS, self.connection.now
        for context in reversed(list(self.open.values())):
            if num_chars > 0:
                num_chars -= self.plan(context, num_chars)
            if context.sender.clock.poll(now):
                self.report_playback(context)
            if not context.state.is_final and now >= self._times_out_at(context):  # planning may have failed it
                self.cancel(context)

    def next_deadline(self) -> float:
        """Return when to `tick` again."""
        due, now = math.inf, self.connection.now
        for context in self.open.values():
            if not self._waits(context) and (at := context.text_due_at(now)) is not None and at < due:
                due = at
            if (at := context.sender.clock.pause_due_at()) is not None and at < due:
                due = at
            due = min(due, self._times_out_at(context))
        return due

    def _times_out_at(self, context: Context) -> float:
        """Return when the time limit of a hold or of a draft ends and the context is cancelled; infinite if it is
        neither held nor a draft."""
        if (held_at := context.sender.clock.held_at) is not None:
            return held_at + self.config.hold_timeout_s
        return math.inf if context.draft_at is None else context.draft_at + self.config.draft_timeout_s

    # ---- changes, reported to both client and engine ---------------------------------------------------------------

    def plan(self, context: Context, max_chars: int | None = None) -> int:
        """Have the next segments spoken and warn the client of text that is not. Return the work done, in characters.

        Text beyond `max_chars` (`PLAN_CHARS`) is planned at the next tick: other sessions get their turn in between.
        """
        max_chars = PLAN_CHARS if max_chars is None else max_chars
        if self._waits(context):
            return 0
        try:
            num_chars = context.plan(max_chars, self.connection.now)
        except RealtimeTTSError as error:
            self.fail(context, error)
            return max_chars
        except Exception as error:
            self.crash(context, error)
            return max_chars
        self._memory.add(ITEM_BYTES * num_chars)  # a word and a range that is not spoken have two characters at least
        # Otherwise they stay collected for a later call.
        if self.connection.state is SessionState.CONNECTED and context.draft_at is None:
            for code, message, spans in context.text.take_warnings():
                self.sender.post(messages.WarningMessage(context.id, code, message, spans))
        return num_chars

    def _waits(self, context: Context) -> bool:
        """Return True if contexts are spoken in turn and this one's turn has not come."""
        return self.config.in_turn and context is not next(iter(self.open.values()), context)

    def report_playback(self, context: Context) -> None:
        """Report the playback position to the engine, which stays a little ahead of it. While nothing can be sent,
        report a pause."""
        now, clock = self.connection.now, context.sender.clock
        if context.rest():
            return
        # Up to where a context is held, audio is made as if it were played: the rest of a word may be due.
        paused = (clock.paused and not clock.is_held) or not self.connection.is_flowing
        context.engine.report_playback(clock.position_ms(now), paused, now)

    def report_all(self) -> None:
        for context in self.open.values():
            self.report_playback(context)

    def sent(self, message: messages.ServerMessage) -> None:
        """Record that a message has left."""
        if isinstance(message, messages.AudioPackets):
            self._memory.add(RETAINED_BYTES + OBJECT_BYTES)  # the packets were counted when they were queued
            context = self.open.get(message.context_id) or self.finished[message.context_id]
            if context.sender.take_restart():
                self.report_playback(context)
            return
        self._memory.add(RETAINED_BYTES + 2 * message_bytes(message))
        if isinstance(message, messages.ContextDone) and message.context_id in self.open:
            context = self.open[message.context_id]
            context.state = ContextState.DONE
            self._retire(context)

    def resume(self, context_id: str, last_sequence: int) -> messages.ResumedContext:
        """Queue again what a reconnected client lacks after this number."""
        context = self.get(context_id)
        if context is None:
            return messages.ResumedContext(context_id, "lost" if context_id in self.ended else "unknown")
        missing = self.sender.retained.take_missing(context_id, last_sequence, context.sender.next_sequence)
        if missing.has_gap and not context.state.is_final:
            gap = ResumeGap("messages that the client lacks are no longer kept")
            self.fail(context, gap, next_sequence=missing.first)
            state = "lost"
        else:
            state = context.resend(missing, self.connection.now)
        return messages.ResumedContext(
            context_id=context_id,
            state=state,
            number=context.number,
            received_chars=context.text.num_chars,
            ended=context.ended,
            num_flushes=context.num_flushes,
            draft=context.draft_at is not None,
        )

    def cancel(self, context: Context, by_client: bool = False) -> None:
        try:
            context.cancel(self.connection.now, by_client and context.draft_at is None)
        except Exception as error:  # what was heard is unknown; the other contexts are cancelled all the same
            self.crash(context, error)
        else:
            self._abort(context)

    def crash(self, context: Context, error: Exception, next_sequence: int | None = None) -> None:
        """Fail a context because of an unexpected exception, which is reported to be logged."""
        self._events.append(messages.Crashed(error))
        context.fail(InternalError("unexpected error in the server"), next_sequence)
        self._abort(context)

    def fail(self, context: Context, error: RealtimeTTSError, next_sequence: int | None = None) -> None:
        """Fail the context. `next_sequence`: number of the terminal message, after a gap in the client's messages."""
        try:
            context.sender.place_late_words()
        except Exception as crash:  # what was sent is unknown
            self.crash(context, crash, next_sequence)
        else:
            context.fail(error, next_sequence)
            self._abort(context)

    def _abort(self, context: Context) -> None:
        self.sender.post(context.sender)
        self._retire(context)

    def _retire(self, context: Context) -> None:
        """Move a context in a final state to the finished ones."""
        del self.open[context.id]
        self.finished[context.id] = context
        self._remember(context.id, context.state)
        self._memory.add_unknown()
        self.drop_finished(MAX_FINISHED)
        self.rank()
