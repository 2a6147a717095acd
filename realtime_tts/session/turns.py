"""The contexts of a session as the engine's side sees them: what it is asked to start, to stop, to hurry."""

from __future__ import annotations

from collections.abc import Sequence

from realtime_tts.errors import RealtimeTTSError
from realtime_tts.session.context import Context
from realtime_tts.session.contexts import ContextTable
from realtime_tts.session.events import (
    CancelContext,
    CloseContext,
    EndOfSegments,
    PlaybackChanged,
    PriorityChanged,
    SessionEvent,
    StartSpeech,
)
from realtime_tts.session.planning import Segment
from realtime_tts.session.sender import Sender


class Turns:
    """Every change of a context's state goes through here, so that client and engine always learn of it."""

    def __init__(self, contexts: ContextTable, sender: Sender) -> None:
        self._contexts = contexts
        self._sender = sender
        self._events: list[SessionEvent] = []

    def post(self, event: SessionEvent) -> None:
        self._events.append(event)

    def drain_events(self) -> list[SessionEvent]:
        events, self._events = self._events, []
        return events

    def open(self, context: Context) -> None:
        self._contexts.add(context)
        self._sender.post(context)
        self._rerank()

    def speak(self, context: Context, segments: Sequence[Segment]) -> None:
        self._events += [
            StartSpeech(context.id, context.number, segment, context.settings, context.priority) for segment in segments
        ]

    def end_text(self, context: Context, now: float) -> None:
        self.speak(context, context.end(now))
        if context.num_segments:
            self._events.append(EndOfSegments(context.id))

    def complete_audio(self, context: Context) -> None:
        context.complete_audio()
        self._events.append(CloseContext(context.id))

    def finish(self, context: Context) -> None:
        """Its last message has left."""
        context.finish()
        self._retire(context)

    def cancel(self, context: Context, now: float) -> None:
        context.cancel(now)
        self._abort(context)

    def fail(self, context: Context, error: RealtimeTTSError, next_sequence: int | None = None) -> None:
        """`next_sequence`: of the terminal message, after a gap in what the client has."""
        context.fail(error, next_sequence)
        self._abort(context)

    def report_playback(self, context: Context, now: float, *, is_flowing: bool) -> None:
        """The engine stays a little ahead of playback; while nothing can be sent, it is to stop as if paused."""
        if context.engine_works and not context.state.is_final:
            clock = context.outflow.clock
            self._events.append(PlaybackChanged(context.id, clock.position_ms(now), clock.paused or not is_flowing))

    def _abort(self, context: Context) -> None:
        self._sender.post(context)
        if context.engine_works:
            self._events.append(CancelContext(context.id))
        self._retire(context)

    def _retire(self, context: Context) -> None:
        for dropped in self._contexts.retire(context):
            self._sender.retained.forget(dropped)
        self._rerank()

    def _rerank(self) -> None:
        for context in self._contexts.rerank():
            if context.engine_works:
                self._events.append(PriorityChanged(context.id, context.priority))
