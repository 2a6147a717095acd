"""Pronunciation dictionaries that a request names, in ElevenLabs' format."""

from __future__ import annotations

from realtime_tts.dialects.json_input import Fields
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
