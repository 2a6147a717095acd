"""Voices on disk: metadata in SQLite, latents in files beside it.

A latent file is named by the hash of its content, so that one that is there is whole, and two voices of one recording
share it. Several gateways may have the same directory: each sees what the others have done with the next `refresh`.
All calls block for a disk's time: make them from a thread, one at a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from realtime_tts.errors import ConfigError, InternalError, TooManyVoices, VoiceExists, VoiceNotFound
from realtime_tts.speech.directory_use import DirectoryUse

logger = logging.getLogger(__name__)

_SCHEMA_VERSION = 2
_SCHEMA = """
CREATE TABLE voices (
    voice_id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    language TEXT NOT NULL,
    created_at REAL NOT NULL,
    model TEXT NOT NULL,
    instructions TEXT,
    latents TEXT NOT NULL,
    num_reference_patches INTEGER NOT NULL,
    num_prompt_patches INTEGER NOT NULL,
    patch_size INTEGER NOT NULL,
    latent_dim INTEGER NOT NULL,
    prompt_text TEXT,
    consent_by TEXT,
    consent_scope TEXT,
    consent_at REAL,
    recording_sha256 TEXT,
    ttl_s REAL,
    expires_at REAL,
    UNIQUE (tenant, name)
);
CREATE INDEX voices_by_latents ON voices (latents);
"""
_CONSENTS = """
CREATE TABLE consents (
    consent_id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    language TEXT NOT NULL,
    created_at REAL NOT NULL,
    recording_sha256 TEXT NOT NULL
);
"""
_FROM_VERSION_1 = "ALTER TABLE voices ADD COLUMN ttl_s REAL; ALTER TABLE voices ADD COLUMN expires_at REAL;"
_BUSY_S = 5.0
# Kept free: a deletion writes some pages of 4 KiB to the database's log before it frees any.
_RESERVE_BYTES = 256 * 1024
_ORPHAN_S = 3600.0  # older files that no voice names were left by a process that died between the two


@dataclasses.dataclass(frozen=True, slots=True)
class Latents:
    """Latents that a model made of recordings: `payload` is f4le [patches, patch_size, latent_dim], the reference's
    first."""

    num_reference_patches: int
    num_prompt_patches: int
    patch_size: int
    latent_dim: int
    payload: bytes = dataclasses.field(repr=False)
    prompt_text: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Consent:
    """Statement of consent: by whom it was given, to what, when (Unix time), and for which recordings (their hash)."""

    given_by: str
    scope: str
    at: float
    recording_sha256: str


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedConsent:
    """Consent spoken by the speaker in a recording, of which the hash is kept; `name` is its label."""

    consent_id: str
    tenant: str
    name: str
    language: str
    created_at: float
    recording_sha256: str


@dataclasses.dataclass(frozen=True, slots=True)
class VoiceRecord:
    """One added voice.

    Attributes:
        voice_id: random; also the engine's id of the voice.
        tenant: id of the key that it belongs to; no other key sees it.
        model: the checkpoint that its latents are of, which no other one can read.
        instructions: of a voice that the model itself designed by them.
        ttl_s, expires_at: of a voice for a while, how long it outlives its last use, and until when that is (Unix
            time); its name is its id. None: it is kept until it is deleted.
    """

    voice_id: str
    tenant: str
    name: str
    model: str
    created_at: float
    latents: Latents
    description: str = ""
    language: str = ""
    instructions: str | None = None
    consent: Consent | None = None
    ttl_s: float | None = None
    expires_at: float | None = None


def check_room(num: int, limit: int | None, for_a_while: bool) -> None:
    """Check that a key with `num` voices may have one more; temporary voices are counted separately.

    Raises:
        TooManyVoices: the limit is reached.
    """
    if limit is None or num < limit:
        return
    if for_a_while:
        raise TooManyVoices(f"this key may have {limit} voices for a while; they go by themselves, or are deleted")
    raise TooManyVoices(f"this key may have {limit} voices; delete one first")


class VoiceStore:
    """A directory of voices.

    Args:
        directory: made if it is not there.

    Raises (at construction):
        ConfigError: it cannot be made, written, or read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._latents, self._reserve = directory / "latents", directory / "reserve"
        self._lock = threading.Lock()
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # one that is there may hold what is not ours
            self._latents.mkdir(mode=0o700, exist_ok=True)
            path = directory / "voices.sqlite3"
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # its log is made with the same permissions
            self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"voices cannot be kept in {directory}: {error}", field="voices_dir") from error
        self._seen = -1
        self._use: DirectoryUse | None = None

    def _prepare(self) -> None:
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA secure_delete = ON")
        with self._transaction():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version in (0, 1):
                for statement in filter(str.strip, ((_FROM_VERSION_1 if version else _SCHEMA) + _CONSENTS).split(";")):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
            elif version != _SCHEMA_VERSION:
                raise ConfigError(
                    f"{self.directory} holds voices in format {version}; this server reads {_SCHEMA_VERSION}",
                    field="voices_dir",
                )
        self._remove_in_reserve("expires_at <= ?", time.time())
        self._remove_orphans()

    def close(self) -> None:
        with self._lock:
            self._db.close()
            if self._use is not None:
                self._use.close()
                self._use = None

    def use_with(self, consent: str) -> None:
        """Hold the directory for servers with this setting `voice_consent`, until `close`.

        Raises:
            ConfigError: a server with another one uses it now.
        """
        self._use = DirectoryUse(self.directory, consent)

    # ---- reading -------------------------------------------------------------------------------------------------

    def has_changed(self) -> bool:
        """Return True if another process has changed anything since the last `voices`."""
        with self._lock, _reading():
            return bool(self._db.execute("PRAGMA data_version").fetchone()[0] != self._seen)

    def ids(self) -> list[str]:
        """Return the ids of all voices, whatever their model. Raises InternalError: the database cannot be read."""
        with self._lock, _reading():
            return [row["voice_id"] for row in self._db.execute("SELECT voice_id FROM voices")]

    def voices(self, model: str, known: Mapping[str, VoiceRecord] | None = None) -> list[VoiceRecord]:
        """Return all voices of a model, oldest first. A voice whose latents are damaged or missing is left out.

        Args:
            known: by id; their latents, which never change, are taken from there.

        Raises:
            InternalError: the database cannot be read.
        """
        with self._lock, _reading():
            self._seen = self._db.execute("PRAGMA data_version").fetchone()[0]
            rows = self._db.execute("SELECT * FROM voices WHERE model = ? ORDER BY created_at", (model,)).fetchall()
        found = (self._from_row(row, known or {}) for row in rows)
        return [voice for voice in found if voice is not None]

    def _from_row(self, row: sqlite3.Row, known: Mapping[str, VoiceRecord]) -> VoiceRecord | None:
        if row["voice_id"] in known:
            latents = known[row["voice_id"]].latents
        elif (payload := self._read_latents(row["latents"])) is not None:
            sizes = (row["num_reference_patches"], row["num_prompt_patches"], row["patch_size"], row["latent_dim"])
            latents = Latents(*sizes, payload, row["prompt_text"])
        else:
            return None
        consent = None
        if row["consent_by"] is not None:
            consent = Consent(row["consent_by"], row["consent_scope"], row["consent_at"], row["recording_sha256"])
        return VoiceRecord(
            row["voice_id"],
            row["tenant"],
            row["name"],
            row["model"],
            row["created_at"],
            latents,
            row["description"],
            row["language"],
            row["instructions"],
            consent,
            row["ttl_s"],
            row["expires_at"],
        )

    def _read_latents(self, digest: str) -> bytes | None:
        try:
            payload = (self._latents / digest).read_bytes()
        except OSError:
            return None
        return payload if hashlib.sha256(payload).hexdigest() == digest else None

    # ---- writing -------------------------------------------------------------------------------------------------

    def add(self, voice: VoiceRecord, limit: int | None = None) -> None:
        """Keep a voice; when this returns, it survives a crash.

        Args:
            limit: as many voices of its kind, see `check_room`, may its key have of its model, this one included,
                whichever process adds them; None: any number.

        Raises:
            VoiceExists: the key has another voice of this name. TooManyVoices: it has as many as it may have.
            InternalError: the disk is full or broken.
        """
        latents, consent = voice.latents, voice.consent
        with self._lock, _writing():
            digest = self._write_latents(latents.payload)
            row = (
                voice.voice_id,
                voice.tenant,
                voice.name,
                voice.description,
                voice.language,
                voice.created_at,
                voice.model,
                voice.instructions,
                digest,
                latents.num_reference_patches,
                latents.num_prompt_patches,
                latents.patch_size,
                latents.latent_dim,
                latents.prompt_text,
                consent.given_by if consent else None,
                consent.scope if consent else None,
                consent.at if consent else None,
                consent.recording_sha256 if consent else None,
                voice.ttl_s,
                voice.expires_at,
            )
            try:
                with self._transaction():
                    check_room(self._num_like(voice), limit, voice.ttl_s is not None)
                    self._db.execute(f"INSERT INTO voices VALUES ({', '.join('?' * len(row))})", row)
            except TooManyVoices:
                self._remove_unused(digest)
                raise
            except sqlite3.IntegrityError:
                self._remove_unused(digest)
                raise VoiceExists(self._taken_by(voice), field="name") from None

    def _taken_by(self, voice: VoiceRecord) -> str:
        found = self._db.execute(
            "SELECT model FROM voices WHERE tenant = ? AND name = ?", (voice.tenant, voice.name)
        ).fetchone()
        model = f", made with the model {found['model']}" if found and found["model"] != voice.model else ""
        return f"there is a voice {voice.name!r} already{model}"

    def _num_like(self, voice: VoiceRecord) -> int:
        """Return the number of voices of the same kind (temporary or not) that its key has."""
        of_kind = "SELECT count(*) FROM voices WHERE tenant = ? AND model = ? AND (ttl_s IS NULL) = ?"
        num: int = self._db.execute(of_kind, (voice.tenant, voice.model, voice.ttl_s is None)).fetchone()[0]
        return num

    def describe(self, voice_id: str, *, name: str, description: str, language: str) -> None:
        """Change what is said of a voice.

        Raises:
            VoiceNotFound: it is gone. VoiceExists: the name is taken. InternalError: as `add`.
        """
        with self._lock, _writing():
            try:
                with self._transaction():
                    changed = self._db.execute(
                        "UPDATE voices SET name = ?, description = ?, language = ? WHERE voice_id = ?",
                        (name, description, language, voice_id),
                    )
            except sqlite3.IntegrityError:
                raise VoiceExists(f"there is a voice {name!r} already", field="name") from None
            if not changed.rowcount:
                raise VoiceNotFound("the voice was removed")

    def extend(self, voice_id: str, expires_at: float) -> None:
        """A voice for a while was used; unknown ids are ignored. Raises InternalError as `add`."""
        with self._lock, _writing(), self._transaction():
            self._db.execute(
                "UPDATE voices SET expires_at = max(expires_at, ?) WHERE voice_id = ?", (expires_at, voice_id)
            )

    def remove(self, voice_id: str) -> None:
        """Forget a voice and all that is kept of it; unknown ids are ignored.

        Raises:
            InternalError: as `add`.
        """
        with self._lock, _writing():
            self._remove_in_reserve("voice_id = ?", voice_id)

    def remove_expired(self, now: float) -> None:
        """Remove expired temporary voices, whichever process made them. Raises InternalError as `add`."""
        with self._lock, _writing():
            self._remove_in_reserve("expires_at <= ?", now)

    def _remove_in_reserve(self, condition: str, value: object) -> None:
        """Remove voices; on a full disk, use the space that is reserved for it."""
        try:
            self._remove(condition, value)
        except (OSError, sqlite3.Error):
            self._reserve.unlink(missing_ok=True)
            self._remove(condition, value)
        finally:
            self._keep_reserve()

    def _keep_reserve(self) -> None:
        with contextlib.suppress(OSError):  # the disk is still full
            if not self._reserve.exists() or self._reserve.stat().st_size < _RESERVE_BYTES:
                self._reserve.write_bytes(os.urandom(_RESERVE_BYTES))  # which no file system stores in less

    def _remove(self, condition: str, value: object) -> None:
        with self._transaction():
            rows = self._db.execute(f"SELECT latents FROM voices WHERE {condition}", (value,)).fetchall()
            self._db.execute(f"DELETE FROM voices WHERE {condition}", (value,))
        for row in rows:
            self._remove_unused(row["latents"])
        if rows:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # else what was deleted stays in the log

    # ---- consent that was recorded -------------------------------------------------------------------------------

    def consents(self, tenant: str) -> list[RecordedConsent]:
        """Oldest first. Raises InternalError: the database cannot be read."""
        with self._lock, _reading():
            rows = self._db.execute("SELECT * FROM consents WHERE tenant = ? ORDER BY created_at", (tenant,)).fetchall()
        return [RecordedConsent(*row) for row in rows]

    def add_consent(self, consent: RecordedConsent) -> None:
        """Raises InternalError as `add`."""
        with self._lock, _writing(), self._transaction():
            self._db.execute("INSERT INTO consents VALUES (?, ?, ?, ?, ?, ?)", dataclasses.astuple(consent))

    def rename_consent(self, consent_id: str, name: str) -> None:
        """Unknown ids are ignored. Raises InternalError as `add`."""
        with self._lock, _writing(), self._transaction():
            self._db.execute("UPDATE consents SET name = ? WHERE consent_id = ?", (name, consent_id))

    def remove_consent(self, consent_id: str) -> None:
        """Unknown ids are ignored. Raises InternalError as `add`."""
        with self._lock, _writing(), self._transaction():
            self._db.execute("DELETE FROM consents WHERE consent_id = ?", (consent_id,))

    # ---- latents -------------------------------------------------------------------------------------------------

    def _write_latents(self, payload: bytes) -> str:
        """Write a file of this content, unless there is one; returns its name."""
        digest = hashlib.sha256(payload).hexdigest()
        path = self._latents / digest
        if self._read_latents(digest) is not None:
            os.utime(path)  # not to be taken for an orphan meanwhile
            return digest
        partial = self._latents / f".{digest}.{secrets.token_hex(4)}"
        try:
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
            _sync_directory(self._latents)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        return digest

    def _remove_unused(self, digest: str) -> None:
        """Delete a latent file if no voice has it any more."""
        with self._transaction():  # so that no process begins to use it in between
            if self._db.execute("SELECT 1 FROM voices WHERE latents = ?", (digest,)).fetchone() is None:
                (self._latents / digest).unlink(missing_ok=True)

    def _remove_orphans(self) -> None:
        with self._transaction():
            used = {row["latents"] for row in self._db.execute("SELECT latents FROM voices")}
            before = time.time() - _ORPHAN_S
            for path in self._latents.iterdir():
                if path.name not in used and path.stat().st_mtime < before:
                    path.unlink(missing_ok=True)

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
def _reading() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise InternalError("the kept voices cannot be read") from error


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise InternalError("the voice cannot be kept: the disk refuses") from error


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_store(setting: str, consent: str) -> VoiceStore | None:
    """Open the store of the setting `voices_dir`: a directory, ``none``, or ``auto``, the user's data directory.

    Raises:
        ConfigError: the directory cannot be used; with ``auto``, voices are then not kept, with a warning.
            Or a server with another setting `voice_consent` uses it now.
    """
    store = _open(setting)
    if store is not None:
        try:
            store.use_with(consent)
        except ConfigError:
            store.close()
            raise
    return store


def _open(setting: str) -> VoiceStore | None:
    if setting == "none":
        return None
    if setting != "auto":
        return VoiceStore(Path(setting).expanduser())
    home = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()
    try:
        return VoiceStore(home / "realtime-tts" / "voices")
    except ConfigError as error:
        logger.warning("%s; those that are added end with this process", error.message)
        return None
