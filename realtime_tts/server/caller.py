"""Who has connected, and what it may do here."""

from __future__ import annotations

import dataclasses

from realtime_tts.errors import Forbidden


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """An API key, or a token that a key had made for somebody.

    Attributes:
        tenant: id of the key, to which sessions and voices belong; "" where no keys are configured.
        token: id of the token, "" for the key itself.
        voices: the token's, of which the first is its default; empty: all that the key has.
        max_sessions, max_chars_per_minute: of the token, within the key's own limits; 0: no limit of its own.
        address: IP address of the peer; "" where it is unknown.
    """

    tenant: str = ""
    token: str = ""
    voices: tuple[str, ...] = ()
    max_sessions: int = 0
    max_chars_per_minute: int = 0
    address: str = ""

    def check_owner(self) -> None:
        """Raises:
        Forbidden: a token, which speaks with voices and changes none.
        """
        if self.token:
            raise Forbidden("voices are added and changed with an API key, not with a token")
