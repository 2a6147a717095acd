"""Execution of a client's messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import assert_never

from realtime_tts.errors import InvalidMessage, InvalidRequest, RealtimeTTSError, TooManyContexts
from realtime_tts.session import messages
from realtime_tts.session.connection import CLIENT_LEFT, Close
from realtime_tts.session.context import Context, ContextState, check_length
from realtime_tts.session.contexts import Contexts
from realtime_tts.session.settings import MAX_ID_CHARS, Choices, ContextSettings
from realtime_tts.text.planner import Planner


class MessageHandler:
    """Executes the messages of one client. Owner of the defaults of its contexts.

    Args:
        resolve, make_planner, refuse, charge: as in `Session`.
    """

    def __init__(
        self,
        session_id: str,
        contexts: Contexts,
        resolve: Callable[[Choices, Choices], ContextSettings],
        make_planner: Callable[[ContextSettings], Planner],
        refuse: Callable[[], RealtimeTTSError | None],
        charge: Callable[[int], RealtimeTTSError | None],
    ) -> None:
        self._session_id, self._contexts = session_id, contexts
        self._config, self._connection, self._sender = contexts.config, contexts.connection, contexts.sender
        self._resolve, self._make_planner = resolve, make_planner
        self._refuse_new, self._charge = refuse, charge
        self._defaults = Choices()
        self._announced = False  # `SessionStarted` was posted

    def act(self, message: messages.ClientMessage) -> Close | None:  # noqa: C901 (one branch for each message)
        """Execute the message. Return how the session closes at once, or None.

        Raises:
            RealtimeTTSError: the message is refused and has changed nothing.
        """
        self._check_ids(message)
        match message:
            case messages.Text():
                self._on_text(message)
            case messages.PlaybackReport():
                self._on_playback(message)
            case messages.Commit():
                self._on_commit(message)
            case messages.Flush():
                context = self._contexts.require(message.context_id)
                context.flush(message.flush_id)
                self._contexts.plan(context)
            case messages.End():
                context = self._contexts.require(message.context_id)
                if not context.ended:
                    context.end()
                    self._contexts.plan(context)
            case messages.CancelRequest():
                self._on_cancel(message.context_id)
            case messages.Hold():
                self._on_hold(message)
            case messages.Release():
                self._on_release(message)
            case messages.StartSession():
                self._on_start(message)
            case messages.Ping():
                self._sender.post(messages.Pong(message.id))
            case messages.Leave():
                if message.at_once:
                    return CLIENT_LEFT
                self._connection.closes_as = self._connection.closes_as or CLIENT_LEFT
            case messages.Resume():
                raise InvalidMessage("session.resume must be the first message of a connection", field="type")
            case _:
                assert_never(message)
        return None

    def _check_ids(self, message: messages.ClientMessage) -> None:
        """Check the length of every id in the message: ids are kept and sent back."""
        for name in ("context_id", "flush_id", "id"):
            value = getattr(message, name, None)
            if value is not None and len(value) > MAX_ID_CHARS:
                raise InvalidMessage(f"{name} may have at most {MAX_ID_CHARS} characters, got {len(value)}", field=name)
        if getattr(message, "context_id", None) == "":
            raise InvalidMessage("context_id is empty", field="context_id")

    # ---- text ----------------------------------------------------------------------------------------------------

    def _on_text(self, message: messages.Text) -> None:
        context = self._contexts.open.get(message.context_id)
        if context is None:
            context = self._open(message)
        else:
            try:
                context.check_text(message.text)
                self._charge_text(message.text, is_draft=context.draft_at is not None)
            except RealtimeTTSError as error:
                start = context.text.num_chars
                error.span = (start, start + len(message.text))
                raise
        context.push_text(message.text, self._connection.now)
        self._contexts.plan(context)

    def _charge_text(self, text: str, *, is_draft: bool) -> None:
        """Charge text that would be accepted otherwise; that of a draft is charged with its commit."""
        if (refusal := self._charge(0 if is_draft else len(text))) is not None:
            raise refusal

    def _on_start(self, message: messages.StartSession) -> None:
        if self._contexts.last_number:
            raise InvalidMessage("session.start must come before the first context", field="type")
        self._announce(message)

    def _announce(self, defaults: Choices) -> None:
        """Set and report the session's defaults. A seed that the client left open differs from context to context."""
        settled = self._resolve(defaults, Choices())
        self._defaults, self._announced = defaults, True
        params = settled.params.copy()
        if "seed" not in defaults.params:
            del params["seed"]
        config = self._config
        self._sender.post(
            messages.SessionStarted(self._session_id, config.model, settled.voice, settled.audio, params, config.limits)
        )

    def _open(self, message: messages.Text) -> Context:
        """Return a new context for its opening message, whose text is not added yet."""
        self._contexts.check_unused(message.context_id)
        self._connection.check_new_context()
        check_length(len(message.text), self._config.max_text_chars)
        settings = self._resolve(self._defaults, Choices(message.voice, message.audio, message.params))
        planner = self._make_planner(settings)
        if len(self._contexts.open) >= self._config.max_contexts:
            limit = f"at most {self._config.max_contexts} contexts at a time"
            refusal: RealtimeTTSError | None = TooManyContexts(limit, field="context_id")
        else:
            refusal = self._refuse_new()
        if refusal is None:
            self._charge_text(message.text, is_draft=message.draft)
        self._connection.note_context(is_refused=refusal is not None)
        if refusal is not None:
            raise refusal
        if not self._announced:
            self._announce(self._defaults)
        return self._contexts.add(message.context_id, settings, planner, is_draft=message.draft)

    def _on_commit(self, message: messages.Commit) -> None:
        context = self._contexts.require(message.context_id)
        if context.draft_at is None:
            raise InvalidRequest("the context is not a draft", field="context_id")
        num_chars = context.text.num_chars if message.text is None else len(message.text)
        check_length(num_chars, self._config.max_text_chars)
        if (refusal := self._refuse_new() or self._charge(num_chars)) is not None:
            self._contexts.fail(context, refusal)
            return
        context.commit(message.text, self._make_planner(context.settings), self._connection.now)
        self._contexts.rank()
        self._contexts.plan(context)

    # ---- playback ------------------------------------------------------------------------------------------------

    def _on_cancel(self, context_id: str | None) -> None:
        targets = [c for c in self._contexts.open.values() if context_id in (None, c.id)]
        over = [c for c in self._contexts.finished.values() if context_id in (None, c.id)]
        for context in targets:
            self._contexts.cancel(context, by_client=True)
        for context in over:
            heard = context.freeze(self._connection.now)
            if context_id is not None or context.state is ContextState.DONE:
                state, rest = context.state.value, context.unspoken_text
                self._sender.post(messages.CancelAcknowledged(context.id, state, *heard, rest))
        if context_id is None:
            self._sender.post(messages.CancelAcknowledged(None, "all"))
        elif not targets and not over:
            self._sender.post(messages.CancelAcknowledged(context_id, self._contexts.ended.get(context_id, "unknown")))

    def _on_hold(self, message: messages.Hold) -> None:
        if message.played_ms is not None:
            _check_ms("played_ms", message.played_ms)
        context = self._require_audible(message.context_id)
        heard = context.hold(message, self._connection.now)
        self._sender.post(messages.ContextHeld(context.id, *heard, self._config.hold_timeout_s))
        self._contexts.report_playback(context)

    def _on_release(self, message: messages.Release) -> None:
        _check_ms("clause_after_ms", message.clause_after_ms)
        context = self._require_audible(message.context_id)
        from_ms = context.release(message.clause_after_ms, self._connection.now)
        self._sender.post(messages.ContextReleased(context.id, from_ms))
        self._contexts.report_playback(context)

    def _require_audible(self, context_id: str) -> Context:
        """Return a context that is open, or done and perhaps still playing.

        Raises:
            InvalidRequest: there is no such context, it is over, or it is a draft.
        """
        context = self._contexts.finished.get(context_id)
        if context is None or context.state is not ContextState.DONE:
            context = self._contexts.require(context_id)
        if context.draft_at is not None:
            raise InvalidRequest("a draft has no speech yet", field="context_id")
        return context

    def _on_playback(self, message: messages.PlaybackReport) -> None:
        _check_ms("played_ms", message.played_ms)
        context = self._contexts.get(message.context_id)
        if context is None:
            return  # a late message of a context that is long over
        context.sender.clock.acknowledge(message.played_ms, self._connection.now)
        # Not the clock's position: a held context's is the end of a word, whose audio may not have arrived.
        played_samples = message.played_ms * context.settings.audio.sample_rate / 1000
        self._sender.retained.acknowledge(context.id, played_samples)
        self._contexts.report_playback(context)


def _check_ms(name: str, value: float) -> None:
    """Raises InvalidMessage for a time that is no number of at least 0."""
    if not (math.isfinite(value) and value >= 0):
        raise InvalidMessage(f"{name} must be a number of at least 0", field=name)
