"""Account of a key in ElevenLabs' format: clients request it to check a key. Pure."""

from __future__ import annotations

from typing import Any

_UNLIMITED_CHARS = 2**31 - 1  # this server has no monthly limit


def user(tenant: str, subscription: dict[str, Any]) -> dict[str, Any]:
    """Return the body of `GET /v1/user`."""
    name = tenant or "local"
    return {
        "user_id": name,
        "workspace_id": name,
        "subscription": subscription,
        "is_new_user": False,
        "is_onboarding_completed": True,
        "is_onboarding_checklist_completed": True,
        "can_use_delayed_payment_methods": False,
        "created_at": 0,
        "seat_type": "workspace_member",
        "xi_api_key": None,
    }


def subscription(num_voices: int, max_voices: int) -> dict[str, Any]:
    """Return the body of `GET /v1/user/subscription`."""
    return {
        "tier": "self_hosted",
        "status": "active",
        "character_count": 0,
        "character_limit": _UNLIMITED_CHARS,
        "can_extend_character_limit": False,
        "allowed_to_extend_character_limit": False,
        "max_credit_limit_extension": 0,
        "next_character_count_reset_unix": None,
        "voice_slots_used": num_voices,
        "voice_limit": max_voices,
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
