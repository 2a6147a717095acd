"""Routes of Cartesia's interface for voices: list, clone, change and delete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request

from realtime_tts.dialects.json_input import Body
from realtime_tts.dialects.voice_request import VoiceRequest
from realtime_tts.errors import InvalidRequest
from realtime_tts.server.http.catalogue import added_voice
from realtime_tts.server.http.routes import AnyGateway, FoundVoice, JsonObject, ListedVoices, Owner, read_json, takes
from realtime_tts.server.http.schemas import Voice
from realtime_tts.server.vendors.pages import page_after
from realtime_tts.server.voices.cloning import make_voice
from realtime_tts.server.voices.forms import CONSENT_FIELDS, FormShape, upload_place

_CLONE_FORM = FormShape(("name", "description", "language", *CONSENT_FIELDS), ("clip",), ignores_others=True)
_MAX_PAGE = 100
_PAGES_SINCE = "2024-11-13"  # first of Cartesia's versions that lists voices in pages
_CLONED = ("id", "access", "created_at", "description", "language", "name", "tagline", "visibility")

router = APIRouter(prefix="/voices")


class _Labels(Body):
    name: str | None = None
    description: str | None = None


@router.get("/", include_in_schema=False)  # older clients
@router.get("", summary="Voices, a page at a time; all in a list for versions before 2024-11-13")
async def voices(
    gateway: AnyGateway,
    listed: ListedVoices,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 10,
    starting_after: str | None = None,
    ending_before: str | None = None,
    q: str = "",
    is_owner: bool | None = None,
    cartesia_version: Annotated[str, Header()] = _PAGES_SINCE,
) -> JsonObject | list[JsonObject]:
    entries = [
        voice_entry(voice, gateway.catalogue.created)
        for voice in voices_with(q, listed.voices)
        if is_owner in (None, voice.kind != "model")
    ]
    return entries if cartesia_version < _PAGES_SINCE else page_of(entries, limit, starting_after, ending_before)


@router.get("/{voice_id}", summary="A voice")
async def voice(gateway: AnyGateway, found: FoundVoice) -> JsonObject:
    return voice_entry(found, gateway.catalogue.created)


@router.post("/clone", summary="Create a voice from a recording", openapi_extra=_CLONE_FORM.documented())
async def clone(request: Request, gateway: AnyGateway, client: Owner) -> JsonObject:
    """Create a voice, with additional fields for consent, which Cartesia does not have."""
    gateway.availability.check()
    async with upload_place(request, gateway.voice_making, client.tenant):
        form = await _CLONE_FORM.read(request)
        if not (clip := form.file("clip")):
            raise InvalidRequest("clip is missing", field="clip")
        record, _ = await make_voice(gateway, client, VoiceRequest.of_form(form.fields, (clip,)))
    entry = voice_entry(added_voice(record), record.created_at)
    return {**{name: entry[name] for name in _CLONED}, "user_id": "", "is_public": False}


@router.patch("/{voice_id}", summary="Rename or describe a voice", openapi_extra=takes(_Labels))
async def change_voice(request: Request, voice_id: str, gateway: AnyGateway, client: Owner) -> JsonObject:
    labels = await read_json(request, _Labels)
    changed = await gateway.voices.relabel(voice_id, client.tenant, **labels.given())
    return voice_entry(added_voice(changed), gateway.catalogue.created)


@router.delete("/{voice_id}", summary="Delete a voice", status_code=HTTPStatus.NO_CONTENT)
async def delete_voice(voice_id: str, gateway: AnyGateway, client: Owner) -> None:
    await gateway.voices.delete(voice_id, client.tenant)


def voice_entry(about: Voice, loaded_at: float) -> JsonObject:
    """Return a voice for `GET /voices`. `loaded_at`: Unix time for the model's voices, s."""
    is_own = about.kind != "model"
    return {
        "id": about.id,
        "name": about.name,
        "tagline": "",
        "description": about.description,
        "language": about.language,
        "locales": [{"locale": about.language, "is_native": True}] if about.language else [],
        "gender": None,
        "is_owner": is_own,
        "access": "private" if is_own else "public",
        "visibility": "owner" if is_own else "all",
        "created_at": utc_time(loaded_at if about.created_at is None else about.created_at),
    }


def utc_time(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat().replace("+00:00", "Z")


def voices_with(query: str, voices: Iterable[Voice]) -> list[Voice]:
    """Return the voices with `query` in their name or description, in either case."""
    return [
        voice
        for voice in voices
        if any(query.casefold() in text.casefold() for text in (voice.name, voice.description))
    ]


def page_of(
    found: Sequence[JsonObject], limit: int, starting_after: str | None, ending_before: str | None
) -> JsonObject:
    """Return a page of at most `limit` entries, after or before the entry with an id."""
    ids = [str(entry["id"]) for entry in found]
    if ending_before is not None:
        before = found[: ids.index(ending_before)] if ending_before in ids else []
        page, has_more = list(before[-limit:]), len(before) > limit
    else:
        page, has_more = page_after(found, ids, starting_after, limit)
    return {"data": page, "has_more": has_more, "next_page": page[-1]["id"] if page and has_more else None}
