"""Origin check for a bot without keys: its own page, under this machine's names, and pages of named origins.

The page itself is sent with `CONTENT_POLICY`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'"
)
PAGE_SCHEMES = {"ws": "http", "wss": "https"}
_READS = "navigate"  # a followed link: the page that has the link cannot read the answer


class PageOrigins:
    """Check of `Host` and `Origin`, which a browser sends and a page cannot change.

    Args:
        allowed: origins as browsers write them (`https://bot.example.org`), for instance that of a proxy with TLS.

    Raises:
        ValueError: an origin has another form.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._origins = {origin.rstrip("/").lower() for origin in allowed}
        for origin in self._origins:
            scheme, host = urlsplit(origin)[:2]
            if scheme not in ("http", "https") or not host or origin != f"{scheme}://{host}":
                raise ValueError(f"an allowed origin must be like https://bot.example.org, got {origin!r}")
        self._hosts = {urlsplit(origin).netloc for origin in self._origins}

    def refusal(self, headers: Mapping[str, str]) -> str | None:
        """Return the reason for refusing a request, or None.

        A page may point its own name at 127.0.0.1, so the name in `Host` must be this machine's or an allowed one.
        """
        host = headers.get("Host", "").lower()
        if host not in self._hosts and not _is_loopback(host):
            return "this bot answers to localhost and to the hosts of --allowed-origin only"
        origin = headers.get("Origin", "").lower()
        if origin and origin not in self._origins and origin not in (f"http://{host}", f"https://{host}"):
            return "pages of this origin may not call; see --allowed-origin"
        is_elsewhere = headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")
        if is_elsewhere and not origin and headers.get("Sec-Fetch-Mode") != _READS:
            return "pages of other sites may not call; see --allowed-origin"
        return None


def origins_of(address: str) -> list[str]:
    """Return the origins of pages that a speech server serves. This machine has two names.

    Args:
        address: as clients take it: `ws://`, `wss://`, `http://`, `https://` or `host:port`.
    """
    scheme, netloc = urlsplit(address if "://" in address else f"ws://{address}")[:2]
    origin = f"{PAGE_SCHEMES.get(scheme, scheme)}://{netloc}"
    localhost, loopback = "://localhost", "://127.0.0.1"
    return [origin, origin.replace(localhost, loopback), origin.replace(loopback, localhost)]


def _is_loopback(host: str) -> bool:
    """Return whether a `Host` header, with or without a port, can only mean this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name.rstrip(".") == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
