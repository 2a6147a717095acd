"""What a wire dialect is: a translator between one connection's frames and the messages of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from realtime_tts.session.messages import ClientMessage, ServerMessage

NOTICE_FIELD = "realtime_tts_notice"  # of a message in which a service has no field for it, as the header over HTTP


def joined_notices(notices: str | None, notice: str) -> str:
    """Return all notices of a context, each once."""
    if notices is None or notice in notices:
        return notices or notice
    return f"{notices}; {notice}"


@dataclass(frozen=True, slots=True)
class Habits:
    """What the clients of a dialect expect of any server, beyond its messages.

    Attributes:
        accepts_any_voice: they name voices of another service, and are given the default one (not if ids are strict).
        resumes: they may come back after a lost connection; else what a lost connection leaves is ended at once.
        in_turn: nothing on the wire tells contexts apart, so they are spoken one after the other.
        refusals_are_final: they know no error that a context outlives: one whose message is refused has failed.
        forgives_mistakes: a message that cannot be is refused, and the connection goes on; else it is closed.
        needs_audio: they take a turn without audio for a failure: text that cannot be spoken becomes short silence.
        min_idle_s: they keep a silent connection for so long; the server's own timeout counts if it is longer.
    """

    accepts_any_voice: bool = True
    resumes: bool = False
    in_turn: bool = False
    refusals_are_final: bool = False
    forgives_mistakes: bool = True
    needs_audio: bool = False
    min_idle_s: float = 0.0


class Dialect(Protocol):
    """One connection's translator. It may remember what it has seen, and is asked in the order of arrival."""

    @property
    def subprotocol(self) -> str | None:
        """The WebSocket subprotocol that a client may offer, and then gets; None: the dialect has none."""
        ...

    @property
    def habits(self) -> Habits: ...

    @property
    def welcome(self) -> Sequence[str | bytes]:
        """Frames that a client is sent before it has said anything."""
        ...

    def parse(self, frame: str | bytes, max_bytes: int) -> Sequence[ClientMessage]:
        """What a frame of the client says, in order; a frame may say nothing.

        Raises:
            InvalidRequest: the frame is refused as a whole, by one `ErrorMessage`; of the error's `context_id` if the
                frame named one.
        """
        ...

    def serialize(self, message: ServerMessage) -> Sequence[str | bytes]:
        """The frames that tell a client of a message: text (str) or binary ones (bytes); none where it is not told."""
        ...
