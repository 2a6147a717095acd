"""Authentication: API keys, tokens and origins. Deny by default.

Keys are 256 random bits, so one SHA-256 is enough: a slow hash only protects secrets that can be guessed. Only hashes
are stored. Several keys may be active, so that a key can be replaced without a gap.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import itertools
import re
import secrets
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from realtime_tts.config import AccessConfig, ServerConfig
from realtime_tts.dialects.base import KeyPlaces
from realtime_tts.errors import ConfigError, Forbidden, InvalidRequest, Unauthorized
from realtime_tts.server.admission.client import Client
from realtime_tts.server.admission.tokens import Tokens, issuer_of, load_secret

KEY_PREFIX = "rtts_"
_KEY_SUBPROTOCOL = "realtime-tts.key."  # followed by the key: the way a browser's WebSocket sends it
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
# A name, an IPv4 address or a bracketed IPv6 address, then optionally a port; no user, path or blank.
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?", re.IGNORECASE)
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([^/?#]*)", re.IGNORECASE)


def create_key() -> tuple[str, str]:
    """Return a new key and its hash. The key is shown once and stored nowhere."""
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    return key, hash_key(key)


def hash_key(key: str) -> str:
    # A token's issuer is JSON, which can have half a UTF-16 pair.
    return "sha256:" + hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def parse_hashes(lines: Iterable[str], source: str) -> tuple[str, ...]:
    """Return the hashes in lines that may hold comments after ``#``.

    Raises:
        ConfigError: a line is not a key hash; its content is not repeated, since it may be a misplaced key.
    """
    hashes: list[str] = []
    for number, line in enumerate(lines, start=1):
        content = line.partition("#")[0].strip()
        if content and not _HASH.fullmatch(content):
            raise ConfigError(f"{source}, entry {number}: not a key hash (sha256:<64 hex digits>)", field="api_key")
        if content:
            hashes.append(content)
    return tuple(hashes)


def load_hashes(config: AccessConfig) -> tuple[str, ...]:
    """Return all active key hashes of a configuration.

    Raises:
        ConfigError: the file cannot be read, has no key hash, or has a line that is not one.
    """
    hashes = parse_hashes(config.api_key_hashes, "api_key_hashes")
    if config.api_key_file:
        try:
            lines = Path(config.api_key_file).expanduser().read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the API key file cannot be read: {error}", field="api_key_file") from error
        if not (found := parse_hashes(lines, "the API key file")):
            message = "the API key file has no key hash: add one with `realtime-tts keys create --append`"
            raise ConfigError(message, field="api_key_file")
        hashes += found
    return hashes


def is_loopback(host: str) -> bool:
    """Return whether an address or a host name can only mean this machine."""
    if host.lower().rstrip(".") == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Authenticator:
    """Checks the credentials and the origin of a request.

    Attributes:
        required: whether requests need a key.
        num_keys: number of active keys.
        origins: other origins whose pages may connect, as browsers write them.

    Raises (at construction):
        ConfigError: no key although the server listens beyond loopback, or an invalid setting.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._hashes = load_hashes(config.access)
        self._key_ids = frozenset(map(_key_id, self._hashes))
        self.required, self.num_keys = bool(self._hashes), len(self._key_ids)
        self.tokens = Tokens(load_secret(config.access.token_secret_file))
        self._places = KeyPlaces(queries=("api_key",))
        self._metrics_are_local = is_loopback(config.metrics_host)
        self.origins, self._hosts = _parse_allowed(config.access.allowed_origins)
        if not self._hashes and not is_loopback(config.host):
            raise ConfigError(
                f"listening on {config.host} needs an API key: run `realtime-tts keys create`, put the hash that it "
                "prints into a file, and pass --api-key-file; or listen on 127.0.0.1",
                field="host",
            )

    def read_keys_in(self, places: KeyPlaces) -> None:
        """Read keys in more places, those of a dialect's clients."""
        self._places += places

    def authenticate(self, headers: Mapping[str, str], query: Mapping[str, str]) -> Client:
        """Return the client that a request's key or token identifies; an empty `Client` if no keys are configured.

        Raises:
            Unauthorized: the key is missing or not active.
        """
        if not self._hashes:
            return Client()
        presented = _presented_key(headers, query, self._places)
        if not presented:
            raise Unauthorized(
                "an API key is needed: header `Authorization: Bearer <key>`, "
                f"subprotocol `{_KEY_SUBPROTOCOL}<key>`, or query `api_key`"
            )
        is_token = presented.count(".") == 2
        digest = hash_key((is_token and issuer_of(presented)) or presented)
        # No early exit: the time taken must not reveal which hash matched.
        matches = [known for known in self._hashes if hmac.compare_digest(known, digest)]
        if matches:
            return Client(_key_id(digest))
        if is_token:
            client = self.tokens.read(presented)
            if client.tenant in self._key_ids:
                return client
        raise Unauthorized("this API key is not active")

    def lacks_key(self, headers: Mapping[str, str], query: Mapping[str, str]) -> bool:
        """Return whether a request needs a key and has none, neither a valid nor an invalid one."""
        return self.required and not _presented_key(headers, query, self._places)

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """Check that a browser's page has the server's own origin or an allowed one.

        Raises:
            InvalidRequest: a malformed `Host` or `Origin` header.
            Forbidden: the page of another origin; without keys also a host name that is not loopback (a page may point
                its own name at 127.0.0.1), and a cross-site request without an origin, such as for an image.
        """
        host = headers.get("host", "").lower()
        name = _host_name(host)
        if not self._hashes and host not in self._hosts and not is_loopback(name):
            raise Forbidden(
                "without an API key only this machine may connect, by its loopback name: give the server a key "
                "(`realtime-tts keys create`), or name this address in --allowed-origins"
            )
        origin = headers.get("origin", "").lower()
        if not self._hashes and not origin and headers.get("sec-fetch-site", "").lower() == "cross-site":
            raise Forbidden("without an API key pages of other sites may not ask; see --allowed-origins")
        if origin and origin not in self.origins and _host_of(origin) != host:
            raise Forbidden("pages of this origin may not connect; see --allowed-origins")

    def check_metrics_host(self, headers: Mapping[str, str]) -> None:
        """Check the `Host` header of a request to the metrics port, which needs no key.

        Raises:
            InvalidRequest: a malformed `Host` header.
            Forbidden: the port listens on loopback, and the name is not loopback: a page may point it at 127.0.0.1.
        """
        if not is_loopback(_host_name(headers.get("host", ""))) and self._metrics_are_local:
            raise Forbidden("metrics are served to this machine only; use localhost or 127.0.0.1")


