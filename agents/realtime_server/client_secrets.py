"""Short-lived keys of the Realtime API, which a page's own server requests for the page. Pure."""

from __future__ import annotations

import json
import secrets

from realtime_server.events import Fields

PREFIX = "ek_"
MAX_SECRETS = 1_000  # the oldest is forgotten first


class ClientSecrets:
    """Valid client secrets, each with the settings of the sessions that it opens. One opens any number of sessions."""

    def __init__(self) -> None:
        self._issued: dict[str, tuple[float, str]] = {}  # expiry, and settings as JSON, which is smaller; oldest first

    def issue(self, session: Fields, expires_at: float, now: float) -> str:
        """Return a new secret. `expires_at` and `now` are seconds of one clock."""
        self._issued = {value: issued for value, issued in self._issued.items() if issued[0] > now}
        if len(self._issued) >= MAX_SECRETS:
            del self._issued[next(iter(self._issued))]
        value = PREFIX + secrets.token_urlsafe(24)
        self._issued[value] = expires_at, json.dumps(session)
        return value

    def session_of(self, value: str, now: float) -> Fields | None:
        """Return the settings of a secret; None if it is unknown or has expired."""
        expires_at, session = self._issued.get(value, (now, ""))
        return json.loads(session) if expires_at > now else None
