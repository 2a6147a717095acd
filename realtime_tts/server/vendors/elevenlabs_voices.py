"""Routes of ElevenLabs' interface for models and voices: list, add, change and delete."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

from realtime_tts.dialects.elevenlabs import voices as dialect
from realtime_tts.dialects.elevenlabs.catalogue import model_entries, search_voices, voice_entry
from realtime_tts.dialects.elevenlabs.errors import elevenlabs_problem
from realtime_tts.dialects.json_input import load_object
from realtime_tts.errors import InvalidRequest, RequestTooLarge, VoiceNotFound
from realtime_tts.server.admission.client import Client
from realtime_tts.server.http.problems import answers_in
from realtime_tts.server.http.routes import NEEDS_KEY, Owner, authorize, get_gateway, read_bounded
from realtime_tts.server.voices.cloning import make_voice
from realtime_tts.server.voices.forms import MAX_FIELD_CHARS, VoiceForm, read_voice_form, upload_place
from realtime_tts.speech.voices import VoiceLabels

_MAX_BODY_BYTES = 16 * 1024
_MAX_LABELS_BYTES = 4 * MAX_FIELD_CHARS * len(dialect.FIELDS)  # of a form without recordings


class _TheirsAlone(APIRoute):
    """Route on a path that other interfaces share; it matches requests with the header `xi-api-key` only."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        found = super().matches(scope)
        return found if any(name == b"xi-api-key" for name, _ in scope["headers"]) else (Match.NONE, {})


KnownClient = Annotated[Client, Depends(authorize)]
catalogue = APIRouter(dependencies=[answers_in(elevenlabs_problem), *NEEDS_KEY], route_class=_TheirsAlone)

# ---- what there is ---------------------------------------------------------------------------------------------------


@catalogue.get("/v1/models", include_in_schema=False)
async def models(request: Request) -> list[dict[str, Any]]:
    gateway = get_gateway(request)
    ready, policy = gateway.catalogue.ready, gateway.catalogue.defaults.policy
    return model_entries(ready.model, policy.languages, gateway.settings.server.limits.max_text_chars)


@catalogue.get("/v1/voices", include_in_schema=False)
async def voices(request: Request, client: KnownClient) -> dict[str, Any]:
    return {"voices": _voices(request, client)}


@catalogue.get("/v2/voices", include_in_schema=False)
async def search(request: Request, client: KnownClient) -> dict[str, Any]:
    return search_voices(_voices(request, client), request.query_params)


@catalogue.get("/v1/voices/{voice}", include_in_schema=False)
async def voice_by_id(request: Request, voice: str, client: KnownClient) -> dict[str, Any]:
    return _find(request, voice, client)


def _find(request: Request, voice: str, client: Client) -> dict[str, Any]:
    """Raises:
    VoiceNotFound
    """
    for found in _voices(request, client):
        if found["voice_id"] == voice:
            return found
    raise VoiceNotFound("there is no such voice", field="voice_id")


def _voices(request: Request, client: Client) -> list[dict[str, Any]]:
    gateway = get_gateway(request)
    listed = gateway.catalogue.voices(client.voices, gateway.voices.added(client.tenant))["voices"]
    return [voice_entry(voice) for voice in listed]


# ---- changes -----------------------------------------------------------------------------------------------------


@catalogue.post("/v1/voices/add", include_in_schema=False)
async def add_voice(request: Request, client: Owner) -> dict[str, Any]:
    gateway = get_gateway(request)
    gateway.availability.check()
    async with upload_place(request, gateway.voice_making, client.tenant):
        form = await read_voice_form(
            request, dialect.FIELDS, dialect.FILES, max_files=dialect.MAX_FILES, ignores_others=True
        )
        wanted = dialect.parse_voice_request(form.fields, [content for _, content in form.files])
        if not wanted.has_recordings:
            raise InvalidRequest("files are missing", field="files")
        made = await make_voice(gateway, client, wanted)
    return {"voice_id": made.record.voice_id, "requires_verification": False}


@catalogue.post("/v1/voices/{voice}/edit", include_in_schema=False)
async def edit_voice(request: Request, voice: str, client: Owner) -> dict[str, Any]:
    voices = get_gateway(request).voices
    old = await voices.find(voice, client.tenant)
    form = await _read_labels(request)
    language = dialect.parse_labels(form.field("labels")).get("language", old.language)
    labels = VoiceLabels(form.field("name") or old.name, form.fields.get("description", old.description), language)
    await voices.relabel(old.voice_id, labels, client.tenant)
    return {"status": "ok"}


async def _read_labels(request: Request) -> VoiceForm:
    """Raises:
    InvalidRequest: the form has recordings, or is larger than labels may be.
    """
    refusal = InvalidRequest("a voice keeps the recordings that it was made of; add another voice", field="files")
    try:
        form = await read_voice_form(
            request,
            dialect.FIELDS,
            ("files",),
            max_files=dialect.MAX_FILES,
            max_body_bytes=_MAX_LABELS_BYTES,
            ignores_others=True,
        )
    except RequestTooLarge:
        raise refusal from None
    if form.files:
        raise refusal
    return form


@catalogue.delete("/v1/voices/{voice}", include_in_schema=False)
async def delete_voice(request: Request, voice: str, client: Owner) -> dict[str, Any]:
    await get_gateway(request).voices.delete(voice, client.tenant)
    return {"status": "ok"}


@catalogue.get("/v1/voices/settings/default", include_in_schema=False)
async def default_settings() -> dict[str, Any]:
    return dialect.settings()


@catalogue.get("/v1/voices/{voice}/settings", include_in_schema=False)
async def settings(request: Request, voice: str, client: KnownClient) -> dict[str, Any]:
    _find(request, voice, client)
    return dialect.settings()


@catalogue.post("/v1/voices/{voice}/settings/edit", include_in_schema=False)
async def edit_settings(request: Request, voice: str, client: Owner) -> dict[str, Any]:
    _find(request, voice, client)
    body = await read_bounded(request, _MAX_BODY_BYTES)
    dialect.check_settings(load_object(body, len(body)))
    return {"status": "ok"}
