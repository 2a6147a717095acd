"""Recorded consent of a speaker, given once and used for voices made later. The recording itself is not kept."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import time
from collections.abc import Callable
from typing import TypeVar

from realtime_tts.errors import ConsentNotFound, InvalidRequest, TooManyVoices
from realtime_tts.speech.voice_store import RecordedConsent, VoiceStore

T = TypeVar("T")

MAX_NAME_CHARS = 128
MAX_PER_KEY = 1000


class Consents:
    """Recorded consents of all keys. Every call reads the disk if there is a store: consents are few, and other
    processes add some too."""

    def __init__(self, store: VoiceStore | None = None) -> None:
        self._store = store
        self._known: dict[str, RecordedConsent] = {}  # consents by id, used without a store

    async def add(self, name: str, language: str, recording_sha256: str, tenant: str = "") -> RecordedConsent:
        """Raises:
        InvalidRequest: a label that cannot be. TooManyVoices: the key has a thousand. InternalError: as `VoiceStore`.
        """
        _check(name, language)
        if len(await self.all_of(tenant)) >= MAX_PER_KEY:
            raise TooManyVoices(f"this key may have {MAX_PER_KEY} consents; delete one first")
        consent_id = "cons_" + secrets.token_hex(16)
        consent = RecordedConsent(consent_id, tenant, name, language, time.time(), recording_sha256)
        self._known[consent_id] = consent
        await self._on_disk(lambda store: store.add_consent(consent))
        return consent

    async def all_of(self, tenant: str = "") -> list[RecordedConsent]:
        """Return the consents of a key, oldest first."""
        kept = await self._on_disk(lambda store: store.consents(tenant))
        return [each for each in self._known.values() if each.tenant == tenant] if kept is None else kept

    async def get(self, consent_id: str, tenant: str = "") -> RecordedConsent:
        """Raises:
        ConsentNotFound: unknown, or another key's.
        """
        for consent in await self.all_of(tenant):
            if consent.consent_id == consent_id:
                return consent
        raise ConsentNotFound("there is no such consent", field="consent")

    async def rename(self, consent_id: str, name: str, tenant: str = "") -> RecordedConsent:
        """Raises:
        ConsentNotFound, InvalidRequest, InternalError
        """
        renamed = dataclasses.replace(await self.get(consent_id, tenant), name=name)
        _check(name, renamed.language)
        await self._put(renamed)
        return renamed

    async def remove(self, consent_id: str, tenant: str = "") -> None:
        """Remove a consent. Voices made with it keep the record of it. Raises ConsentNotFound, InternalError."""
        await self.get(consent_id, tenant)
        self._known.pop(consent_id, None)
        await self._on_disk(lambda store: store.remove_consent(consent_id))

    async def _put(self, consent: RecordedConsent) -> None:
        self._known[consent.consent_id] = consent
        await self._on_disk(lambda store: store.rename_consent(consent.consent_id, consent.name))

    async def _on_disk(self, job: Callable[[VoiceStore], T]) -> T | None:
        store = self._store
        return None if store is None else await asyncio.to_thread(lambda: job(store))


def _check(name: str, language: str) -> None:
    if not name.strip() or len(name) > MAX_NAME_CHARS:
        raise InvalidRequest(f"a name has 1 to {MAX_NAME_CHARS} characters", field="name")
    if not language.strip() or len(language) > 16:
        raise InvalidRequest("a language is a code such as en or de-AT", field="language")
