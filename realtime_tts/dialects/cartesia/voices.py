"""Voices as Cartesia lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any


def voice_entry(about: Mapping[str, Any], loaded_at: float) -> dict[str, Any]:
    """An entry of `GET /voices` for one of `GET /v1/voices`. `loaded_at`: when the model's own voices came, s."""
    is_own = about["kind"] != "model"
    created_at = datetime.fromtimestamp(about.get("created_at", loaded_at), timezone.utc)
    language = about["language"]
    return {
        "id": about["name"],  # the word that a request names it by
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


def voices_page(
    entries: Sequence[dict[str, Any]], limit: int, starting_after: str | None, ending_before: str | None, query: str
) -> dict[str, Any]:
    """`limit` of the voices that `query` is in the name, description or id of: those after a voice, or before one."""
    wanted = query.casefold()
    found = [entry for entry in entries if any(wanted in entry[key].casefold() for key in ("name", "description"))]
    ids = [entry["id"] for entry in found]
    if ending_before is not None:
        before = found[: ids.index(ending_before)] if ending_before in ids else []
        page, has_more = before[-limit:], len(before) > limit
    else:
        rest = found[ids.index(starting_after) + 1 :] if starting_after in ids else found
        page, has_more = rest[:limit], len(rest) > limit
    return {"data": page, "has_more": has_more, "next_page": page[-1]["id"] if page and has_more else None}
