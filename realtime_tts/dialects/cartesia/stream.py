"""Cartesia's WebSocket: JSON in both directions, audio in base64, many contexts on one socket.

The field `continue` of an input says whether more will follow; the last input ends its context. Every error ends its
context too, as Cartesia's clients expect: later text for the context is refused. After a cancel it is ignored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from realtime_tts.contract.speech_params import given
from realtime_tts.dialects.base import Dialect, Habits, joined_notices
from realtime_tts.dialects.cartesia import events
from realtime_tts.dialects.cartesia.events import WordTimes
from realtime_tts.dialects.cartesia.requests import Input
from realtime_tts.dialects.json_input import Body, load_object, required
from realtime_tts.errors import ERROR_CLASSES, ContextClosed, InvalidMessage, InvalidRequest, RealtimeTTSError
from realtime_tts.session import messages
from realtime_tts.session.settings import MAX_ID_CHARS

_MAX_OVER = 1024  # ids of ended contexts to remember
_TRANSCRIPT = "transcript"  # field of the errors about text that has no context


@dataclass(slots=True)
class _Context:
    """State of a context for its answers.

    Attributes:
        num_flushed: number of flushes that were answered.
        has_ended: the last input has arrived.
        notice: sent with the end of the context, since Cartesia has no message for notices.
    """

    wants_words: bool
    num_flushed: int = 0
    has_ended: bool = False
    times: WordTimes = field(default_factory=WordTimes)
    notice: str | None = None


class _Named(Body):
    context_id: str | None = None


class CartesiaDialect(Dialect):
    """One socket of `/tts/websocket`.

    Args:
        request_id: names the connection in errors.
        adapter_of: returns the adapter in a model's name; raises a typed error for an unknown model.
    """

    habits = Habits(errors_end="context", needs_audio=True, min_idle_s=300.0)

    def __init__(self, request_id: str, adapter_of: Callable[[str | None], str | None] = lambda model: None) -> None:
        self._request_id, self._adapter_of = request_id, adapter_of
        self._contexts: dict[str, _Context] = {}  # open contexts: their end was not sent yet
        self._over: OrderedDict[str, bool] = OrderedDict()  # ids that are not used again: whether later text is refused
        self._num_unnamed = 0

    # ---- from the client -----------------------------------------------------------------------------------------

    def parse(self, frame: str | bytes, max_bytes: int) -> list[messages.ClientMessage]:
        values = load_object(frame, max_bytes)
        context_id = self._read_id(_Named.of(values).context_id)
        try:
            return list(self._read(Input.of(values), context_id))
        except RealtimeTTSError as error:
            error.context_id = context_id
            raise

    def _read_id(self, context_id: str | None) -> str:
        if context_id is None:
            self._num_unnamed += 1
            return f"context-{self._num_unnamed}"
        if not 0 < len(context_id) <= MAX_ID_CHARS:
            raise InvalidMessage(f"context_id has 1 to {MAX_ID_CHARS} characters", field="context_id")
        return context_id

    def _read(self, input_: Input, context_id: str) -> Iterator[messages.ClientMessage]:
        if context_id in self._over:
            if self._over[context_id] and not input_.cancel and (input_.transcript or "").strip():
                raise ContextClosed("the context has ended with an error; use another context_id", field=_TRANSCRIPT)
            return
        if input_.cancel:
            if context_id in self._contexts:
                self._end(context_id, refuses_text=False)
            yield messages.CancelRequest(context_id)
            return
        opening = None if context_id in self._contexts else self._read_opening(input_, context_id)
        text, flush = input_.spoken()
        if opening is not None:
            self._contexts[context_id] = _Context(input_.add_timestamps)
        context = self._contexts[context_id]
        if context.has_ended:
            if text.strip():
                raise InvalidRequest("this context has ended: its last input had continue false", field=_TRANSCRIPT)
            return  # some clients send the last input twice
        context.has_ended = not input_.continue_
        yield replace(opening or messages.Text(context_id, ""), text=text)
        if flush:
            yield messages.Flush(context_id)
        if context.has_ended:
            yield messages.End(context_id)

    def _read_opening(self, input_: Input, context_id: str) -> messages.Text:
        """Return the message that opens a context, without its text. Options of later inputs are ignored."""
        params = input_.params() | given(adapter=self._adapter_of(input_.model_id))
        audio = required(input_.output_format, "output_format").raw()
        return messages.Text(context_id, "", input_.voice.id, audio, params, input_.dictionaries())

    def _end(self, context_id: str, *, refuses_text: bool) -> None:
        """Refuse further text of a context, or ignore it."""
        self._over.setdefault(context_id, refuses_text)
        while len(self._over) > _MAX_OVER:
            self._over.popitem(last=False)

    # ---- to the client -------------------------------------------------------------------------------------------

    def serialize(self, message: messages.ServerMessage) -> list[str]:
        if isinstance(message, messages.ErrorMessage):
            return self._render_error(message, is_late=message.field == _TRANSCRIPT)
        if isinstance(message, messages.KeepAlive):
            told = [(key, self._contexts.get(key)) for key in message.context_ids]
            # An event that clients accept at any time during a turn.
            return [events.flush_done(key, context.num_flushed) for key, context in told if context is not None]
        context_id = getattr(message, "context_id", None)
        if context_id is None or (context := self._contexts.get(context_id)) is None:
            return []
        if isinstance(message, messages.AudioPackets):
            flush_id = context.num_flushed + 1
            return [events.chunk(context_id, payload, flush_id=flush_id) for payload in message.packets.payloads]
        if isinstance(message, messages.Words) and message.words and context.wants_words:
            words = context.times.apart(message.words)
            return [events.timestamps(context_id, words, flush_id=context.num_flushed + 1)]
        if isinstance(message, messages.Flushed):
            context.num_flushed += 1
            return [events.flush_done(context_id, context.num_flushed)]
        if isinstance(message, messages.ContextDone | messages.ContextCancelled):
            del self._contexts[context_id]
            return [events.done(context_id, context.notice)]
        if isinstance(message, messages.WarningMessage):
            context.notice = joined_notices(context.notice, message.message)
        if isinstance(message, messages.ContextFailed):
            return self._render_error(message)
        return []

    def _render_error(
        self, message: messages.ErrorMessage | messages.ContextFailed, *, is_late: bool = False
    ) -> list[str]:
        """Return the event of an error. `is_late`: it is about text that was sent after the end of its context."""
        if (context_id := message.context_id) is not None:
            if self._contexts.pop(context_id, None) is None and context_id in self._over and not is_late:
                return []  # its end was sent
            self._end(context_id, refuses_text=True)
        status = ERROR_CLASSES.get(message.code, RealtimeTTSError).http_status
        return [events.error(context_id, message.code, status, message.message, self._request_id)]
