"""Stored pronunciation dictionaries that a request names, added to its lexicon."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from realtime_tts.errors import DictionaryNotFound
from realtime_tts.server.admission.client import Client
from realtime_tts.server.gateway import Gateway
from realtime_tts.session.settings import SpeechParams


async def with_dictionaries(
    gateway: Gateway, client: Client, params: SpeechParams, dictionary_ids: Sequence[str]
) -> tuple[SpeechParams, bool]:
    """Return the parameters with the entries of the dictionaries, and whether all of the ids are known.

    Raises:
        DictionaryNotFound: an id is unknown, and the setting `strict_ids` is on.
    """
    entries, all_known = await gateway.dictionaries.entries_of(dictionary_ids, client.tenant)
    if not all_known and gateway.settings.server.voices.strict_ids:
        raise DictionaryNotFound("there is no such pronunciation dictionary", field="pronunciation_dictionary_id")
    return dataclasses.replace(params, lexicon=(*(params.lexicon or ()), *entries)), all_known
