"""Opening of the WebSocket: addresses, credentials, refusals as typed errors."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_websocket
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from realtime_tts_client.errors import ConnectionFailed, error_from_answer
from realtime_tts_client.wire import SUBPROTOCOL

STREAM_PATH = "/v1/stream"
MAX_FRAME_BYTES = 4 * 1024 * 1024
_KEY = re.compile(r"[!-~]+")  # characters of a header value, without blanks
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


@dataclass(frozen=True)
class Endpoint:
    """Address and options of a connection.

    Args:
        sticky: query value by which a front routes all connections of a session to the same host.
    """

    url: str
    api_key: str | None = None
    open_timeout_s: float = 10.0
    ping_interval_s: float | None = 10.0
    sticky: str = field(default_factory=lambda: secrets.token_urlsafe(9))

    async def open(self, timeout_s: float | None = None, resume: str | None = None) -> ClientConnection:
        """Open the WebSocket. `resume`: id of the session to resume, by which a server with several processes finds it.

        Raises:
            ServerError: the server refused (`Unauthorized`, `Overloaded` …).
            ConnectionFailed: it cannot be reached, or is not a realtime-tts server.
        """
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else None
        timeout_s = self.open_timeout_s if timeout_s is None else min(timeout_s, self.open_timeout_s)
        try:
            return await open_websocket(
                _with_query(_with_query(self.url, "sticky", self.sticky), "resume", resume),
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                additional_headers=headers,
                open_timeout=timeout_s,
                ping_interval=self.ping_interval_s,
                ping_timeout=self.ping_interval_s,
                close_timeout=2,
                max_size=MAX_FRAME_BYTES,
                compression=None,  # audio is already compressed; deflate would only add delay
            )
        except InvalidStatus as error:
            answer = error.response
            retry_after = answer.headers.get("Retry-After", "")
            raise error_from_answer(answer.status_code, answer.body or b"", retry_after) from error
        except (OSError, WebSocketException, EOFError, ImportError) as error:  # that: a SOCKS proxy
            raise ConnectionFailed(f"no connection to {self._shown}: {error or type(error).__name__}") from error

    @property
    def _shown(self) -> str:
        """Return the address without parts that may be secret: the query, user and password."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def clean_key(api_key: str | None) -> str | None:
    """Return a key without surrounding blanks, which a key read from a file may have; None for no key.

    Raises:
        ValueError: a header cannot contain the key. The message does not repeat it.
    """
    key = (api_key or "").strip()
    if key and not _KEY.fullmatch(key):
        raise ValueError("api_key must be printable ASCII characters without blanks")
    return key or None


def stream_url(url: str) -> str:
    """Return the stream's address for a server address with http, https, ws, wss or no scheme, and any or no path.

    Raises:
        ValueError: unsupported scheme, no host, or an impossible port.
    """
    try:
        parts = urlsplit(url if re.match(r"[a-z]+://", url, re.IGNORECASE) else f"ws://{url}")
        is_valid = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port or the brackets of an IPv6 address
        is_valid = False
    if not is_valid:
        raise ValueError(f"the address is host:port, ws://host:port, wss://…, http://… or https://…, not {url!r}")
    path = STREAM_PATH if parts.path in ("", "/") else parts.path
    return urlunsplit((_SCHEMES[parts.scheme], parts.netloc, path, parts.query, ""))


def _with_query(url: str, key: str, value: str | None) -> str:
    """Return the address with a value in its query, unless the value is None or the query has this key."""
    parts = urlsplit(url)
    if value is None or any(name == key for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
        return url
    return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, f"{key}={quote(value)}")))))
