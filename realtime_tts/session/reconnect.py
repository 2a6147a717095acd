"""A client comes back and says what it has: find out what it lacks, context by context."""

from __future__ import annotations

from realtime_tts.errors import ResumeGap
from realtime_tts.session.context import Context
from realtime_tts.session.contexts import ContextTable
from realtime_tts.session.messages import ContextMessage, Resume, ResumedContext
from realtime_tts.session.sender import Sender
from realtime_tts.session.turns import Turns


def resume_contexts(
    message: Resume, contexts: ContextTable, turns: Turns, sender: Sender, now: float
) -> tuple[ResumedContext, ...]:
    """Queue again what the client lacks. Open contexts that it does not list are cancelled; those with a gap fail."""
    for context in [c for c in contexts.open.values() if c.id not in message.contexts]:
        turns.cancel(context, now)
    found = []
    for context_id, last_sequence in message.contexts.items():
        listed = contexts.get(context_id)
        if listed is None:
            state = "unknown" if contexts.ended_as(context_id) is None else "lost"
            found.append(ResumedContext(context_id, state))
        else:
            found.append(_resume_context(listed, last_sequence, turns, sender, now))
    return tuple(found)


def _resume_context(context: Context, last_sequence: int, turns: Turns, sender: Sender, now: float) -> ResumedContext:
    """`last_sequence` may be any integer: more than was sent means everything, less than -1 means nothing."""
    outflow = context.outflow
    first = max(-1, min(last_sequence, outflow.next_sequence - 1)) + 1
    missing = sender.retained.take_after(context.id, first - 1)
    has_gap = first < (missing[0].sequence if missing else outflow.next_sequence)
    if context.state.is_final:
        state = _resend_finished(context, missing, first, has_gap, now)
    elif has_gap:
        turns.fail(context, ResumeGap("messages that the client lacks are no longer held"), next_sequence=first)
        state = "lost"
    else:
        outflow.resend(missing, now)
        state = "open"
    return ResumedContext(
        context_id=context.id,
        state=state,
        number=context.number,
        received_chars=context.num_chars,
        ended=context.ended,
        num_flushes=context.num_flushes,
    )


def _resend_finished(context: Context, missing: list[ContextMessage], first: int, has_gap: bool, now: float) -> str:
    context.outflow.resend(missing, now)
    if context.is_unwanted or has_gap:
        context.outflow.drop(next_sequence=first)
    # Of a context that the client has cancelled, nothing but the start and the end can be missed.
    has_ends = first > 0 and context.is_unwanted and context.outflow.has_ready
    if has_gap and not has_ends:
        return "lost"
    return "finished"
