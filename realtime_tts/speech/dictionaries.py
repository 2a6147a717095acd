"""Pronunciation dictionaries that keys have stored: named lists of words with their respellings, used by their ids.

Each is a JSON file, replaced as a whole, so that gateways that share the directory always read a whole one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from realtime_tts.errors import DictionaryNotFound, InternalError, InvalidRequest
from realtime_tts.text.lexicon import Entry, request_lexicon
from realtime_tts.text.lexicon_file import parse_entries

MAX_PER_KEY = 100
MAX_NAME_CHARS = 128
_ID = re.compile(r"dict_[0-9a-f]{32}")
_TENANT = re.compile(r"[0-9a-f]{0,64}")


@dataclasses.dataclass(frozen=True, slots=True)
class Dictionary:
    """One stored dictionary.

    Attributes:
        version: counts the changes of its entries, from 1; older ones are not kept.
        created_at: Unix time.
    """

    dictionary_id: str
    name: str
    description: str
    created_at: float
    version: int
    entries: tuple[Entry, ...]


class Dictionaries:
    """The dictionaries of all keys.

    Args:
        directory: where they are kept; None: they end with the process.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._known: dict[tuple[str, str], Dictionary] = {}  # without a directory

    async def add(self, name: str, entries: Iterable[Entry], tenant: str = "", description: str = "") -> Dictionary:
        """Store a dictionary.

        Raises:
            BadLexicon: an entry that cannot be, or too many. InvalidRequest: a name that cannot be, or too many
                dictionaries. InternalError: the disk is full or broken.
        """
        made = Dictionary(f"dict_{secrets.token_hex(16)}", name, description, time.time(), 1, tuple(entries))
        _check(made)
        if len(await self.all_of(tenant)) >= MAX_PER_KEY:
            raise InvalidRequest(f"this key may have {MAX_PER_KEY} dictionaries; delete one first")
        await self._put(made, tenant)
        return made

    async def add_file(self, name: str, content: bytes, tenant: str = "", description: str = "") -> Dictionary:
        """Store a dictionary of a file, PLS or JSON. Raises as `add`; InvalidRequest: the file is not UTF-8."""
        try:
            entries = parse_entries(content.decode()) if content else []
        except UnicodeDecodeError:
            raise InvalidRequest("the file is not UTF-8", field="file") from None
        return await self.add(name, entries, tenant, description)

    async def all_of(self, tenant: str = "") -> list[Dictionary]:
        """Return the dictionaries of a key, oldest first."""
        if self._directory is None:
            found = [each for (owner, _), each in self._known.items() if owner == tenant]
        else:
            found = await asyncio.to_thread(self._read_all, self._directory_of(tenant))
        return sorted(found, key=lambda each: (each.created_at, each.dictionary_id))

    async def get(self, dictionary_id: str, tenant: str = "") -> Dictionary:
        """Raises:
        DictionaryNotFound: it is unknown, or another key's.
        """
        found = await self._find(dictionary_id, tenant)
        if found is None:
            raise DictionaryNotFound("there is no such pronunciation dictionary", field="pronunciation_dictionary_id")
        return found

    async def _find(self, dictionary_id: str, tenant: str) -> Dictionary | None:
        if not _ID.fullmatch(dictionary_id):
            return None
        if self._directory is None:
            return self._known.get((tenant, dictionary_id))
        return await asyncio.to_thread(_read, self._directory_of(tenant) / f"{dictionary_id}.json")

    async def entries_of(self, dictionary_ids: Iterable[str], tenant: str = "") -> tuple[tuple[Entry, ...], bool]:
        """Return the entries of several dictionaries, the first before the next, and whether all of them are known."""
        found = [await self._find(dictionary_id, tenant) for dictionary_id in dictionary_ids]
        entries = tuple(entry for each in found if each is not None for entry in each.entries)
        return entries, None not in found

    async def change(
        self, dictionary_id: str, tenant: str = "", *, name: str | None = None, entries: Sequence[Entry] | None = None
    ) -> Dictionary:
        """Rename a dictionary or replace its entries, and return it. Raises as `get` and `add`."""
        old = await self.get(dictionary_id, tenant)
        changed = dataclasses.replace(
            old,
            name=old.name if name is None else name,
            entries=old.entries if entries is None else tuple(entries),
            version=old.version + (entries is not None),
        )
        _check(changed)
        await self._put(changed, tenant)
        return changed

    async def remove(self, dictionary_id: str, tenant: str = "") -> None:
        """Raises:
        DictionaryNotFound: it is unknown, or another key's.
        """
        await self.get(dictionary_id, tenant)
        self._known.pop((tenant, dictionary_id), None)
        if self._directory is not None:
            path = self._directory_of(tenant) / f"{dictionary_id}.json"
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def _put(self, dictionary: Dictionary, tenant: str) -> None:
        if self._directory is None:
            self._known[tenant, dictionary.dictionary_id] = dictionary
            return
        try:
            await asyncio.to_thread(_write, self._directory_of(tenant), dictionary)
        except OSError as error:
            raise InternalError("the dictionary cannot be stored: the disk is full or broken") from error

    def _directory_of(self, tenant: str) -> Path:
        assert self._directory is not None
        assert _TENANT.fullmatch(tenant)
        return self._directory / (tenant or "local")

    @staticmethod
    def _read_all(directory: Path) -> list[Dictionary]:
        found = (_read(path) for path in directory.glob("dict_*.json"))
        return [each for each in found if each is not None]


def _check(dictionary: Dictionary) -> None:
    if not dictionary.name.strip() or len(dictionary.name) > MAX_NAME_CHARS:
        raise InvalidRequest(f"name must have 1 to {MAX_NAME_CHARS} characters", field="name")
    request_lexicon(dictionary.entries)


def _read(path: Path) -> Dictionary | None:
    """Return the dictionary in a file; None if there is none, or a damaged one."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        entries = tuple((str(word), str(respelling)) for word, respelling in fields.pop("entries"))
        return Dictionary(**fields, entries=entries)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(directory: Path, dictionary: Dictionary) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"{dictionary.dictionary_id}.json"
    temporary = path.with_suffix(f".{secrets.token_hex(4)}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(dictionary), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
