"""Voices on disk: a record for each in the database, latents in files beside it.

A latent file is named by the hash of its content: so an existing file is complete, and two voices of one recording
share it. Several gateways may have the same directory: each sees the changes of the others at its next `refresh`.
All calls block on the disk: make them from a thread, one at a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from realtime_tts.contract.files import write_whole
from realtime_tts.errors import ConfigError, TooManyVoices, VoiceExists, VoiceNotFound
from realtime_tts.speech.records import Fields, RecordStore

logger = logging.getLogger(__name__)

# Kept free: a deletion writes some pages of 4 KiB to the database's log before it frees any.
_RESERVE_BYTES = 256 * 1024
_ORPHAN_S = 3600.0  # an older file that no voice names was left by a process that died before it added the record


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
    """Statement of consent: its owner, its scope, its time (Unix time, s), and the hash of the recordings."""

    given_by: str
    scope: str
    at: float
    recording_sha256: str


@dataclasses.dataclass(frozen=True, slots=True)
class VoiceRecord:
    """One added voice.

    Attributes:
        voice_id: random; also the engine's id of the voice.
        tenant: id of the key that owns it; it is hidden from other keys.
        model: the checkpoint that made its latents; no other checkpoint can read them.
        instructions: description from which the model designed the voice; None for a cloned voice.
        ttl_s, expires_at: lifetime of a temporary voice after its last use, s, and its end (Unix time). Its name is its
            id. None: the voice is kept until it is deleted.
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


def check_room(num: int, limit: int | None, is_temporary: bool) -> None:
    """Check that a key with `num` voices may have one more; temporary voices are counted separately.

    Raises:
        TooManyVoices: the limit is reached.
    """
    if limit is None or num < limit:
        return
    if is_temporary:
        raise TooManyVoices(f"this key may have {limit} temporary voices; delete one, or wait until one expires")
    raise TooManyVoices(f"this key may have {limit} voices; delete one first")


