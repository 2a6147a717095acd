"""Short-lived tokens (JWT, HS256) with which a browser's page connects, so that the page contains no API key.

A token is checked at the handshake and at each HTTP request; an open socket may outlive it.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import jwt
from pydantic import BaseModel, Field, ValidationError

from realtime_tts.errors import ConfigError, Unauthorized
from realtime_tts.server.admission.client import Client

_ALGORITHM = "HS256"
_NAME = "realtime-tts"  # issuer and audience: tokens for other uses of the same secret are refused
_CLOCK_SKEW_S = 5
_MIN_SECRET_BYTES = 32
_REQUIRED = ["iss", "aud", "sub", "jti", "iat", "exp"]
MAX_LIMIT = 1_000_000_000  # of each limit of a token; all counters can hold this number


class _Claims(BaseModel):
    """Claims of a token, whose signature and times were checked before."""

    sub: str
    jti: Annotated[str, Field(min_length=1, max_length=64)]
    voices: Annotated[tuple[str, ...], Field(min_length=1)] | None = None  # None: all voices of the key
    max_sessions: Annotated[int, Field(ge=0, le=MAX_LIMIT)] = 0
    max_chars_per_minute: Annotated[int, Field(ge=0, le=MAX_LIMIT)] = 0


def load_secret(path: str) -> bytes:
    """Return the secret in a file; for "" a random secret, so that tokens end with this process.

    Raises:
        ConfigError: the file cannot be read, or its secret has fewer than 32 bytes.
    """
    if not path:
        return secrets.token_bytes(_MIN_SECRET_BYTES)
    try:
        secret = Path(path).expanduser().read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"the token secret cannot be read: {error}", field="token_secret_file") from error
    if len(secret) < _MIN_SECRET_BYTES:
        raise ConfigError(f"the token secret has fewer than {_MIN_SECRET_BYTES} bytes", field="token_secret_file")
    return secret


def issuer_of(token: str) -> str:
    """Return the issuer that a JWT of another program names, "" if there is none. The signature is not checked.

    Clients of LiveKit name their API key there, so that it identifies them as a bearer token does.
    """
    try:
        name = jwt.decode(token, options={"verify_signature": False}).get("iss")
    except (jwt.PyJWTError, ValueError, RecursionError):
        return ""
    return name if isinstance(name, str) and name != _NAME else ""


class Tokens:
    """Issues and reads the tokens of one secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def issue(self, client: Client, ttl_s: int, now: float) -> tuple[str, int]:
        """Return a token with the rights and the id of `client`, and its expiry. Times are Unix times in seconds."""
        expires_at = int(now) + ttl_s
        claims = {
            "iss": _NAME,
            "aud": _NAME,
            "sub": client.tenant,
            "jti": client.token,
            "iat": int(now),
            "exp": expires_at,
            **({"voices": list(client.voices)} if client.voices else {}),
            "max_sessions": client.max_sessions,
            "max_chars_per_minute": client.max_chars_per_minute,
        }
        return jwt.encode(claims, self._secret, _ALGORITHM), expires_at

    def read(self, token: str) -> Client:
        """Return the client of a valid token.

        Raises:
            Unauthorized: the token is invalid or expired; the message gives the reason only for an expired one.
        """
        try:
            claims = _Claims.model_validate(
                jwt.decode(
                    token,
                    self._secret,
                    algorithms=[_ALGORITHM],
                    issuer=_NAME,
                    audience=_NAME,
                    leeway=_CLOCK_SKEW_S,
                    options={"require": _REQUIRED},
                )
            )
        except jwt.ExpiredSignatureError as error:
            raise Unauthorized("this token has ended; ask for a new one") from error
        except (jwt.PyJWTError, ValidationError, ValueError) as error:
            raise Unauthorized("this token is not valid") from error
        return Client(claims.sub, claims.jti, claims.voices or (), claims.max_sessions, claims.max_chars_per_minute)
