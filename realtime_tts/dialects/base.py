"""What a wire dialect is: a translator between one connection's frames and the messages of a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from realtime_tts.session.messages import ClientMessage, ServerMessage


class Dialect(Protocol):
    """One connection's translator. It may remember what it has seen, and is asked in the order of arrival."""

    @property
    def subprotocol(self) -> str | None:
        """The WebSocket subprotocol that a client may offer, and then gets; None: the dialect has none."""
        ...

    @property
    def accepts_any_voice(self) -> bool:
        """Stock clients of another service name that service's voices: they are given the default one."""
        ...

    def parse(self, frame: str | bytes, max_bytes: int) -> Sequence[ClientMessage]:
        """What a frame of the client says, in order; a frame may say nothing.

        Raises:
            InvalidRequest: the frame is refused as a whole, by one `ErrorMessage`.
        """
        ...

    def serialize(self, message: ServerMessage) -> Sequence[str | bytes]:
        """The frames that tell a client of a message: text (str) or binary ones (bytes); none where it is not told."""
        ...
