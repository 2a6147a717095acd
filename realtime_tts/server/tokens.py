"""Short-lived tokens (JWT, HS256): what a browser's page connects with, so that no API key has to lie in a page.

A token is asked for at the handshake and at each HTTP request; a socket that is open outlives it.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import jwt
from pydantic import BaseModel, Field, ValidationError

from realtime_tts.errors import ConfigError, Unauthorized
from realtime_tts.server.caller import Caller

_ALGORITHM = "HS256"
_NAME = "realtime-tts"  # issuer and audience: a token made for something else with the same secret is none of ours
_CLOCK_SKEW_S = 5
_MIN_SECRET_BYTES = 32
_REQUIRED = ["iss", "aud", "sub", "jti", "iat", "exp"]
MAX_LIMIT = 1_000_000_000  # of each number that a token limits; all that counts with them holds so much


class _Claims(BaseModel):
    """What a token says; its signature and its times are checked before."""

    sub: str
    jti: Annotated[str, Field(min_length=1, max_length=64)]
    voices: tuple[str, ...] = ()
    max_sessions: Annotated[int, Field(ge=0, le=MAX_LIMIT)] = 0
    max_chars_per_minute: Annotated[int, Field(ge=0, le=MAX_LIMIT)] = 0


def load_secret(path: str) -> bytes:
    """The secret in a file, or without one a random secret, so that tokens end with this process.

    Raises:
        ConfigError: the file cannot be read, or its secret is too short to be one.
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


class Tokens:
    """Makes and reads the tokens of one secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def issue(self, caller: Caller, ttl_s: int, now: float) -> tuple[str, int]:
        """A token for `caller`, whose `token` is its id, and when it ends. `now`: seconds since 1970."""
        expires_at = int(now) + ttl_s
        claims = {
            "iss": _NAME,
            "aud": _NAME,
            "sub": caller.tenant,
            "jti": caller.token,
            "iat": int(now),
            "exp": expires_at,
            "voices": list(caller.voices),
            "max_sessions": caller.max_sessions,
            "max_chars_per_minute": caller.max_chars_per_minute,
        }
        return jwt.encode(claims, self._secret, _ALGORITHM), expires_at

    def read(self, token: str) -> Caller:
        """Whom a token was made for, if it is one of ours and in time.

        Raises:
            Unauthorized: it is not. What is wrong with it is told only if it has ended.
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
        return Caller(claims.sub, claims.jti, claims.voices, claims.max_sessions, claims.max_chars_per_minute)
