"""Routes of ElevenLabs' interface for models and voices: list, add, change and delete."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams
from starlette.routing import Match
from starlette.types import Scope

from realtime_tts.dialects.elevenlabs.requests import VoiceSettings
from realtime_tts.dialects.json_input import Body, load_object
from realtime_tts.dialects.voice_request import VoiceRequest
from realtime_tts.errors import InvalidRequest, RequestTooLarge
from realtime_tts.server.http.routes import AnyGateway, FoundVoice, JsonObject, ListedVoices, Owner, read_json, takes
from realtime_tts.server.http.schemas import Voice
from realtime_tts.server.vendors.pages import page_after
from realtime_tts.server.voices.cloning import make_voice
from realtime_tts.server.voices.forms import CONSENT_FIELDS, MAX_FIELD_CHARS, FormShape, VoiceForm, upload_place

_FIELDS = ("name", "description", "labels", "remove_background_noise", *CONSENT_FIELDS)
_FORM = FormShape(_FIELDS, ("files",), max_files=8, ignores_others=True)
_LABELS_FORM = dataclasses.replace(_FORM, max_body_bytes=4 * MAX_FIELD_CHARS * len(_FIELDS))
# Fixed values: a voice depends on its recordings only.
_SETTINGS: JsonObject = {
    "stability": 0.5,
    "similarity_boost": 0.75,
    "style": 0.0,
    "use_speaker_boost": True,
    "speed": 1.0,
}
_CATEGORIES = {"cloned": "cloned", "designed": "generated"}
_LABELS = ("language", "gender", "age", "accent", "use_cases")
_OWNED = {  # whether voices of a `voice_type` are the key's own
    "personal": (True,),
    "saved": (True,),
    "workspace": (True,),
    "non-default": (True,),
    "default": (False,),
    "community": (),
}
_SORTS: dict[str, Callable[[Voice], tuple[float, str]]] = {
    "name": lambda voice: (0, voice.name.casefold()),
    "created_at_unix": lambda voice: (int(voice.created_at or 0), ""),
}
_MAX_PAGE = 100


class _Labels(Body):
    labels: dict[str, str | None]


class _TheirsAlone(APIRoute):
    """Route on a path that other interfaces share; it matches requests with the header `xi-api-key` only."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        found = super().matches(scope)
        return found if any(name == b"xi-api-key" for name, _ in scope["headers"]) else (Match.NONE, {})


# OpenAPI has one operation for a path and a method: paths that the native interface has too are described there.
router = APIRouter(route_class=_TheirsAlone, tags=["ElevenLabs"])


@router.get("/v1/models", include_in_schema=False)
async def models(gateway: AnyGateway) -> list[JsonObject]:
    ready, languages = gateway.catalogue.ready, gateway.catalogue.defaults.policy.languages
    return [
        {
            "model_id": ready.model,
            "name": ready.model,
            "can_do_text_to_speech": True,
            "can_do_voice_conversion": False,
            "can_be_finetuned": False,
            "can_use_style": False,
            "can_use_speaker_boost": False,
            "serves_pro_voices": False,
            "requires_alpha_access": False,
            "token_cost_factor": 0.0,
            "maximum_text_length_per_request": gateway.settings.server.limits.max_text_chars,
            "languages": [{"language_id": language, "name": language} for language in languages],
        }
    ]


@router.get("/v1/voices", include_in_schema=False)
async def voices(listed: ListedVoices) -> JsonObject:
    return {"voices": [voice_entry(voice) for voice in listed.voices]}


@router.get("/v2/voices", summary="Voices, a page at a time")
async def search(
    request: Request, listed: ListedVoices, page_size: Annotated[int | None, Query(ge=1, le=_MAX_PAGE)] = None
) -> JsonObject:
    """Return the voices that match the query, in the order that it requests.

    A page has `page_size` entries; without it, all are on one page. A label that no voice has (a gender, an accent)
    matches no voice.
    """
    query = request.query_params
    found = [voice for voice in listed.voices if _matches(voice, query)]
    if sort := query.get("sort"):
        if sort not in _SORTS:
            raise InvalidRequest(f"sort must be one of {', '.join(_SORTS)}", field="sort")
        found.sort(key=_SORTS[sort], reverse=query.get("sort_direction") == "desc")
    token, ids = query.get("next_page_token"), [voice.id for voice in found]
    page, has_more = page_after(found, ids, token, page_size or len(found))
    return {
        "voices": [voice_entry(voice) for voice in page],
        "has_more": has_more,
        "total_count": len(found),
        "next_page_token": page[-1].id if has_more else None,
    }


@router.get("/v1/voices/{voice_id}", include_in_schema=False)
async def voice_by_id(found: FoundVoice) -> JsonObject:
    return voice_entry(found)


