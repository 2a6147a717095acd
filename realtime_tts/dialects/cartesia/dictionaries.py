"""Pronunciation dictionaries in Cartesia's format. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from realtime_tts.dialects.json_input import Fields
from realtime_tts.dialects.stored_dictionary import Entry, StoredDictionary


def read_items(fields: Fields) -> list[Entry] | None:
    """Return the entries in `items`; None if they are not given.

    Raises:
        InvalidMessage: a field of another type.
    """
    items = fields.optional_objects("items")
    return None if items is None else [(item.text("text"), item.text("alias")) for item in items]


def dictionary_entry(dictionary: StoredDictionary, tenant: str) -> dict[str, Any]:
    """Return a dictionary in Cartesia's format."""
    created_at = datetime.fromtimestamp(dictionary.created_at, UTC)
    return {
        "id": dictionary.record_id,
        "name": dictionary.name,
        "owner_id": tenant or "local",
        "created_at": created_at.isoformat().replace("+00:00", "Z"),
        "pinned": False,
        "items": [{"text": word, "alias": said} for word, said in dictionary.entries],
    }
