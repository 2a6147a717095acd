"""Registry of voices: the model's own voices for all tenants, added voices for the tenant that added them.

A name is a tenant's label. The engine knows an added voice by a random id, so that two tenants can use one name, and
none can use or replace another's voice. `EngineClient` holds the latents and sends them to every worker; the registry
holds the names. With a `VoiceStore` voices outlive the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection
from typing import TypeVar

from realtime_tts.contract import frames
from realtime_tts.contract.policy import ZERO_SHOT_VOICE, ServingPolicy
from realtime_tts.errors import EngineLost, InternalError, InvalidRequest, VoiceExists, VoiceNotFound
from realtime_tts.speech.recordings import VoiceRecordings, encoding_request
from realtime_tts.speech.records import MAX_NAME_CHARS
from realtime_tts.speech.voice_store import Consent, Latents, VoiceRecord, VoiceStore, check_room
from realtime_tts.workers.client import EngineClient

T = TypeVar("T")

_EXTEND_BELOW = 0.75  # of a lifetime
_LOOK_UP_S = 0.5  # longest time for which speech waits for a refresh; most unknown names need none
MAX_DESCRIPTION_CHARS = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class VoiceLabels:
    """Labels of a voice: a name of 1 to `MAX_NAME_CHARS` characters, unique among its tenant's, stripped of white
    space; a description of at most `MAX_DESCRIPTION_CHARS`; a language code or nothing.

    Raises:
        InvalidRequest: an invalid label; `field` names it.
    """

    name: str
    description: str = ""
    language: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name.strip())  # frozen
        if not self.name or len(self.name) > MAX_NAME_CHARS:
            raise InvalidRequest(f"a voice's name must have 1 to {MAX_NAME_CHARS} characters", field="name")
        if len(self.description) > MAX_DESCRIPTION_CHARS:
            raise InvalidRequest(f"a description has at most {MAX_DESCRIPTION_CHARS} characters", field="description")
        if len(self.language) > 16:
            raise InvalidRequest("a language is a code such as en or de-AT", field="language")


class VoiceRegistry:
    """Voices of one engine, used by every dialect; belongs to the event loop.

    A voice in `_adding` has a name but cannot be used yet.

    Args:
        store: where added voices are kept; None: they end with the process.

    Attributes:
        on_removed: called with the id of a removed voice, whichever process removed it.
        on_language_changed: called with the id of a voice when any process has changed its language label.
        on_stored: called when this process has changed the store.
    """

    def __init__(self, engine: EngineClient, store: VoiceStore | None = None) -> None:
        self.on_removed: Callable[[str], None] = lambda voice_id: None
        self.on_language_changed: Callable[[str], None] = lambda voice_id: None
        self.on_stored: Callable[[], None] = lambda: None
        self._engine, self._store = engine, store
        self._records: dict[str, VoiceRecord] = {}  # added voices by id
        self._added: dict[tuple[str, str], str] = {}  # (tenant, name) → id
        self._adding: dict[tuple[str, str], str] = {}
        self._version: int | None = None  # version of the store whose changes this registry has
        self._storing = asyncio.Lock()  # the disk and this registry change together
        self._looking: asyncio.Task[None] | None = None  # refresh for an unknown name

    # ---- questions -----------------------------------------------------------------------------------------------

    def names(self, tenant: str = "") -> list[str]:
        """Return the names that a tenant can use: the model's voices, its own, and ``zero-shot``.

        Raises:
            EngineLost: no worker has loaded the model yet.
        """
        return [*self._policy.voices, *(record.name for record in self.added(tenant)), ZERO_SHOT_VOICE]

    def name_of(self, voice_id: str, tenant: str = "") -> str | None:
        """Return the name of a tenant's added voice by its id; for a temporary voice, that id."""
        record = self._records.get(voice_id)
        return record.name if record is not None and record.tenant == tenant else None

    def by_id(self, voice_id: str) -> VoiceRecord | None:
        """Return an added voice of any tenant."""
        return self._records.get(voice_id)

    def all_added(self) -> list[VoiceRecord]:
        """Return the added voices of all tenants."""
        return list(self._records.values())

    def added(self, tenant: str = "") -> list[VoiceRecord]:
        """Return the voices that a tenant has added to be kept, oldest first."""
        return [record for record in self._records.values() if record.tenant == tenant and record.ttl_s is None]

    def num_temporary(self, tenant: str = "") -> int:
        """Return the number of a tenant's temporary voices."""
        return sum(record.tenant == tenant and record.ttl_s is not None for record in self._records.values())

    async def check_room(self, tenant: str, limit: int | None, is_temporary: bool) -> None:
        """Check the limit before the work of making a voice. `add` checks again, since another request may be faster.

        Raises:
            TooManyVoices: the tenant has as many of this kind as it may have.
        """
        await self._catch_up()
        self._check_room(tenant, limit, is_temporary)

    def _check_room(self, tenant: str, limit: int | None, is_temporary: bool) -> None:
        check_room(self.num_temporary(tenant) if is_temporary else len(self.added(tenant)), limit, is_temporary)

    def get(self, name: str, tenant: str = "") -> VoiceRecord:
        """Return an added voice by its id or its name.

        Raises:
            VoiceNotFound: unknown, or another tenant's.
        """
        record = self._records.get(self._added.get((tenant, name), name))
        if record is None or record.tenant != tenant:
            raise VoiceNotFound(f"no added voice is named {name[:64]!r}", field="voice")
        return record

    def engine_id(self, name: str, tenant: str = "") -> str:
        """Return the engine's id of a voice. Call it once per context: a name can be given to another voice.

        Raises:
            VoiceNotFound: unknown, still being added, or another tenant's.
        """
        if self._is_common(name):
            return name
        voice_id = self._added.get((tenant, name))
        if voice_id is None:
            raise VoiceNotFound(f"there is no voice {name!r}", field="voice")
        return voice_id

    # ---- changes -------------------------------------------------------------------------------------------------

    async def find(self, name: str, tenant: str = "") -> VoiceRecord:
        """Return a voice as `get` does, including one that another process has just made."""
        await self._catch_up()
        return self.get(name, tenant)

    async def look_up(self, name: str | None, tenant: str = "") -> None:
        """Refresh from disk before an unknown name or id is used: another process may have just made the voice. A disk
        that does not answer delays the speech by half a second."""
        is_known = name in self._records or (tenant, name) in self._added
        if name is not None and not is_known and not self._is_common(name):
            if self._looking is None or self._looking.done():  # if the disk hangs, only one thread waits
                self._looking = asyncio.create_task(self._catch_up(), name="look up")
            done, _ = await asyncio.wait([self._looking], timeout=_LOOK_UP_S)
            for task in done:
                task.result()

    async def _catch_up(self) -> None:
        """Refresh before a change, since another process may have just taken or freed the name."""
        with contextlib.suppress(InternalError):  # reported by the task that follows the directory
            await self.refresh()

    async def add(
        self,
        labels: VoiceLabels | None,
        recordings: VoiceRecordings | Latents,
        tenant: str = "",
        *,
        instructions: str | None = None,
        consent: Consent | None = None,
        ttl_s: float | None = None,
        limit: int | None = None,
    ) -> VoiceRecord:
        """Make a voice of recordings and keep it until it is removed. Cancelled, it leaves nothing behind.

        Args:
            labels: None for a temporary voice, which has an id only.
            recordings: or what the model has made of them already.
            instructions: what the recordings were designed by.
            ttl_s: lifetime of a temporary voice after its last use, s; see `expire`.
            limit: how many of this kind the tenant may have with it, in all processes that share the store.

        Raises:
            VoiceExists: the name is taken by a voice of the model or of this tenant, if only by one being added.
            TooManyVoices: the tenant has as many as it may have.
            InvalidRequest: recordings that this model cannot use.
            AudioDecodeError: a recording that cannot be read. VoiceNotFound: removed before it was made.
            EngineLost, Draining: no worker could encode it. InternalError: it could not be stored.
        """
        await self._catch_up()
        voice_id = _new_id()
        labels = labels or VoiceLabels(voice_id)
        key = (tenant, labels.name)
        if self._is_common(labels.name) or key in self._added or key in self._adding:
            raise VoiceExists(f"there is a voice {labels.name!r} already", field="name")
        self._adding[key] = voice_id
        try:
            latents = recordings if isinstance(recordings, Latents) else await self._encode(voice_id, recordings)
            record = VoiceRecord(
                voice_id,
                tenant,
                labels.name,
                self._policy.name,
                time.time(),
                latents,
                labels.description,
                labels.language,
                instructions,
                consent,
                ttl_s,
                None if ttl_s is None else time.time() + ttl_s,
            )
            async with self._storing:
                self._check_room(tenant, limit, ttl_s is not None)
                await self._keep(record, limit)
                if self._adding.get(key) != voice_id:
                    raise VoiceNotFound(f"the voice {labels.name!r} was removed while it was being added", field="name")
                self._know(record)  # no await from here on: it is added altogether or not at all
                self.on_stored()
                return record
        finally:
            if self._adding.get(key) == voice_id:
                del self._adding[key]

    async def relabel(self, voice_id: str, tenant: str = "", **changes: str | None) -> VoiceRecord:
        """Change labels of an added voice, by their names in `VoiceLabels`; those that are None stay. Speech that uses
        it goes on.

        Raises:
            VoiceNotFound: unknown, or another tenant's. VoiceExists: the name is taken.
            InvalidRequest: an invalid label, or a temporary voice, which has none. InternalError: it could not be
                stored. EngineLost: no worker has loaded the model yet.
        """
        await self._catch_up()
        async with self._storing:
            record = self.get(voice_id, tenant)
            if record.ttl_s is not None:
                raise InvalidRequest("a temporary voice has no name", field="voice")
            old = {"name": record.name, "description": record.description, "language": record.language}
            labels = VoiceLabels(**old | {name: label for name, label in changes.items() if label is not None})
            key = (tenant, labels.name)
            taken = self._added.get(key, self._adding.get(key, record.voice_id)) != record.voice_id
            if taken or self._is_common(labels.name):
                raise VoiceExists(f"there is a voice {labels.name!r} already", field="name")
            changed = dataclasses.replace(record, **dataclasses.asdict(labels))
            await self._on_disk(lambda store: store.describe(record.voice_id, **dataclasses.asdict(labels)))
            self._rename(changed)
            self.on_stored()
            return changed

    async def delete(self, voice_id: str, tenant: str = "") -> None:
        """Remove an added voice here, at the engine and on disk.

        Raises:
            VoiceNotFound: unknown, or another tenant's. InternalError: the store has kept it, and it can be used.
            EngineLost: no worker has loaded the model yet.
        """
        await self._catch_up()
        async with self._storing:
            record = self.get(voice_id, tenant)
            await self._on_disk(lambda store: store.remove(record.voice_id))
            self._forget(record.voice_id)
            self.on_stored()

    def remove(self, name: str, tenant: str = "") -> None:
        """Forget an added voice and all that is cached of it, or stop adding it; for voices that no store keeps.
        Unknown names are ignored."""
        if (voice_id := self._added.get((tenant, name))) is not None:
            self._forget(voice_id)
        if (voice_id := self._adding.pop((tenant, name), None)) is not None:
            self._engine.remove_voice(voice_id)

    async def refresh(self) -> None:
        """Read the store: all voices at first, later the changes of other processes.

        Raises:
            InternalError: the store cannot be read.
        """
        if self._store is None:
            return
        async with self._storing:
            if (version := await self._on_disk(VoiceStore.version)) == self._version:
                return
            known = dict(self._records)
            kept = await self._on_disk(lambda store: store.voices(self._policy.name, known)) or []
            for voice_id in self._records.keys() - {record.voice_id for record in kept}:
                self._forget(voice_id)
            for record in kept:
                if (had := known.get(record.voice_id)) is None:
                    self._know(record)
                elif record != had:  # the others stay: renaming looks at all voices
                    self._rename(record)
            self._version = version  # at the end: a change that could not be read is read the next time

    async def expire(self, in_use: Collection[str], now: float) -> None:
        """Remove the expired temporary voices. Call it now and then.

        Args:
            in_use: engine ids of voices that are being spoken with, which counts as use.
            now: Unix time.

        Raises:
            InternalError: the store cannot be changed.
        """
        async with self._storing:
            for record in [record for record in self._records.values() if record.ttl_s is not None]:
                await self._expire(record, record.voice_id in in_use, now)

    async def _expire(self, record: VoiceRecord, is_used: bool, now: float) -> None:
        assert record.ttl_s is not None
        assert record.expires_at is not None
        if is_used:
            if record.expires_at - now < _EXTEND_BELOW * record.ttl_s:  # not at every call: it is written to disk
                until = now + record.ttl_s
                await self._on_disk(lambda store: store.extend(record.voice_id, until))
                self._records[record.voice_id] = dataclasses.replace(record, expires_at=until)
        elif record.expires_at <= now:
            await self._on_disk(lambda store: store.remove_expired(now))
            self._forget(record.voice_id)

    @contextlib.asynccontextmanager
    async def lend(self, recordings: VoiceRecordings, tenant: str = "") -> AsyncIterator[str]:
        """A voice without a name, by its engine id, until the block is left. Raises as `add`."""
        voice_id = _new_id()
        self._engine.add_voice(_frame(voice_id, tenant, await self._encode(voice_id, recordings)))
        try:
            yield voice_id
        finally:
            self._engine.remove_voice(voice_id)

    # ---- between them --------------------------------------------------------------------------------------------

    def _know(self, record: VoiceRecord) -> None:
        self._records[record.voice_id] = record
        self._added[record.tenant, record.name] = record.voice_id
        self._engine.add_voice(_frame(record.voice_id, record.tenant, record.latents))

    def _rename(self, record: VoiceRecord) -> None:
        old = self._records[record.voice_id]
        self._records[record.voice_id] = record
        if old.language != record.language:
            self.on_language_changed(record.voice_id)
        # Anew: names may have been exchanged.
        self._added = {(known.tenant, known.name): voice_id for voice_id, known in self._records.items()}

    def _forget(self, voice_id: str) -> None:
        record = self._records.pop(voice_id)
        self._added.pop((record.tenant, record.name), None)
        self._engine.remove_voice(voice_id)
        self.on_removed(voice_id)

    async def _keep(self, record: VoiceRecord, limit: int | None) -> None:
        """Store a voice. If cancelled, undo what the thread has done."""
        keeping = asyncio.ensure_future(self._on_disk(lambda store: store.add(record, limit)))
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            await asyncio.wait([keeping])
            if keeping.exception() is None:
                await self._on_disk(lambda store: store.remove(record.voice_id))
            raise

    async def _on_disk(self, job: Callable[[VoiceStore], T]) -> T | None:
        store = self._store
        return None if store is None else await asyncio.to_thread(lambda: job(store))

    async def _encode(self, voice_id: str, recordings: VoiceRecordings) -> Latents:
        encoded = await self._engine.encode_voice(await encoding_request(voice_id, recordings))
        sizes = (encoded.num_reference_patches, encoded.num_prompt_patches, encoded.patch_size, encoded.latent_dim)
        return Latents(*sizes, encoded.payload, recordings.prompt_text)

    def _is_common(self, name: str) -> bool:
        return name == ZERO_SHOT_VOICE or name in self._policy.voices

    @property
    def _policy(self) -> ServingPolicy:
        if self._engine.ready is None:
            raise EngineLost("the model is not loaded yet")
        return self._engine.policy


def _frame(voice_id: str, tenant: str, latents: Latents) -> frames.AddVoice:
    return frames.AddVoice(voice_id, tenant=tenant, **dataclasses.asdict(latents))


def _new_id() -> str:
    return "voice-" + secrets.token_hex(16)
