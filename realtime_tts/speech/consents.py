"""Recorded consent of a speaker, given once and used for voices made later. The recording itself is not kept."""

from __future__ import annotations

import dataclasses
import secrets
import time

from realtime_tts.errors import ConsentNotFound, InvalidRequest, TooManyVoices
from realtime_tts.speech.records import Record, RecordStore, TenantRecords


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

    def __init__(self, store: RecordStore) -> None:
        super().__init__(RecordedConsent, store)

    async def add(self, name: str, language: str, recording_sha256: str, tenant: str = "") -> RecordedConsent:
        """Store a consent. Raises InvalidRequest: an invalid label. TooManyVoices: the tenant has `limit` consents."""
        consent_id = "cons_" + secrets.token_hex(16)
        return await self._add(RecordedConsent(consent_id, tenant, name, time.time(), language, recording_sha256))

    async def rename(self, consent_id: str, name: str, tenant: str = "") -> RecordedConsent:
        """Rename a consent and return it. Raises ConsentNotFound, and InvalidRequest as `add`."""
        return await self._replace(dataclasses.replace(await self.get(consent_id, tenant), name=name))
