"""Tokens for a browser's page, for the native address and for those of other services."""

from __future__ import annotations

import secrets
import time
from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from realtime_tts.errors import Forbidden, InvalidRequest, VoiceNotFound
from realtime_tts.server.admission.client import Client
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http import schemas
from realtime_tts.server.http.routes import NEEDS_KEY, AnyClient, AnyGateway, problems, read_body, takes
from realtime_tts.server.logs import log_event

tokens = APIRouter(prefix="/v1", tags=["operation"], dependencies=NEEDS_KEY, responses=problems())


@tokens.post(
    "/tokens",
    summary="Create a short-lived token for a browser's page",
    status_code=HTTPStatus.CREATED,
    openapi_extra=takes(schemas.TokenRequest),
)
async def create_token(request: Request, response: Response, gateway: AnyGateway, client: AnyClient) -> schemas.Token:
    if not client.tenant:
        raise Forbidden("a server without keys makes no tokens")
    return make_token(gateway, client, await read_body(request, schemas.TokenRequest), response)


def make_token(gateway: Gateway, client: Client, wanted: schemas.TokenRequest, response: Response) -> schemas.Token:
    """Return a new token of the client's key. Sets `cache-control: no-store` on `response`.

    Raises:
        Forbidden: the client has a token itself.
        InvalidRequest: the lifetime is too long. VoiceNotFound: a voice that the key does not have.
    """
    client.check_owner()
    if wanted.ttl_s > (max_ttl_s := gateway.settings.server.access.max_token_ttl_s):
        raise InvalidRequest(f"a token lasts {max_ttl_s} s at most", field="ttl_s")
    voices = tuple(wanted.voices or ())
    if unknown := set(voices) - set(gateway.voices.names(client.tenant)):
        raise VoiceNotFound(f"there is no voice {min(unknown)[:64]!r}", field="voices")
    holder = Client(
        client.tenant,
        token=secrets.token_urlsafe(9),
        voices=voices,
        max_sessions=wanted.max_sessions,
        max_chars_per_minute=wanted.max_chars_per_minute,
    )
    token, expires_at = gateway.admission.authenticator.tokens.issue(holder, wanted.ttl_s, time.time())
    log_event("token_issued", key=client.tenant or None, token=holder.token, ttl_s=wanted.ttl_s)
    response.headers["cache-control"] = "no-store"
    return schemas.Token(token=token, expires_at=expires_at)


def make_plain_token(gateway: Gateway, client: Client, ttl_s: int, response: Response) -> str:
    """Return a token without limits of its own, as other services give them.

    A server without keys issues them too: clients of other services require a token, as they require a key.

    Raises:
        Forbidden, InvalidRequest: see `make_token`.
    """
    return make_token(gateway, client, schemas.TokenRequest.model_validate({"ttl_s": ttl_s}), response).token
