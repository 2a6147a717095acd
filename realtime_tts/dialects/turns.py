"""Base of the dialects whose messages do not name a context.

The text up to a flush is one context, here called a turn; turns are spoken one after the other. An error ends its turn:
further text up to the next flush is ignored.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping

from realtime_tts.dialects.base import Dialect
from realtime_tts.dialects.json_input import check_choice, load_object
from realtime_tts.errors import InvalidMessage
from realtime_tts.session import messages


class TurnDialect(Dialect):
    """The turns of one connection.

    Attributes:
        kinds: types of a client's messages. `_read_<type>` reads each, in small letters and with `_` for `.`.
    """

    kinds: tuple[str, ...]

    def __init__(self) -> None:
        self._turn = 1  # number of the current turn, whose text is arriving
        self._is_open = self._is_over = False  # state of the current turn
        self._last_failed: str | None = None

    def parse(self, frame: str | bytes, max_bytes: int) -> list[messages.ClientMessage]:
        values = load_object(frame, max_bytes)
        kind = values.get("type")
        check_choice(kind, self.kinds, "type", InvalidMessage)
        return list(getattr(self, f"_read_{str(kind).lower().replace('.', '_')}")(values))

    def _read_flush(self, values: Mapping[str, object]) -> Iterable[messages.ClientMessage]:
        # Each flush is answered, so a flush without text is a turn too.
        opening = [] if self._is_open else [self._text("")]
        end = messages.End(str(self._turn))
        self._begin_turn()
        return [*opening, end]

    @abstractmethod
    def _text(self, text: str) -> messages.Text:
        """Return text of the current turn, and note that it is open."""

    def _begin_turn(self) -> None:
        self._turn += 1
        self._is_open = self._is_over = False

    def _is_known_failure(self, context_id: str | None) -> bool:
        """End the turn of an error. Return whether an error of the turn was reported before."""
        if context_id is None or context_id == self._last_failed:
            return context_id is not None
        self._last_failed = context_id
        self._is_over = self._is_over or context_id == str(self._turn)
        return False