class VoiceStore(RecordStore):
    """A directory of voices, with the other records of its tenants.

    Args:
        directory: created if it is missing.

    Raises (at construction):
        ConfigError: it cannot be created, written, or read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._latents, self._reserve = directory / "latents", directory / "reserve"
        self._use: int | None = None
        self._left_out: set[str] = set()  # damaged voices that the log has named
        super().__init__(directory)

    def _prepare(self) -> None:
        super()._prepare()
        self._latents.mkdir(mode=0o700, exist_ok=True)
        self._in_reserve(lambda: self._remove("json_extract(body, '$.expires_at') <= ?", time.time()))
        self._remove_orphans()

    def close(self) -> None:
        super().close()
        if self._use is not None:
            os.close(self._use)
            self._use = None

    def use_with(self, consent: str) -> None:
        """Hold the directory for servers with this setting `voice_consent`, until `close` or the process ends.

        Without this check, a voice that one server takes without consent could be used through another server that
        requires it.

        Raises:
            ConfigError: a server with another setting uses the directory now.
        """
        self._use = os.open(self.directory / "in-use", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._use, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no server uses it
                os.ftruncate(self._use, 0)
                os.pwrite(self._use, consent.encode(), 0)
            fcntl.flock(self._use, fcntl.LOCK_SH)
        except OSError:  # a file system without locks
            return
        found = os.pread(self._use, 64, 0).decode(errors="replace")
        if found != consent:
            raise ConfigError(
                f"a running server keeps its voices in {self.directory} with --voice-consent {found}, "
                f"this one has {consent}: give both the same, or this one another --voices-dir",
                field="voices_dir",
            )

    # ---- reading -------------------------------------------------------------------------------------------------

    def version(self) -> int:
        """Return a number that each change by another process changes. Raises InternalError: the database
        cannot be read, or is no longer in its directory."""
        with self._reading():
            self._check_in_place()
            return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def ids(self) -> list[str]:
        """Return the ids of all voices, whatever their model. Raises InternalError: the database cannot be read."""
        with self._reading():
            return [fields["voice_id"] for fields in self._select("kind = 'voice'")]

    def voices(self, model: str, known: Mapping[str, VoiceRecord] | None = None) -> list[VoiceRecord]:
        """Return all voices of a model, oldest first. A voice whose latents are damaged or missing is left out.

        Args:
            known: by id; their latents, which never change, are taken from there.

        Raises:
            InternalError: the database cannot be read.
        """
        with self._reading():
            found = self._select("kind = 'voice' AND json_extract(body, '$.model') = ?", model)
        voices = (self._voice(fields, known or {}) for fields in found)
        return [voice for voice in voices if voice is not None]

    def _voice(self, fields: Fields, known: Mapping[str, VoiceRecord]) -> VoiceRecord | None:
        voice_id, digest, consent = fields.pop("record_id"), fields.pop("digest"), fields.pop("consent")
        payload = known[voice_id].latents.payload if voice_id in known else self._read_latents(digest)
        if payload is None:
            if voice_id not in self._left_out:
                self._left_out.add(voice_id)
                logger.warning("the voice %s is left out: its file of latents is missing or damaged", voice_id)
            return None
        latents = Latents(**fields.pop("latents"), payload=payload)
        return VoiceRecord(**fields, latents=latents, consent=consent and Consent(**consent))

    def _read_latents(self, digest: str) -> bytes | None:
        try:
            payload = (self._latents / digest).read_bytes()
        except OSError:
            return None
        return payload if hashlib.sha256(payload).hexdigest() == digest else None

    # ---- writing -------------------------------------------------------------------------------------------------

    def add(self, voice: VoiceRecord, limit: int | None = None) -> None:
        """Store a voice durably: after the return it survives a crash.

        Args:
            limit: as many voices of its kind, see `check_room`, may its key have of its model, this one included,
                whichever process adds them; None: any number.

        Raises:
            VoiceExists: the key has another voice of this name. TooManyVoices: it has as many as it may have.
            InternalError: the disk is full or broken.
        """
        with self._writing():
            digest = hashlib.sha256(voice.latents.payload).hexdigest()
            fields = {"record_id": voice.voice_id, "digest": digest, **dataclasses.asdict(voice)}
            del fields["latents"]["payload"]
            try:
                with self._transaction():  # so that no process takes the latents for unused meanwhile
                    self._write_latents(digest, voice.latents.payload)
                    check_room(self._num_like(voice), limit, voice.ttl_s is not None)
                    self._insert("voice", fields)
            except (TooManyVoices, sqlite3.IntegrityError) as error:
                self._remove_unused(digest)
                if isinstance(error, TooManyVoices):
                    raise
                raise VoiceExists(self._taken_by(voice), field="name") from None

    def _taken_by(self, voice: VoiceRecord) -> str:
        named = "kind = 'voice' AND tenant = ? AND json_extract(body, '$.name') = ?"
        models = [found["model"] for found in self._select(named, voice.tenant, voice.name)]
        model = f", made with the model {models[0]}" if models and models[0] != voice.model else ""
        return f"there is a voice {voice.name!r} already{model}"

    def _num_like(self, voice: VoiceRecord) -> int:
        """Return the number of voices of the same kind (temporary or not) that its key has."""
        voices = self._select("kind = 'voice' AND tenant = ?", voice.tenant)
        kind = (voice.model, voice.ttl_s is None)
        return sum((each["model"], each["ttl_s"] is None) == kind for each in voices)

    def describe(self, voice_id: str, *, name: str, description: str, language: str) -> None:
        """Change the labels of a voice.

        Raises:
            VoiceNotFound: it was removed. VoiceExists: the name is taken. InternalError: as `add`.
        """
        with self._writing():
            try:
                with self._transaction():
                    changes = {"name": name, "description": description, "language": language}
                    is_known = self._update(voice_id, changes)
            except sqlite3.IntegrityError:
                raise VoiceExists(f"there is a voice {name!r} already", field="name") from None
            if not is_known:
                raise VoiceNotFound("the voice was removed")

    def extend(self, voice_id: str, expires_at: float) -> None:
        """Extend the lifetime of a temporary voice; unknown ids are ignored. Raises InternalError as `add`."""
        with self._writing(), self._transaction():
            for fields in self._select("record_id = ?", voice_id):
                self._update(voice_id, {"expires_at": max(fields["expires_at"], expires_at)})

    def remove(self, voice_id: str) -> None:
        """Remove a voice with all its data; unknown ids are ignored. Raises InternalError as `add`."""
        with self._writing():
            self._in_reserve(lambda: self._remove("record_id = ?", voice_id))

    def remove_expired(self, now: float) -> None:
        """Remove expired temporary voices, whichever process made them. Raises InternalError as `add`."""
        with self._writing():
            self._in_reserve(lambda: self._remove("json_extract(body, '$.expires_at') <= ?", now))

    def _delete(self, record_id: str) -> None:
        self._in_reserve(lambda: super(VoiceStore, self)._delete(record_id))

    def _in_reserve(self, removal: Callable[[], None]) -> None:
        """Make a removal; on a full disk, use the space that is reserved for it."""
        try:
            removal()
        except (OSError, sqlite3.Error):
            self._reserve.unlink(missing_ok=True)
            removal()
        finally:
            with contextlib.suppress(OSError):  # the disk is still full
                if not self._reserve.exists() or self._reserve.stat().st_size < _RESERVE_BYTES:
                    self._reserve.write_bytes(os.urandom(_RESERVE_BYTES))  # which no file system stores in less

    def _remove(self, condition: str, value: object) -> None:
        with self._transaction():
            found = self._select(f"kind = 'voice' AND {condition}", value)
            self._db.executemany("DELETE FROM records WHERE record_id = ?", [(each["record_id"],) for each in found])
        for fields in found:
            self._remove_unused(fields["digest"])
        if found:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # else the deleted data stays in the log

    def _write_latents(self, digest: str, payload: bytes) -> None:
        """Write a file of this content, unless there is one."""
        if self._read_latents(digest) is None:
            write_whole(self._latents / digest, payload, durable=True)
            _sync_directory(self._latents)

    def _remove_unused(self, digest: str) -> None:
        """Delete a latent file that no voice uses any more."""
        with self._transaction():  # so that no process begins to use it in between
            if not self._count("kind = 'voice' AND json_extract(body, '$.digest') = ?", digest):
                (self._latents / digest).unlink(missing_ok=True)

    def _remove_orphans(self) -> None:
        with self._transaction():
            used = {fields["digest"] for fields in self._select("kind = 'voice'")}
            before = time.time() - _ORPHAN_S
            for path in self._latents.iterdir():
                if path.name not in used and path.stat().st_mtime < before:
                    path.unlink(missing_ok=True)


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
        logger.warning("%s; added voices end with this process", error.message)
        return None
