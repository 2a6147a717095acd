"""Which contexts a session has: open ones, those finished lately, and the ids that were used."""

from __future__ import annotations

from collections import OrderedDict

from realtime_tts.session.context import Context

MAX_FINISHED = 16  # kept whole: they may still be heard, or be asked for after a reconnect
MAX_REMEMBERED = 1024  # ids, with how they ended


class ContextTable:
    """Contexts by id, oldest first. Numbers count from 1 and are never used again."""

    def __init__(self) -> None:
        self.open: dict[str, Context] = {}
        self.finished: OrderedDict[str, Context] = OrderedDict()
        self._ended: OrderedDict[str, str] = OrderedDict()
        self._last_number = 0

    def take_number(self) -> int:
        self._last_number += 1
        return self._last_number

    @property
    def any_yet(self) -> bool:
        return self._last_number > 0

    def add(self, context: Context) -> None:
        self.open[context.id] = context

    def get(self, context_id: str) -> Context | None:
        """An open context, or one finished lately."""
        return self.open.get(context_id) or self.finished.get(context_id)

    def ended_as(self, context_id: str) -> str | None:
        """done, cancelled or failed; None for an id that is open, was never used, or is forgotten."""
        return self._ended.get(context_id)

    def retire(self, context: Context) -> list[str]:
        """The context is in a final state. Returns the ids of those that are not kept any longer."""
        del self.open[context.id]
        self.finished[context.id] = context
        self._ended[context.id] = context.state.value
        while len(self._ended) > MAX_REMEMBERED:
            self._ended.popitem(last=False)
        settled = [key for key, kept in self.finished.items() if not kept.outflow.has_ready]
        dropped = settled[: max(0, len(self.finished) - MAX_FINISHED)]
        for key in dropped:
            del self.finished[key]
        return dropped

    def sending(self) -> list[Context]:
        """Those that may have something to send, the newest first."""
        late = [context for context in self.finished.values() if context.outflow.has_ready]
        return [*reversed(self.open.values()), *late]

    def rerank(self) -> list[Context]:
        """The newest open context goes first. Returns those whose priority changes."""
        changed = []
        for rank, context in enumerate(reversed(self.open.values())):
            priority = min(rank, 1)
            if context.priority != priority:
                context.priority = priority
                changed.append(context)
        return changed