@router.post("/v1/voices/add", summary="Create a voice from recordings", openapi_extra=_FORM.documented())
async def add_voice(request: Request, gateway: AnyGateway, client: Owner) -> JsonObject:
    gateway.availability.check()
    async with upload_place(request, gateway.voice_making, client.tenant):
        form = await _FORM.read(request)
        if not form.files:
            raise InvalidRequest("files are missing", field="files")
        record, _ = await make_voice(gateway, client, _voice_request(form))
    return {"voice_id": record.voice_id, "requires_verification": False}


def _voice_request(form: VoiceForm) -> VoiceRequest:
    """Return the voice to make. Consent may be given in additional fields or among the labels.

    Raises:
        InvalidMessage: the labels are not an object of strings.
    """
    labels = _parse_labels(form.field("labels"))
    consent = {name: form.field(name) or labels.get(name, "") for name in CONSENT_FIELDS}
    language = labels.get("language", "")
    return VoiceRequest.of_form({**form.fields, **consent, "language": language}, form.files_of("files"))


def _parse_labels(text: str) -> dict[str, str]:
    """Parse the labels, a JSON object in a form's field. Raises InvalidMessage if it is malformed."""
    if text in ("", "null"):
        return {}
    labels = load_object(text, len(text.encode()))
    return {name: label or "" for name, label in _Labels.of({"labels": labels}).labels.items()}


@router.post(
    "/v1/voices/{voice_id}/edit", summary="Rename or describe a voice", openapi_extra=FormShape(_FIELDS).documented()
)
async def edit_voice(request: Request, voice_id: str, gateway: AnyGateway, client: Owner) -> JsonObject:
    await gateway.voices.find(voice_id, client.tenant)
    form = await _read_labels(request)
    labels = {
        "name": form.field("name") or None,
        "description": form.fields.get("description"),
        "language": _parse_labels(form.field("labels")).get("language"),
    }
    await gateway.voices.relabel(voice_id, client.tenant, **labels)
    return {"status": "ok"}


async def _read_labels(request: Request) -> VoiceForm:
    """Raises:
    InvalidRequest: the form has recordings, or is larger than labels may be.
    """
    refusal = InvalidRequest("a voice keeps the recordings that it was made of; add another voice", field="files")
    try:
        form = await _LABELS_FORM.read(request)
    except RequestTooLarge:
        raise refusal from None
    if form.files:
        raise refusal
    return form


@router.delete("/v1/voices/{voice_id}", include_in_schema=False)
async def delete_voice(voice_id: str, gateway: AnyGateway, client: Owner) -> JsonObject:
    await gateway.voices.delete(voice_id, client.tenant)
    return {"status": "ok"}


@router.get("/v1/voices/settings/default", summary="Default settings of voices")
async def default_settings() -> JsonObject:
    return _SETTINGS


@router.get("/v1/voices/{voice_id}/settings", summary="Settings of a voice")
async def settings(found: FoundVoice) -> JsonObject:
    return _SETTINGS


@router.post(
    "/v1/voices/{voice_id}/settings/edit", summary="Check settings of a voice", openapi_extra=takes(VoiceSettings)
)
async def edit_settings(request: Request, found: FoundVoice, client: Owner) -> JsonObject:
    """Check new settings of a voice: they are not stored, so a change of the speed is refused."""
    if (await read_json(request, VoiceSettings)).speed not in (None, 1.0):
        raise InvalidRequest("a voice keeps no speed of its own here; ask for it with each request", field="speed")
    return {"status": "ok"}


def voice_entry(voice: Voice) -> JsonObject:
    return {
        "voice_id": voice.id,
        "name": voice.name,
        "category": _CATEGORIES.get(voice.kind, "premade"),
        "description": voice.description,
        "labels": _labels(voice),
        "preview_url": None,
        "settings": None,
        "is_owner": voice.kind != "model",
        "created_at_unix": int(voice.created_at) if voice.created_at else None,
    }


def _labels(voice: Voice) -> dict[str, str]:
    return {"language": voice.language} if voice.language else {}


def _matches(voice: Voice, query: QueryParams) -> bool:
    words, labels = query.get("search", "").casefold(), _labels(voice)
    told, ids = (voice.name, voice.description, *labels.values()), query.getlist("voice_ids")
    category = _CATEGORIES.get(voice.kind, "premade")
    return (
        any(words in text.casefold() for text in told)
        and (not ids or voice.id in ids)
        and query.get("category", category) == category
        and all(labels.get(name) in query.getlist(name) for name in _LABELS if query.get(name))
        and (voice.kind != "model") in _OWNED.get(query.get("voice_type", ""), (True, False))
    )
