"""Everything that waits to be sent to one client, and what was sent and may have to be sent again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from realtime_tts.session.context import Context
from realtime_tts.session.contexts import ContextTable
from realtime_tts.session.messages import ContextMessage, ServerMessage, SessionMessage, SessionResumed
from realtime_tts.session.resume import ResumeBuffer, message_bytes
from realtime_tts.session.settings import SessionConfig

MAX_WAITING_MESSAGES = 1000  # answers that a peer may leave unread
_MESSAGE_BYTES = 200


class Sender:
    """Messages of the session go first, in order; then contexts, the newest first.

    A context in the outbox stands for what it has ready (its start, its end), so that it keeps its place among them.
    """

    def __init__(self, config: SessionConfig, contexts: ContextTable) -> None:
        self.retained = ResumeBuffer(config.retain_s, config.retain_max_bytes)
        self._max_lead_ms = config.max_lead_s * 1000
        self._retains = config.resume_window_s > 0
        self._contexts = contexts
        self._outbox: deque[SessionMessage | Context] = deque()

    def post(self, item: SessionMessage | Context) -> None:
        self._outbox.append(item)

    @property
    def is_overfull(self) -> bool:
        return len(self._outbox) > MAX_WAITING_MESSAGES

    @property
    def has_waiting(self) -> bool:
        """Something that no pacing holds back."""
        return bool(self._outbox)

    @property
    def queued_bytes(self) -> int:
        return self.retained.num_bytes + sum(context.outflow.queued_bytes for context in self._contexts.sending())

    def lose_connection(self) -> None:
        """Forget answers that nobody is left to read. What contexts have to say, they keep."""
        self._outbox.clear()

    def retain_no_more(self) -> None:
        """Nobody can come back."""
        self._retains = False
        self.retained.clear()

    def reconnect(self, message: SessionResumed) -> None:
        """This goes before everything else."""
        self._outbox.appendleft(message)

    def next_send_at(self, now: float) -> float | None:
        """When `take` will give something again; `now` or earlier: at once."""
        due = [context.outflow.next_send_at(now, self._max_lead_ms) for context in self._contexts.sending()]
        if self._outbox:
            due.append(now)
        return min((at for at in due if at is not None), default=None)

    def take(
        self, now: float, max_bytes: float, *, with_speech: bool
    ) -> Iterator[tuple[ServerMessage, Context | None]]:
        """What may leave now, with the context it is of. Stops soon after `max_bytes`; what it gave counts as sent."""
        num_bytes = 0
        while self._outbox and num_bytes < max_bytes:
            item = self._outbox.popleft()
            if not isinstance(item, Context):
                num_bytes += _MESSAGE_BYTES
                yield item, None
                continue
            while item.outflow.has_ready and (message := self._pull(item, now)) is not None:
                num_bytes += message_bytes(message)
                yield message, item
        for context in self._contexts.sending() if with_speech else []:
            while num_bytes < max_bytes and (message := self._pull(context, now)) is not None:
                num_bytes += message_bytes(message)
                yield message, context

    def _pull(self, context: Context, now: float) -> ContextMessage | None:
        message = context.outflow.pull(now, self._max_lead_ms)
        if message is not None and self._retains:
            self.retained.add(message, now)
        return message
