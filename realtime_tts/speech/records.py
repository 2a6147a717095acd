"""Records that clients store (voices, consents, dictionaries): JSON in one SQLite database, or in memory.

Several gateways may have the same database: each sees what the others have written with its next read.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from realtime_tts.errors import (
    ConfigError,
    ConsentNotFound,
    DictionaryNotFound,
    InternalError,
    InvalidRequest,
    RealtimeTTSError,
    TooManyVoices,
)
from realtime_tts.text.lexicon import Entry, request_lexicon
from realtime_tts.text.lexicon_file import parse_entries

MAX_NAME_CHARS = 128
_SCHEMA_VERSION = 3
_SCHEMA = """
CREATE TABLE records (
    kind TEXT NOT NULL,
    record_id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    created_at REAL NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX records_of_tenants ON records (kind, tenant);
CREATE UNIQUE INDEX voice_names ON records (tenant, json_extract(body, '$.name')) WHERE kind = 'voice';
CREATE INDEX voices_by_latents ON records (json_extract(body, '$.digest')) WHERE kind = 'voice'
"""
_BUSY_S = 5.0

Fields = dict[str, Any]  # of a JSON object


class RecordStore:
    """Records by kind and id. All calls block for a disk's time: make them from a thread.

    Args:
        directory: holds the database; made if it is missing. None: the records end with the process.

    Raises (at construction):
        ConfigError: the directory cannot be made, written, or read.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._path = Path(":memory:")
        try:
            if directory is not None:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # an existing one may hold other files
                self._path = directory / "voices.sqlite3"
                # The database's log is made with the same permissions.
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            self._db = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
                self._db.execute(f"PRAGMA {pragma}")
            self._prepare()
            self._file = None if directory is None else os.stat(self._path)
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"voices cannot be kept in {directory}: {error}", field="voices_dir") from error

    def _prepare(self) -> None:
        with self._transaction():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                for statement in _SCHEMA.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
            elif version != _SCHEMA_VERSION:
                problem = f"{self._path} has voices in format {version}, this server reads format {_SCHEMA_VERSION}"
                raise ConfigError(f"{problem}: give another --voices-dir", field="voices_dir")

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def find(self, kind: str, tenant: str, record_id: str | None = None) -> list[Fields]:
        """Return a tenant's records of a kind, or the one of this id, oldest first.

        Raises:
            InternalError: the database cannot be read.
        """
        wanted = None if record_id is None else _sqlite_id(record_id)
        with self._reading():
            return self._select("kind = ?1 AND tenant = ?2 AND ifnull(?3, record_id) = record_id", kind, tenant, wanted)

    def insert(self, kind: str, fields: Fields, limit: int) -> bool:
        """Add a record, unless its tenant has `limit` of its kind; return True if it was added.

        Raises:
            InternalError: the disk is full or broken.
        """
        with self._writing(), self._transaction():
            has_room = self._count("kind = ? AND tenant = ?", kind, fields["tenant"]) < limit
            if has_room:
                self._insert(kind, fields)
            return has_room

    def edit(self, kind: str, tenant: str, record_id: str, change: Callable[[Fields], Fields]) -> Fields | None:
        """Change a record and return its new fields; None: there is no such record. No other change, by this or another
        process, comes between. Raises InternalError as `insert`, and what `change` raises.
        """
        with self._writing(), self._transaction():
            place = kind, tenant, _sqlite_id(record_id)
            for fields in self._select("kind = ? AND tenant = ? AND record_id = ?", *place):
                changed = change(fields)
                self._update(record_id, changed)
                return changed
            return None

    def delete(self, record_id: str) -> None:
        """Remove a record; unknown ids are ignored. Raises InternalError as `insert`."""
        with self._writing():
            self._delete(record_id)

    def _delete(self, record_id: str) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM records WHERE record_id = ?", (record_id,))

    # ---- within a block of the methods below ---------------------------------------------------------------------

    def _select(self, condition: str, *values: object) -> list[Fields]:
        order = f"SELECT body FROM records WHERE {condition} ORDER BY created_at, rowid"
        return [json.loads(body) for (body,) in self._db.execute(order, values)]

    def _count(self, condition: str, *values: object) -> int:
        return int(self._db.execute(f"SELECT count(*) FROM records WHERE {condition}", values).fetchone()[0])

    def _insert(self, kind: str, fields: Fields) -> None:
        row = (kind, fields["record_id"], fields["tenant"], fields["created_at"], json.dumps(fields))
        self._db.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?)", row)

    def _update(self, record_id: str, changes: Fields) -> bool:
        change = "UPDATE records SET body = json_patch(body, ?) WHERE record_id = ?"
        return self._db.execute(change, (json.dumps(changes), record_id)).rowcount > 0

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # some failures have rolled it back already
                self._db.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _locked(self, problem: str) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except (OSError, sqlite3.Error) as error:
                raise InternalError(problem) from error

    def _reading(self) -> contextlib.AbstractContextManager[None]:
        return self._locked("the stored records cannot be read")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._locked("the record cannot be stored: the disk is full or broken"):
            self._check_in_place()
            yield

    def _check_in_place(self) -> None:
        """Raise InternalError if the database's file was removed or replaced: changes would be lost with it."""
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            if os.path.samestat(self._file, os.stat(self._path)):
                return
        raise InternalError("the voices directory was removed or replaced: put it back, or restart the server")


