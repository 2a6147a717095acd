"""Routes of ElevenLabs' interface for the account, by which clients check a key, and for tokens of browser pages."""

from __future__ import annotations

from fastapi import APIRouter, Response

from realtime_tts.errors import InvalidRequest
from realtime_tts.server.admission.client import Client
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http.browser_tokens import make_plain_token
from realtime_tts.server.http.routes import AnyClient, AnyGateway, JsonObject

_TOKEN_TTL_S = 900  # the lifetime of ElevenLabs' tokens
_UNLIMITED_CHARS = 2**31 - 1  # this server has no monthly limit

router = APIRouter(prefix="/v1", tags=["ElevenLabs"])


@router.get("/user", summary="Whether the key is active")
async def get_user(gateway: AnyGateway, client: AnyClient) -> JsonObject:
    name = client.tenant or "local"
    return {
        "user_id": name,
        "workspace_id": name,
        "subscription": _subscription(gateway, client),
        "is_new_user": False,
        "is_onboarding_completed": True,
        "is_onboarding_checklist_completed": True,
        "can_use_delayed_payment_methods": False,
        "created_at": 0,
        "seat_type": "workspace_member",
        "xi_api_key": None,
    }


@router.get("/user/subscription", summary="Whether the key is active")
async def get_subscription(gateway: AnyGateway, client: AnyClient) -> JsonObject:
    return _subscription(gateway, client)


@router.post("/single-use-token/{token_type}", summary="A short-lived token")
async def create_token(response: Response, token_type: str, gateway: AnyGateway, client: AnyClient) -> dict[str, str]:
    """Return a token that can be used for 15 minutes at most, more than once."""
    if token_type != "tts_websocket":
        raise InvalidRequest("the only token type is tts_websocket", field="token_type")
    ttl_s = min(_TOKEN_TTL_S, gateway.settings.server.access.max_token_ttl_s)
    return {"token": make_plain_token(gateway, client, ttl_s, response)}


def _subscription(gateway: Gateway, client: Client) -> JsonObject:
    return {
        "tier": "self_hosted",
        "status": "active",
        "character_count": 0,
        "character_limit": _UNLIMITED_CHARS,
        "can_extend_character_limit": False,
        "allowed_to_extend_character_limit": False,
        "max_credit_limit_extension": 0,
        "next_character_count_reset_unix": None,
        "voice_slots_used": len(gateway.voices.added(client.tenant)),
        "voice_limit": gateway.settings.server.voices.max_voices_per_tenant,
        "voice_add_edit_counter": 0,
        "max_voice_add_edits": None,
        "professional_voice_slots_used": 0,
        "professional_voice_slots_used_in_workspace": 0,
        "professional_voice_limit": 0,
        "can_extend_voice_limit": False,
        "can_use_instant_voice_cloning": True,
        "can_use_professional_voice_cloning": False,
        "currency": None,
        "current_overage": {"amount": "0", "currency": "usd"},
        "billing_period": None,
        "character_refresh_period": None,
        "next_invoice": None,
        "open_invoices": [],
        "has_open_invoices": False,
    }
