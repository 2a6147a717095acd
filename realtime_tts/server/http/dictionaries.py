"""Stored pronunciation dictionaries that a request names, added to its lexicon."""

from __future__ import annotations

from collections.abc import Sequence

from realtime_tts.contract.speech_params import SpeechParams
from realtime_tts.errors import DictionaryNotFound
from realtime_tts.server.admission.client import Client
from realtime_tts.server.gateway import Gateway


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
    lexicon = dict(reversed(entries)) | dict(params.get("lexicon", {}))  # of equal words the first counts
    return {**params, "lexicon": lexicon}, all_known
