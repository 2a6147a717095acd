"""Routes of ElevenLabs' interface for the account and for tokens of browser pages."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from realtime_tts.dialects.elevenlabs.account import subscription, user
from realtime_tts.dialects.elevenlabs.errors import elevenlabs_problem
from realtime_tts.errors import InvalidRequest
from realtime_tts.server.admission.client import Client
from realtime_tts.server.http.browser_tokens import make_plain_token
from realtime_tts.server.http.problems import answers_in
from realtime_tts.server.http.routes import NEEDS_KEY, authorize, get_gateway

_TOKEN_TTL_S = 900  # the lifetime of ElevenLabs' tokens

KnownClient = Annotated[Client, Depends(authorize)]
router = APIRouter(prefix="/v1", dependencies=[answers_in(elevenlabs_problem), *NEEDS_KEY], tags=["ElevenLabs"])


@router.get("/user", summary="Whether the key is active")
async def get_user(request: Request, client: KnownClient) -> dict[str, Any]:
    return user(client.tenant, _subscription(request, client))


@router.get("/user/subscription", summary="Whether the key is active")
async def get_subscription(request: Request, client: KnownClient) -> dict[str, Any]:
    return _subscription(request, client)


@router.post("/single-use-token/{token_type}", summary="A short-lived token")
async def create_token(request: Request, response: Response, token_type: str, client: KnownClient) -> dict[str, str]:
    """Return a token that can be used for 15 minutes at most, more than once."""
    if token_type != "tts_websocket":
        raise InvalidRequest("the only token type is tts_websocket", field="token_type")
    gateway = get_gateway(request)
    ttl_s = min(_TOKEN_TTL_S, gateway.settings.server.access.max_token_ttl_s)
    return {"token": make_plain_token(gateway, client, ttl_s, response)}


def _subscription(request: Request, client: Client) -> dict[str, Any]:
    gateway = get_gateway(request)
    num_voices = len(gateway.voices.added(client.tenant))
    return subscription(num_voices, gateway.settings.server.voices.max_voices_per_tenant)
