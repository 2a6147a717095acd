"""Model and voices in ElevenLabs' format. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.datastructures import QueryParams

from realtime_tts.errors import InvalidRequest

_CATEGORIES = {"cloned": "cloned", "designed": "generated"}
_LABELS = ("language", "gender", "age", "accent", "use_cases")
_OWNED = {  # whether voices of a `voice_type` are the key's own
    "personal": (True,),
    "saved": (True,),
    "workspace": (True,),
    "non-default": (True,),
    "default": (False,),
    "community": (),
}
_SORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda entry: entry["name"].casefold(),
    "created_at_unix": lambda entry: entry["created_at_unix"] or 0,
}
_MAX_PAGE = 100
_EVERYTHING = 2**31


def model_entries(name: str, languages: Sequence[str], max_chars: int) -> list[dict[str, Any]]:
    """Return the body of `GET /v1/models`."""
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
    """Return a voice for `GET /v1/voices`, from its native entry."""
    return {
        "voice_id": voice["id"],
        "name": voice["name"],
        "category": _CATEGORIES.get(voice["kind"], "premade"),
        "description": voice.get("description", ""),
        "labels": {"language": voice["language"]} if voice.get("language") else {},
        "preview_url": None,
        "settings": None,
        "is_owner": voice["kind"] != "model",
        "created_at_unix": int(created_at) if (created_at := voice.get("created_at")) else None,
    }


def search_voices(entries: Sequence[dict[str, Any]], query: QueryParams) -> dict[str, Any]:
    """Return the body of `GET /v2/voices`: the entries that match `query`, in the order that it requests.

    A page has `page_size` entries; without it, all are on one page. A label that no voice has (a gender, an accent)
    matches no voice.

    Raises:
        InvalidRequest: `page_size` is out of range, or `sort` is unknown.
    """
    found = [entry for entry in entries if _matches(entry, query)]
    if sort := query.get("sort"):
        if sort not in _SORTS:
            raise InvalidRequest(f"sort must be one of {', '.join(_SORTS)}", field="sort")
        found.sort(key=_SORTS[sort], reverse=query.get("sort_direction") == "desc")
    ids = [entry["voice_id"] for entry in found]
    token = query.get("next_page_token")
    start = ids.index(token) + 1 if token in ids else 0
    page = found[start : start + _page_size(query)]
    has_more = start + len(page) < len(found)
    return {
        "voices": page,
        "has_more": has_more,
        "total_count": len(found),
        "next_page_token": page[-1]["voice_id"] if has_more else None,
    }


def _matches(entry: dict[str, Any], query: QueryParams) -> bool:
    words = query.get("search", "").casefold()
    told = (entry["name"], entry["description"], *entry["labels"].values())
    ids, labels = query.getlist("voice_ids"), [name for name in _LABELS if query.get(name)]
    return (
        any(words in text.casefold() for text in told)
        and (not ids or entry["voice_id"] in ids)
        and query.get("category", entry["category"]) == entry["category"]
        and all(entry["labels"].get(name) in query.getlist(name) for name in labels)
        and entry["is_owner"] in _OWNED.get(query.get("voice_type", ""), (True, False))
    )


def _page_size(query: QueryParams) -> int:
    text = query.get("page_size", str(_MAX_PAGE))
    if not (text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= _MAX_PAGE):
        raise InvalidRequest(f"page_size must be within 1 and {_MAX_PAGE}", field="page_size")
    return int(text) if "page_size" in query else _EVERYTHING
