"""Creation of voices from recordings or a description, with the same checks for every dialect."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Sequence

from realtime_tts.audio.decode import MAX_S, Recording, decode_recording
from realtime_tts.audio.recording_report import check, report_on
from realtime_tts.contract.policy import ZERO_SHOT_VOICE
from realtime_tts.contract.speech_params import SpeechParams
from realtime_tts.dialects.voice_request import VoiceRequest
from realtime_tts.errors import AudioDecodeError, InvalidRequest
from realtime_tts.server.admission.client import Client
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http.schemas import RecordingRemark
from realtime_tts.server.logs import log_event
from realtime_tts.session.settings import Choices
from realtime_tts.speech.defaults import sample_sentence
from realtime_tts.speech.recordings import RATE_HZ, VoiceRecordings
from realtime_tts.speech.speaker import Speaker
from realtime_tts.speech.text_source import TextSource, speak_text, speaking
from realtime_tts.speech.voice_store import Consent, Latents, VoiceRecord
from realtime_tts.speech.voices import VoiceLabels

MIN_TTL_S, MAX_TTL_S = 10.0, 86_400.0
_MAX_DESIGN_S = 20.0


async def make_voice(
    gateway: Gateway, client: Client, wanted: VoiceRequest
) -> tuple[VoiceRecord, Sequence[RecordingRemark]]:
    """Return a new voice and remarks about its recordings, after waiting for a slot: only some are made at once.

    Raises:
        Forbidden, TooManyVoices, VoiceExists, InvalidRequest: the request cannot be fulfilled.
        AudioDecodeError, RecordingUnsuitable: a recording cannot be used for a voice.
        Draining, EngineLost, Overloaded: no voice can be made now.
    """
    client.check_owner()
    await gateway.availability.load()
    labels, limit = _labels(wanted), gateway.settings.server.voices.max_voices_per_tenant
    recordings: VoiceRecordings | Latents
    remarks: Sequence[RecordingRemark] = ()
    content, consent = "", None
    async with gateway.voice_making.turns.place(client.tenant):
        await gateway.voices.check_room(client.tenant, limit, wanted.ttl_s is not None)
        if not wanted.has_recordings:
            recordings = await _design(gateway, client, wanted)
        elif wanted.instructions:
            raise InvalidRequest("a voice is made of recordings or of a description, not of both", field="instructions")
        else:
            # In a thread: hashing runs at a few hundred MB/s, and 40 MB would block the event loop.
            content, recordings_sha256 = await asyncio.to_thread(_hashes, client.tenant, wanted)
            consent = _consent(gateway, client, wanted, recordings_sha256)
            made = gateway.voice_making.made.get(content)
            recordings, remarks = made[1:] if made is not None else await _check_recordings(wanted)
        record = await gateway.voices.add(
            labels,
            recordings,
            client.tenant,
            instructions=wanted.instructions or None,
            consent=consent,
            ttl_s=wanted.ttl_s,
            limit=limit,
        )
        if content:
            gateway.voice_making.made[content] = record.voice_id, record.latents, remarks
    kind = "voice_added" if labels is not None else "voice_lent"
    log_event(kind, voice=record.voice_id, key=client.tenant or None)
    return record, remarks


def _labels(wanted: VoiceRequest) -> VoiceLabels | None:
    if wanted.ttl_s is None:
        return VoiceLabels(wanted.name, wanted.description, wanted.language)
    if not MIN_TTL_S <= wanted.ttl_s <= MAX_TTL_S:
        raise InvalidRequest(f"a temporary voice lasts {MIN_TTL_S:g} to {MAX_TTL_S:g} s", field="ttl_s")
    if wanted.name or wanted.description or wanted.language:
        raise InvalidRequest("a temporary voice has an id, and no name or other labels", field="name")
    return None


def _hashes(tenant: str, wanted: VoiceRequest) -> tuple[str, str]:
    """Return two hex digests: of all the voice's input together with its key's id, and of the recordings alone."""
    recordings = hashlib.sha256(b"".join(wanted.reference))
    recordings.update(wanted.prompt)
    about = repr((tenant, [len(part) for part in wanted.reference], wanted.prompt_text)).encode()
    return hashlib.sha256(about + recordings.digest()).hexdigest(), recordings.hexdigest()


async def _check_recordings(wanted: VoiceRequest) -> tuple[VoiceRecordings, list[RecordingRemark]]:
    decoded: dict[str, Recording] = {}
    remarks: list[RecordingRemark] = []
    for name, files in (("reference", wanted.reference), ("prompt", (wanted.prompt,) if wanted.prompt else ())):
        if files:
            decoded[name], found = await check_recording(files, name)
            remarks += found
    return VoiceRecordings(decoded.get("reference"), decoded.get("prompt"), wanted.prompt_text), remarks


async def check_recording(files: Sequence[bytes], field: str) -> tuple[Recording, list[RecordingRemark]]:
    """Return the files joined into one recording, and remarks about it.

    Raises:
        AudioDecodeError: a file cannot be decoded, or together they are too long.
        RecordingUnsuitable: the recording has no speech from which a voice can be made.
    """
    parts = [await decode_recording(data, RATE_HZ, field) for data in files]
    recording = parts[0] if len(parts) == 1 else Recording(b"".join(part.pcm for part in parts), RATE_HZ)
    if recording.duration_s > MAX_S:
        raise AudioDecodeError(f"together the recordings are longer than {MAX_S:g} s", field=field)
    found = check(await report_on(recording.pcm), field)
    return recording, [RecordingRemark(field=field, code=each.code, message=each.message) for each in found]


def _consent(gateway: Gateway, client: Client, wanted: VoiceRequest, recording_sha256: str) -> Consent | None:
    """Raises:
    InvalidRequest: a statement of consent that the server's policy requires is missing.
    """
    policy = gateway.settings.server.voices.voice_consent
    given_by, scope = wanted.consent_by.strip(), wanted.consent_scope.strip()
    if policy != "off" and not wanted.consent:
        raise InvalidRequest("a cloned voice needs its speaker's consent: say so with consent=true", field="consent")
    for name, value in (("consent_by", given_by), ("consent_scope", scope)):
        if policy == "required" and not value:
            raise InvalidRequest(f"this server requires the consent's owner and scope: {name} is missing", field=name)
    if not wanted.consent:
        return None
    return Consent(given_by or client.tenant or "the caller", scope, time.time(), recording_sha256)


async def _design(gateway: Gateway, client: Client, wanted: VoiceRequest) -> VoiceRecordings:
    """Return the recording that fixes a voice: one sentence, spoken as the description says."""
    if wanted.prompt_text is not None or not wanted.instructions.strip():
        raise InvalidRequest("a voice needs a recording, or a description: instructions", field="reference")
    import numpy as np  # imported here: the gateway starts without it

    defaults = gateway.catalogue.defaults
    params = SpeechParams(seed=0, instructions=wanted.instructions, mode="clause")
    settings = defaults.resolve(Choices(), Choices(ZERO_SHOT_VOICE, params=params), tenant=client.tenant)
    if (refusal := gateway.admission.context_refusal(client.tenant)) is not None:
        raise refusal
    name = f"sample.{secrets.token_hex(8)}"
    speaker = Speaker(gateway.engine, name, settings, tenant=client.tenant, paced=False, max_length_s=_MAX_DESIGN_S)
    text = TextSource(sample_sentence(settings.params["language"]))
    async with speaking(speaker, speak_text(text, defaults.make_planner(settings), speaker)):
        pcm = b"".join([piece.pcm async for piece in speaker])
    return VoiceRecordings(reference=(np.frombuffer(pcm, "<i2"), speaker.sample_rate_hz))
