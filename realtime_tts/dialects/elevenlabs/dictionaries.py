"""Pronunciation dictionaries in ElevenLabs' format. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from realtime_tts.dialects.json_input import Fields
from realtime_tts.dialects.stored_dictionary import Entry, StoredDictionary
from realtime_tts.errors import InvalidRequest

MAX_LOCATORS = 3  # the same as ElevenLabs


def read_locators(fields: Fields) -> tuple[str, ...]:
    """Return the ids in `pronunciation_dictionary_locators`; versions are ignored."""
    locators = fields.optional_objects("pronunciation_dictionary_locators") or ()
    if len(locators) > MAX_LOCATORS:
        raise InvalidRequest(
            f"a request names at most {MAX_LOCATORS} dictionaries", field="pronunciation_dictionary_locators"
        )
    return tuple(locator.text("pronunciation_dictionary_id") for locator in locators)


def read_rules(fields: Fields) -> list[Entry]:
    """Return the entries in `rules`.

    Raises:
        InvalidMessage: a field of another type. InvalidRequest: a rule with phones, which models here do not support.
    """
    rules = fields.optional_objects("rules") or []
    for rule in rules:
        if rule.optional_text("type") not in (None, "alias"):
            raise InvalidRequest("a rule must have the type alias: models here take no phones", field="rules.type")
    return [(rule.text("string_to_replace"), rule.text("alias")) for rule in rules]


def merged(entries: Sequence[Entry], more: Sequence[Entry]) -> list[Entry]:
    """Return the entries with `more` added; an added entry replaces one of the same word."""
    return list({**dict(entries), **dict(more)}.items())


def version_id(dictionary: StoredDictionary) -> str:
    return f"{dictionary.record_id}-{dictionary.version}"


def made_entry(dictionary: StoredDictionary) -> dict[str, Any]:
    """Return the answer to a request that created or changed a dictionary."""
    return {
        "id": dictionary.record_id,
        "name": dictionary.name,
        "created_by": "",
        "creation_time_unix": int(dictionary.created_at),
        "version_id": version_id(dictionary),
        "version_rules_num": len(dictionary.entries),
        "description": dictionary.description,
        "permission_on_resource": "admin",
    }


def listed_entry(dictionary: StoredDictionary) -> dict[str, Any]:
    """Return an entry of the list of dictionaries."""
    return {
        "id": dictionary.record_id,
        "latest_version_id": version_id(dictionary),
        "latest_version_rules_num": len(dictionary.entries),
        "name": dictionary.name,
        "created_by": "",
        "creation_time_unix": int(dictionary.created_at),
        "archived_time_unix": None,
        "description": dictionary.description,
        "permission_on_resource": "admin",
    }


def full_entry(dictionary: StoredDictionary) -> dict[str, Any]:
    """Return a dictionary with its rules."""
    rules = [{"type": "alias", "string_to_replace": word, "alias": said} for word, said in dictionary.entries]
    return {**listed_entry(dictionary), "rules": rules}
