"""Identity and rights of a client."""

from __future__ import annotations

import dataclasses

from realtime_tts.errors import Forbidden


@dataclasses.dataclass(frozen=True, slots=True)
class Client:
    """An API key, or a token that was issued with a key.

    Attributes:
        tenant: id of the key, to which sessions and voices belong; "" where no keys are configured.
        token: id of the token, "" for the key itself.
        voices: names of the token's voices, the first being its default; empty: all voices of the key.
        max_sessions, max_chars_per_minute: limits of the token, within the key's own; 0: no limit of its own.
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
        Forbidden: the client has a token, which may speak but change nothing.
        """
        if self.token:
            raise Forbidden("this needs an API key, and was requested with a token")