def _host_name(host: str) -> str:
    """Return the name or address in a `Host` header, without the port.

    Raises:
        InvalidRequest: it is none.
    """
    match = _HOST.fullmatch(host)
    if match is None:
        raise InvalidRequest("the header Host is neither a name nor an address", field="host")
    return match[1]


def _host_of(origin: str) -> str | None:
    """Return host and port of an origin; None for the origin ``null``, which a browser sends for a page without one.

    Raises:
        InvalidRequest: it is none.
    """
    if origin == "null":
        return None
    match = _ORIGIN.fullmatch(origin)
    if match is None or not _HOST.fullmatch(match[1]):
        raise InvalidRequest("the header Origin is no origin", field="origin")
    return match[1]


def _parse_allowed(origins: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the allowed origins as browsers write them, and their hosts.

    Raises:
        ConfigError: a malformed origin.
    """
    normal = frozenset(origin.rstrip("/").lower() for origin in origins)
    hosts: set[str] = set()
    for origin in normal:
        try:
            hosts.update(filter(None, [_host_of(origin)]))
        except InvalidRequest as error:
            message = f"the allowed origin {origin!r} is not like https://app.example.com"
            raise ConfigError(message, field="allowed_origins") from error
    return normal, frozenset(hosts)


def _key_id(key_hash: str) -> str:
    """Return the id of a key for logs: 12 hex digits of its hash, which do not reveal the key."""
    return key_hash.removeprefix("sha256:")[:12]


def _presented_key(headers: Mapping[str, str], query: Mapping[str, str], places: KeyPlaces) -> str:
    """Return the key of a request, "" if it has none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() in places.schemes:
        return token.strip()
    keys = (
        *(headers.get(name, "").strip() for name in places.headers),
        _key_of_subprotocols(headers, places.schemes),
        *(_without_scheme(query.get(name, ""), places.schemes) for name in places.queries),
    )
    return next(filter(None, keys), "")


def _without_scheme(value: str, schemes: Collection[str]) -> str:
    scheme, _, token = value.partition(" ")
    return token.strip() if scheme.lower() in schemes else value


def _key_of_subprotocols(headers: Mapping[str, str], schemes: Collection[str]) -> str:
    """Return the key in the subprotocols of a WebSocket handshake, "" if it has none.

    A page can set no other header of its WebSocket, and unlike a URL, proxies do not log subprotocols.
    """
    offered = [item.strip() for item in headers.get("sec-websocket-protocol", "").split(",")]
    for item in offered:
        if item.startswith(_KEY_SUBPROTOCOL):
            return item.removeprefix(_KEY_SUBPROTOCOL)
    return next((key for scheme, key in itertools.pairwise(offered) if scheme.lower() in schemes), "")
