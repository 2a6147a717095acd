"""Routes of OpenAI's interface for voices and consents."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from realtime_tts.dialects import openai
from realtime_tts.dialects.json_input import load_object
from realtime_tts.dialects.voice_request import YES, VoiceRequest
from realtime_tts.errors import InvalidRequest
from realtime_tts.server.admission.client import Client
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http.catalogue import added_voice
from realtime_tts.server.http.problems import answers_in
from realtime_tts.server.http.routes import NEEDS_KEY, Owner, authorize, get_gateway, is_form, read_bounded
from realtime_tts.server.voices.cloning import check_recording, make_voice
from realtime_tts.server.voices.forms import VoiceForm, read_voice_form, upload_place
from realtime_tts.speech.consents import RecordedConsent

_MAX_BODY_BYTES = 16 * 1024
_VOICE_FIELDS = ("name", "consent", "type", "prompt", "model", "script_hint", "consent_by", "consent_scope")


router = APIRouter(prefix="/v1/audio", tags=["OpenAI"], dependencies=[answers_in(openai.problem), *NEEDS_KEY])


@router.post("/voices", summary="Create a voice from a recording or a description")
async def create_voice(request: Request, client: Owner) -> dict[str, Any]:
    gateway = get_gateway(request)
    gateway.availability.check()
    async with upload_place(request, gateway.voice_making, client.tenant):
        if is_form(request):
            wanted = await _voice_request(
                gateway, client, await read_voice_form(request, _VOICE_FIELDS, ("audio_sample",))
            )
        else:
            wanted = openai.parse_prompt_voice(await read_bounded(request, _MAX_BODY_BYTES))
        made = await make_voice(gateway, client, wanted)
    return openai.voice_entry(added_voice(made.record))


async def _voice_request(gateway: Gateway, client: Client, form: VoiceForm) -> VoiceRequest:
    """Return the voice to make. The field `consent` is the id of a recorded consent, or the statement `true`."""
    sample = form.file("audio_sample")
    if not sample:
        return openai.prompt_voice(form.fields)
    if form.field("type") not in ("", "audio_sample"):
        raise InvalidRequest("an audio_sample makes a voice of the type audio_sample", field="type")
    given = form.field("consent")
    says_so, given_by, scope = given.lower() in YES, form.field("consent_by"), form.field("consent_scope")
    if given and not says_so:
        consent = await gateway.consents.get(given, client.tenant)
        says_so, given_by = True, consent.name
        scope = f"recorded ({consent.language}), SHA-256 {consent.recording_sha256}"
    return VoiceRequest(
        name=form.field("name"), reference=(sample,), consent=says_so, consent_by=given_by, consent_scope=scope
    )


@router.get("/voices", summary="The voices, as some applications list them")
async def list_voices(request: Request, client: Annotated[Client, Depends(authorize)]) -> dict[str, Any]:
    gateway = get_gateway(request)
    listed = gateway.catalogue.voices(client.voices, gateway.voices.added(client.tenant))["voices"]
    return {"voices": [{"id": voice["id"], "name": voice["name"]} for voice in listed]}


@router.get("/models", summary="The model, as some applications list it")
async def list_models(request: Request) -> dict[str, Any]:
    model = get_gateway(request).catalogue.ready.model
    return {"models": [{"id": model, "name": model}]}


@router.delete("/voices/{voice_id}", summary="Delete a voice")
async def delete_voice(request: Request, voice_id: str, client: Owner) -> dict[str, Any]:
    await get_gateway(request).voices.delete(voice_id, client.tenant)
    return openai.deleted_entry("audio.voice.deleted", voice_id)


@router.post("/voice_consents", summary="Store a recorded consent")
async def create_consent(request: Request, client: Owner) -> dict[str, Any]:
    """Store a consent. The recording must contain speech; only its hash is kept."""
    gateway = get_gateway(request)
    async with upload_place(request, gateway.voice_making, client.tenant):
        form = await read_voice_form(request, ("name", "language"), ("recording",))
        recording = form.file("recording")
        if not recording:
            raise InvalidRequest("recording is missing", field="recording")
        async with gateway.voice_making.turn(client.tenant):
            await check_recording((recording,), "recording")
        digest = hashlib.sha256(recording).hexdigest()
        made = await gateway.consents.add(form.field("name"), form.field("language"), digest, client.tenant)
    return _entry(made)


@router.get("/voice_consents", summary="Consents of the key")
async def list_consents(
    request: Request, client: Owner, after: str | None = None, limit: Annotated[int, Query(ge=1, le=100)] = 20
) -> dict[str, Any]:
    found = await get_gateway(request).consents.all_of(client.tenant)
    return openai.page_of([_entry(consent) for consent in found], after, limit)


@router.get("/voice_consents/{consent_id}", summary="A consent")
async def get_consent(request: Request, consent_id: str, client: Owner) -> dict[str, Any]:
    return _entry(await get_gateway(request).consents.get(consent_id, client.tenant))


@router.post("/voice_consents/{consent_id}", summary="Rename a consent")
async def rename_consent(request: Request, consent_id: str, client: Owner) -> dict[str, Any]:
    body = await read_bounded(request, _MAX_BODY_BYTES)
    name = load_object(body, len(body)).text("name")
    return _entry(await get_gateway(request).consents.rename(consent_id, name, client.tenant))


@router.delete("/voice_consents/{consent_id}", summary="Delete a consent; voices made by it stay")
async def delete_consent(request: Request, consent_id: str, client: Owner) -> dict[str, Any]:
    await get_gateway(request).consents.remove(consent_id, client.tenant)
    return openai.deleted_entry("audio.voice_consent", consent_id)


def _entry(consent: RecordedConsent) -> dict[str, Any]:
    return openai.consent_entry(consent.record_id, consent.name, consent.language, consent.created_at)
