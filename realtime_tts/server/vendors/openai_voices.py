"""Routes of OpenAI's interface for voices and consents."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Request

from realtime_tts.dialects.json_input import Body
from realtime_tts.dialects.voice_request import YES, VoiceRequest
from realtime_tts.errors import InvalidRequest
from realtime_tts.server.admission.client import Client
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http.routes import AnyGateway, JsonObject, ListedVoices, Owner, is_form, read_json, takes
from realtime_tts.server.vendors.pages import page_after
from realtime_tts.server.voices.cloning import check_recording, make_voice
from realtime_tts.server.voices.forms import CONSENT_FIELDS, FormShape, VoiceForm, upload_place
from realtime_tts.speech.records import RecordedConsent

_CONSENT_FORM = FormShape(("name", "language"), ("recording",))
_VOICE_FORM = FormShape(("name", "type", "prompt", "model", "script_hint", *CONSENT_FIELDS), ("audio_sample",))


router = APIRouter(prefix="/audio")


class _PromptVoice(Body):
    type: str = ""
    name: str = ""
    prompt: str = ""


class _Name(Body):
    name: str


@router.post(
    "/voices",
    summary="Create a voice from a recording, as a form, or from a description, as JSON",
    openapi_extra=_VOICE_FORM.documented(),
)
async def create_voice(request: Request, gateway: AnyGateway, client: Owner) -> JsonObject:
    gateway.availability.check()
    async with upload_place(request, gateway.voice_making, client.tenant):
        if is_form(request):
            wanted = await _voice_request(gateway, client, await _VOICE_FORM.read(request))
        else:
            wanted = _prompt_voice((await read_json(request, _PromptVoice)).given())
        record, _ = await make_voice(gateway, client, wanted)
    return {
        "id": record.voice_id,
        "object": "audio.voice",
        "created_at": int(record.created_at),
        "name": record.name,
        **(
            {"type": "audio_sample"}
            if record.instructions is None
            else {"type": "prompt", "prompt": record.instructions}
        ),
    }


async def _voice_request(gateway: Gateway, client: Client, form: VoiceForm) -> VoiceRequest:
    """Return the voice to make. The field `consent` is the id of a recorded consent, or the statement `true`."""
    sample = form.file("audio_sample")
    if not sample:
        return _prompt_voice(form.fields)
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
async def list_voices(listed: ListedVoices) -> JsonObject:
    return {"voices": [{"id": voice.id, "name": voice.name} for voice in listed.voices]}


@router.get("/models", summary="The model, as some applications list it")
async def list_models(gateway: AnyGateway) -> JsonObject:
    model = gateway.catalogue.ready.model
    return {"models": [{"id": model, "name": model}]}


@router.delete("/voices/{voice_id}", summary="Delete a voice")
async def delete_voice(voice_id: str, gateway: AnyGateway, client: Owner) -> JsonObject:
    await gateway.voices.delete(voice_id, client.tenant)
    return _deleted("audio.voice.deleted", voice_id)


@router.post("/voice_consents", summary="Store a recorded consent", openapi_extra=_CONSENT_FORM.documented())
async def create_consent(request: Request, gateway: AnyGateway, client: Owner) -> JsonObject:
    """Store a consent. The recording must contain speech; only its hash is kept."""
    async with upload_place(request, gateway.voice_making, client.tenant):
        form = await _CONSENT_FORM.read(request)
        recording = form.file("recording")
        if not recording:
            raise InvalidRequest("recording is missing", field="recording")
        async with gateway.voice_making.turns.place(client.tenant):
            await check_recording((recording,), "recording")
        digest = hashlib.sha256(recording).hexdigest()
        made = await gateway.consents.add(form.field("name"), form.field("language"), digest, client.tenant)
    return _entry(made)


@router.get("/voice_consents", summary="Consents of the key")
async def list_consents(
    gateway: AnyGateway, client: Owner, after: str | None = None, limit: Annotated[int, Query(ge=1, le=100)] = 20
) -> JsonObject:
    found = await gateway.consents.all_of(client.tenant)
    page, has_more = page_after(found, [each.record_id for each in found], after, limit)
    ends: list[str | None] = [consent.record_id for consent in page] or [None]
    data = [_entry(consent) for consent in page]
    return {"object": "list", "data": data, "has_more": has_more, "first_id": ends[0], "last_id": ends[-1]}


@router.get("/voice_consents/{consent_id}", summary="A consent")
async def get_consent(consent_id: str, gateway: AnyGateway, client: Owner) -> JsonObject:
    return _entry(await gateway.consents.get(consent_id, client.tenant))


@router.post("/voice_consents/{consent_id}", summary="Rename a consent", openapi_extra=takes(_Name))
async def rename_consent(request: Request, consent_id: str, gateway: AnyGateway, client: Owner) -> JsonObject:
    name = (await read_json(request, _Name)).name
    return _entry(await gateway.consents.rename(consent_id, name, client.tenant))


@router.delete("/voice_consents/{consent_id}", summary="Delete a consent; voices made by it stay")
async def delete_consent(consent_id: str, gateway: AnyGateway, client: Owner) -> JsonObject:
    await gateway.consents.remove(consent_id, client.tenant)
    return _deleted("audio.voice_consent", consent_id)


def _prompt_voice(fields: Mapping[str, str]) -> VoiceRequest:
    """Return the voice to make from a description. Raises InvalidRequest for another type or an empty prompt."""
    if fields.get("type") != "prompt":
        raise InvalidRequest("type must be prompt, or the voice be sent as a form with an audio_sample", field="type")
    if not fields.get("prompt", "").strip():
        raise InvalidRequest("prompt is empty", field="prompt")
    return VoiceRequest(name=fields.get("name", ""), instructions=fields["prompt"])


def _deleted(kind: str, id_: str) -> JsonObject:
    return {"id": id_, "object": kind, "deleted": True}


def _entry(consent: RecordedConsent) -> JsonObject:
    return {
        "id": consent.record_id,
        "object": "audio.voice_consent",
        "created_at": int(consent.created_at),
        "language": consent.language,
        "name": consent.name,
    }
