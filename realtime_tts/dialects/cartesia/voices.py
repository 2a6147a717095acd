"""Voices in Cartesia's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from realtime_tts.dialects.voice_request import YES, VoiceRequest
from realtime_tts.errors import InvalidRequest

CLONE_FIELDS = ("name", "description", "language", "consent", "consent_by", "consent_scope")


def voice_entry(about: Mapping[str, Any], loaded_at: float) -> dict[str, Any]:
    """Return a voice for `GET /voices`, from its native entry. `loaded_at`: Unix time for the model's voices, s."""
    is_own = about["kind"] != "model"
    created_at = datetime.fromtimestamp(about.get("created_at", loaded_at), UTC)
    language = about["language"]
    return {
        "id": about["id"],
        "name": about["name"],
        "tagline": "",
        "description": about["description"],
        "language": language,
        "locales": [{"locale": language, "is_native": True}] if language else [],
        "gender": None,
        "is_owner": is_own,
        "access": "private" if is_own else "public",
        "visibility": "owner" if is_own else "all",
        "created_at": created_at.isoformat().replace("+00:00", "Z"),
    }


def metadata(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return a newly cloned voice, from its native entry."""
    entry = voice_entry(about, about["created_at"])
    names = ("id", "access", "created_at", "description", "language", "name", "tagline", "visibility")
    return {**{name: entry[name] for name in names}, "user_id": "", "is_public": False}


def parse_clone(fields: Mapping[str, str], clip: bytes) -> VoiceRequest:
    """Parse the form of `POST /voices/clone`, with additional fields for consent, which Cartesia does not have.

    Raises:
        InvalidRequest: the clip is missing.
    """
    if not clip:
        raise InvalidRequest("clip is missing", field="clip")
    return VoiceRequest(
        name=fields.get("name", ""),
        description=fields.get("description", ""),
        language=fields.get("language", ""),
        reference=(clip,),
        consent=fields.get("consent", "").lower() in YES,
        consent_by=fields.get("consent_by", ""),
        consent_scope=fields.get("consent_scope", ""),
    )


def voices_page(
    entries: Sequence[dict[str, Any]], limit: int, starting_after: str | None, ending_before: str | None, query: str
) -> dict[str, Any]:
    """Return a page of at most `limit` voices with `query` in their name or description, after or before a voice."""
    wanted = query.casefold()
    found = [entry for entry in entries if any(wanted in entry[key].casefold() for key in ("name", "description"))]
    return page_of(found, limit, starting_after, ending_before)


def page_of(
    found: Sequence[dict[str, Any]], limit: int, starting_after: str | None, ending_before: str | None
) -> dict[str, Any]:
    """Return a page of at most `limit` entries, after or before the entry with an id."""
    ids = [entry["id"] for entry in found]
    if ending_before is not None:
        before = found[: ids.index(ending_before)] if ending_before in ids else []
        page, has_more = before[-limit:], len(before) > limit
    else:
        rest = found[ids.index(starting_after) + 1 :] if starting_after in ids else found
        page, has_more = rest[:limit], len(rest) > limit
    return {"data": page, "has_more": has_more, "next_page": page[-1]["id"] if page and has_more else None}
