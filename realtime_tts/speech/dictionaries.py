"""Stored pronunciation dictionaries of tenants: named lists of words with their respellings, used by their ids."""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Iterable, Sequence

from realtime_tts.errors import DictionaryNotFound, InvalidRequest
from realtime_tts.speech.records import Record, RecordStore, TenantRecords
from realtime_tts.text.lexicon import Entry, request_lexicon
from realtime_tts.text.lexicon_file import parse_entries


@dataclasses.dataclass(frozen=True, slots=True)
class Dictionary(Record):
    """One stored dictionary. `version` counts the changes of its entries, from 1; older ones are not kept."""

    description: str
    version: int
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        Record.__post_init__(self)
        entries = tuple((word, respelling) for word, respelling in self.entries)  # JSON has lists
        object.__setattr__(self, "entries", entries)


class Dictionaries(TenantRecords[Dictionary]):
    """Dictionaries of all tenants."""

    kind, limit, full = "dictionary", 100, InvalidRequest
    missing, field = DictionaryNotFound, "pronunciation_dictionary_id"

    def __init__(self, store: RecordStore) -> None:
        super().__init__(Dictionary, store)

    async def add(self, name: str, entries: Iterable[Entry], tenant: str = "", description: str = "") -> Dictionary:
        """Store a dictionary.

        Raises:
            BadLexicon: an invalid entry, or too many. InvalidRequest: an invalid name, or too many dictionaries.
        """
        dictionary_id = f"dict_{secrets.token_hex(16)}"
        made = Dictionary(dictionary_id, tenant, name, time.time(), description, 1, tuple(entries))
        request_lexicon(made.entries)
        return await self._add(made)

    async def add_file(self, name: str, content: bytes, tenant: str = "", description: str = "") -> Dictionary:
        """Store a dictionary of a file, PLS or JSON. Raises as `add`; InvalidRequest: the file is not UTF-8."""
        try:
            entries = parse_entries(content.decode()) if content else []
        except UnicodeDecodeError:
            raise InvalidRequest("the file is not UTF-8", field="file") from None
        return await self.add(name, entries, tenant, description)

    async def entries_of(self, dictionary_ids: Iterable[str], tenant: str = "") -> tuple[tuple[Entry, ...], bool]:
        """Return the entries of several dictionaries, the first before the next, and whether all of them are known."""
        found = [await self.all_of(tenant, dictionary_id) for dictionary_id in dictionary_ids]
        return tuple(entry for known in found for each in known for entry in each.entries), all(found)

    async def change(
        self, dictionary_id: str, tenant: str = "", *, name: str | None = None, entries: Sequence[Entry] | None = None
    ) -> Dictionary:
        """Rename a dictionary or replace its entries, and return it. Raises as `get` and `add`."""
        changed = await self.get(dictionary_id, tenant)
        if name is not None:
            changed = dataclasses.replace(changed, name=name)
        if entries is not None:
            request_lexicon(entries)
            changed = dataclasses.replace(changed, entries=tuple(entries), version=changed.version + 1)
        return await self._replace(changed)
