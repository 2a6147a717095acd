"""A client comes back and says what it has: find out what it lacks, context by context."""

from __future__ import annotations

from realtime_tts.errors import ResumeGap
from realtime_tts.session.context import Context
from realtime_tts.session.contexts import ContextTable
from realtime_tts.session.messages import ContextMessage, ResumedContext
from realtime_tts.session.resume import ResumeBuffer


def resume_context(
    context_id: str, last_sequence: int, contexts: ContextTable, retained: ResumeBuffer, now: float
) -> ResumedContext:
    """Queue again what the client lacks of one context; an open one that has a gap fails.

    `last_sequence` may be any integer: more than was sent means everything, less than -1 means nothing.
    """
    context = contexts.get(context_id)
    if context is None:
        state = "unknown" if contexts.ended_as(context_id) is None else "lost"
        return ResumedContext(context_id, state)
    first = max(-1, min(last_sequence, context.outflow.next_sequence - 1)) + 1
    missing = retained.take_after(context_id, first - 1)
    has_gap = first < (missing[0].sequence if missing else context.outflow.next_sequence)
    if context.state.is_final:
        state = _resend_finished(context, missing, first, has_gap, now)
    elif has_gap:
        context.fail(ResumeGap("messages that the client lacks are no longer held"), next_sequence=first)
        state = "lost"
    else:
        context.outflow.resend(missing, now)
        state = "open"
    return ResumedContext(context_id, state, context.number, context.num_chars, context.ended, context.num_flushes)


def _resend_finished(context: Context, missing: list[ContextMessage], first: int, has_gap: bool, now: float) -> str:
    context.outflow.resend(missing, now)
    if context.is_unwanted or has_gap:
        context.outflow.drop(next_sequence=first)
    if has_gap and not (context.is_unwanted and context.outflow.has_ready):
        return "lost"
    return "finished"