def _sqlite_id(record_id: str) -> str:
    """Return an id that can be a parameter: a lone surrogate cannot."""
    return record_id.encode("ascii", "replace").decode()


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One record of a tenant. `created_at`: Unix time, s."""

    record_id: str
    tenant: str
    name: str
    created_at: float

    def __post_init__(self) -> None:
        if not self.name.strip() or len(self.name) > MAX_NAME_CHARS:
            raise InvalidRequest(f"name must have 1 to {MAX_NAME_CHARS} characters", field="name")


R = TypeVar("R", bound=Record)


class TenantRecords(Generic[R]):
    """Records of one kind. Every call reads the store, since other processes add records, too.

    Raises (from every method):
        InternalError: the store cannot be read or written.
    """

    kind: ClassVar[str]
    limit: ClassVar[int]  # for one tenant
    full: ClassVar[type[RealtimeTTSError]]
    missing: ClassVar[type[RealtimeTTSError]]
    field: ClassVar[str]  # of requests, that names a record

    make: Callable[..., R]  # of the record's fields

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    async def all_of(self, tenant: str = "", record_id: str | None = None) -> list[R]:
        """Return the records of a tenant, oldest first; with `record_id` this one alone."""
        found = await asyncio.to_thread(self._store.find, self.kind, tenant, record_id)
        return [self.make(**fields) for fields in found]

    async def get(self, record_id: str, tenant: str = "") -> R:
        """Return a record. Raises `missing`: it is unknown, or another tenant's."""
        for found in await self.all_of(tenant, record_id):
            return found
        raise self._missing()

    async def remove(self, record_id: str, tenant: str = "") -> None:
        """Remove a record. Raises as `get`."""
        await self.get(record_id, tenant)
        await asyncio.to_thread(self._store.delete, record_id)

    async def _add(self, record: R) -> R:
        if not await asyncio.to_thread(self._store.insert, self.kind, dataclasses.asdict(record), self.limit):
            raise self.full(f"a key may have {self.limit} records of the kind {self.kind}; delete one first")
        return record

    async def _edit(self, record_id: str, tenant: str, change: Callable[[R], R]) -> R:
        """Change a record and return it. Raises as `get`, and what `change` raises, which runs in a thread."""

        def edited(fields: Fields) -> Fields:
            return dataclasses.asdict(change(self.make(**fields)))

        fields = await asyncio.to_thread(self._store.edit, self.kind, tenant, record_id, edited)
        if fields is None:
            raise self._missing()
        return self.make(**fields)

    def _missing(self) -> RealtimeTTSError:
        return self.missing(f"there is no such {self.kind}", field=self.field)


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedConsent(Record):
    """Consent spoken by the speaker in a recording, of which the hash is kept; `name` is its label."""

    language: str
    recording_sha256: str

    def __post_init__(self) -> None:
        Record.__post_init__(self)
        if not self.language.strip() or len(self.language) > 16:
            raise InvalidRequest("a language is a code such as en or de-AT", field="language")


class Consents(TenantRecords[RecordedConsent]):
    """Recorded consents of all tenants. Voices made with a consent keep the record of it when it is removed."""

    kind, limit, full, missing, field = "consent", 1000, TooManyVoices, ConsentNotFound, "consent"
    make = RecordedConsent

    async def add(self, name: str, language: str, recording_sha256: str, tenant: str = "") -> RecordedConsent:
        """Store a consent. Raises InvalidRequest: an invalid label. TooManyVoices: the tenant has `limit` consents."""
        consent_id = "cons_" + secrets.token_hex(16)
        return await self._add(RecordedConsent(consent_id, tenant, name, time.time(), language, recording_sha256))

    async def rename(self, consent_id: str, name: str, tenant: str = "") -> RecordedConsent:
        """Rename a consent and return it. Raises ConsentNotFound, and InvalidRequest as `add`."""
        return await self._edit(consent_id, tenant, lambda consent: dataclasses.replace(consent, name=name))


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
    make = Dictionary

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
        self,
        dictionary_id: str,
        tenant: str = "",
        *,
        name: str | None = None,
        entries: Callable[[tuple[Entry, ...]], Iterable[Entry]] | None = None,
    ) -> Dictionary:
        """Rename a dictionary or replace its entries, and return it. Raises as `get` and `add`.

        entries: returns the new entries for the old ones.
        """

        def changed(old: Dictionary) -> Dictionary:
            new = old if name is None else dataclasses.replace(old, name=name)
            if entries is not None:
                new = dataclasses.replace(new, entries=tuple(entries(old.entries)), version=old.version + 1)
                request_lexicon(new.entries)
            return new

        return await self._edit(dictionary_id, tenant, changed)
