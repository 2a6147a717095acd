"""Interface of a wire dialect: a translator between a connection's frames and the messages of a session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from realtime_tts.session.messages import ClientMessage, ServerMessage
from realtime_tts.session.settings import ErrorScope

NOTICE_FIELD = "realtime_tts_notice"  # added to messages of services without such a field, like the header over HTTP


def joined_notices(notices: str | None, notice: str) -> str:
    """Return the notices of a context with one more, each once."""
    if notices is None or notice in notices:
        return notices or notice
    return f"{notices}; {notice}"


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """Places in a request where the clients of an interface put their API key.

    Attributes:
        schemes: schemes of the header `authorization`, in small letters; a WebSocket may have them as a subprotocol
            that the key follows.
        headers: names of headers.
        queries: names of query parameters.
    """

    schemes: tuple[str, ...] = ("bearer",)
    headers: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()

    def __add__(self, other: KeyPlaces) -> KeyPlaces:
        return KeyPlaces(self.schemes + other.schemes, self.headers + other.headers, self.queries + other.queries)


@dataclass(frozen=True, slots=True)
class Habits:
    """Expectations of a dialect's clients beyond its messages.

    Attributes:
        accepts_any_voice: unknown voices, for example of another service, become the default voice (unless
            `strict_ids` is on).
        resumes: clients may resume a session after a lost connection; else the session ends at once.
        in_turn: frames do not name their context, so contexts are spoken one after the other.
        errors_end: what an error ends.
        forgives_mistakes: an invalid message is refused, and the connection continues; else it is closed.
        needs_audio: clients treat a turn without audio as a failure: unspeakable text becomes short silence.
        min_idle_s: time in seconds for which clients keep a silent connection; the server's timeout applies if longer.
    """

    accepts_any_voice: bool = True
    resumes: bool = False
    in_turn: bool = False
    errors_end: ErrorScope = "message"
    forgives_mistakes: bool = True
    needs_audio: bool = False
    min_idle_s: float = 0.0


class Dialect(ABC):
    """Translator of one connection. It may keep state; frames and messages are passed in their order.

    Attributes:
        subprotocol: WebSocket subprotocol that is accepted if a client offers it; None if the dialect has none.
        welcome: frames that are sent before the client's first message.
    """

    habits: Habits
    subprotocol: str | None = None
    welcome: Sequence[str | bytes] = ()

    @abstractmethod
    def parse(self, frame: str | bytes, max_bytes: int) -> Sequence[ClientMessage]:
        """Return the messages in a client frame, in order; a frame may have none.

        Raises:
            InvalidRequest: the whole frame is refused with one `ErrorMessage`, which has the error's `context_id` if
                    the frame named one.
        """

    @abstractmethod
    def serialize(self, message: ServerMessage) -> Sequence[str | bytes]:
        """Return the text (str) or binary (bytes) frames of a message; none if the dialect does not report it."""
