"""Our model and voices as ElevenLabs lists its own. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_CATEGORIES = {"cloned": "cloned", "designed": "generated"}


def model_entries(name: str, languages: Sequence[str], max_chars: int) -> list[dict[str, Any]]:
    """The body of `GET /v1/models`."""
    return [
        {
            "model_id": name,
            "name": name,
            "can_do_text_to_speech": True,
            "can_do_voice_conversion": False,
            "can_be_finetuned": False,
            "can_use_style": False,
            "can_use_speaker_boost": False,
            "serves_pro_voices": False,
            "requires_alpha_access": False,
            "token_cost_factor": 0.0,
            "maximum_text_length_per_request": max_chars,
            "languages": [{"language_id": language, "name": language} for language in languages],
        }
    ]


def voice_entry(voice: Mapping[str, Any]) -> dict[str, Any]:
    """One of the voices that `GET /v1/voices` lists, from its entry in our own list."""
    return {
        "voice_id": voice["id"],
        "name": voice["name"],
        "category": _CATEGORIES.get(voice["kind"], "premade"),
        "description": voice.get("description", ""),
        "labels": {"language": voice["language"]} if voice.get("language") else {},
        "preview_url": None,
        "settings": None,
    }
