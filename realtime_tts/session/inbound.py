"""What a client's messages do. Every method raises a typed error for what the client must mend."""

from __future__ import annotations

from realtime_tts.errors import (
    ContextClosed,
    Draining,
    InvalidMessage,
    InvalidRequest,
    RealtimeTTSError,
    TextTooLong,
    TooManyContexts,
)
from realtime_tts.session.context import Context, ContextState
from realtime_tts.session.contexts import ContextTable
from realtime_tts.session.messages import (
    Cancel,
    CancelAcknowledged,
    ClientMessage,
    End,
    Flush,
    Ping,
    Playback,
    Pong,
    StartSession,
    Text,
)
from realtime_tts.session.opening import ContextFactory
from realtime_tts.session.sender import Sender
from realtime_tts.session.settings import SessionConfig
from realtime_tts.session.turns import Turns


class Inbound:
    """The receiving side of a session."""

    def __init__(
        self, config: SessionConfig, factory: ContextFactory, contexts: ContextTable, turns: Turns, sender: Sender
    ) -> None:
        self.is_draining = False
        self.num_bad = 0  # mistakes in a row
        self._config = config
        self._factory = factory
        self._contexts = contexts
        self._turns = turns
        self._sender = sender
        self._announced = False

    def act(self, message: ClientMessage, now: float, *, is_flowing: bool) -> None:
        """Do what the message says.

        Raises:
            RealtimeTTSError: it is refused, and has changed nothing.
        """
        if isinstance(message, Text):
            self._on_text(message, now)
        elif isinstance(message, Playback):
            self._on_playback(message, now, is_flowing)
        elif isinstance(message, Flush):
            context = self._require(message.context_id)
            self._turns.speak(context, context.flush(message.flush_id, now))
        elif isinstance(message, End):
            context = self._require(message.context_id)
            if not context.ended:
                self._turns.end_text(context, now)
        elif isinstance(message, Cancel):
            self._on_cancel(message.context_id, now)
        elif isinstance(message, StartSession):
            self._on_start(message)
        elif isinstance(message, Ping):
            self._sender.post(Pong(message.id))
        else:
            raise InvalidMessage("session.resume must be the first message of a connection", field="type")
        self.num_bad = 0

    def count(self, error: RealtimeTTSError) -> bool:
        """Count a refusal; True if the client has made too many mistakes in a row.

        Limits are no mistakes, and a message for a closed context is a race that a correct client can lose.
        """
        if isinstance(error, InvalidRequest) and not isinstance(error, ContextClosed):
            self.num_bad += 1
        return self.num_bad >= self._config.max_consecutive_errors

    def _on_start(self, message: StartSession) -> None:
        if self._contexts.any_yet:
            raise InvalidMessage("session.start comes before the first context", field="type")
        self._factory.configure(message)
        self._announce()

    def _announce(self) -> None:
        self._announced = True
        self._sender.post(self._factory.session_started())

    def _on_text(self, message: Text, now: float) -> None:
        context = self._contexts.open.get(message.context_id) or self._open(message)
        self._turns.speak(context, context.push_text(message.text, self._config.max_text_chars, now))

    def _open(self, message: Text) -> Context:
        self._check_new(message)
        context = self._factory.make(message, self._contexts.take_number)
        if not self._announced:
            self._announce()
        self._turns.open(context)
        return context

    def _check_new(self, message: Text) -> None:
        if not 1 <= len(message.context_id) <= self._config.max_id_chars:
            raise InvalidMessage(f"a context_id has 1 to {self._config.max_id_chars} characters", field="context_id")
        self._check_unused(message.context_id)
        if self.is_draining:
            raise Draining("the server is shutting down")
        if len(self._contexts.open) >= self._config.max_contexts:
            raise TooManyContexts(f"at most {self._config.max_contexts} contexts at a time", field="context_id")
        if len(message.text) > self._config.max_text_chars:
            raise TextTooLong(f"a context takes at most {self._config.max_text_chars} characters", field="text")

    def _on_cancel(self, context_id: str | None, now: float) -> None:
        targets = [c for c in self._contexts.open.values() if context_id in (None, c.id)]
        over = [c for c in self._contexts.finished.values() if context_id in (None, c.id)]
        for context in targets:
            self._turns.cancel(context, now)
        for context in over:
            heard = context.freeze(now)
            if context_id is not None or context.state is ContextState.DONE:
                self._sender.post(CancelAcknowledged(context.id, context.state.value, *heard))
        if context_id is None:
            self._sender.post(CancelAcknowledged(None, "all"))
        elif not targets and not over:
            self._sender.post(CancelAcknowledged(context_id, self._contexts.ended_as(context_id) or "unknown"))

    def _on_playback(self, message: Playback, now: float, is_flowing: bool) -> None:
        context = self._contexts.get(message.context_id)
        if context is None:
            return  # a late one, of a context that is long over
        clock = context.outflow.clock
        clock.acknowledge(message.played_ms, now)
        played_samples = clock.position_ms(now) * context.settings.audio.sample_rate / 1000
        self._sender.retained.acknowledge(context.id, played_samples)
        self._turns.report_playback(context, now, is_flowing=is_flowing)

    def _require(self, context_id: str) -> Context:
        if (context := self._contexts.open.get(context_id)) is not None:
            return context
        self._check_unused(context_id)
        raise InvalidRequest("no such context", field="context_id")

    def _check_unused(self, context_id: str) -> None:
        if (state := self._contexts.ended_as(context_id)) is not None:
            raise ContextClosed(f"the context is {state}", field="context_id")
