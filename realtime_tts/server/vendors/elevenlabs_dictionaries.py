"""Routes of ElevenLabs' interface for pronunciation dictionaries."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from realtime_tts.dialects.elevenlabs import dictionaries as dialect
from realtime_tts.dialects.elevenlabs.errors import elevenlabs_problem
from realtime_tts.dialects.json_input import Fields, load_object
from realtime_tts.errors import InvalidMessage, InvalidRequest
from realtime_tts.server.http.problems import answers_in
from realtime_tts.server.http.routes import NEEDS_KEY, Owner, get_gateway, read_bounded
from realtime_tts.server.voices.forms import read_voice_form

MAX_BODY_BYTES = 128 * 1024  # fits the maximum number of entries of maximum length
_FIELDS = ("name", "description", "workspace_access")

router = APIRouter(
    prefix="/v1/pronunciation-dictionaries",
    dependencies=[answers_in(elevenlabs_problem), *NEEDS_KEY],
    tags=["ElevenLabs"],
)


@router.post("/add-from-rules", summary="Store a pronunciation dictionary")
async def add_from_rules(request: Request, client: Owner) -> dict[str, Any]:
    fields = await read_fields(request)
    name, description = fields.text("name"), fields.optional_text("description") or ""
    made = await get_gateway(request).dictionaries.add(name, dialect.read_rules(fields), client.tenant, description)
    return dialect.made_entry(made)


@router.post("/add-from-file", summary="Store a pronunciation dictionary of a PLS file")
async def add_from_file(request: Request, client: Owner) -> dict[str, Any]:
    gateway = get_gateway(request)
    async with gateway.voice_making.upload(client.tenant):
        form = await read_voice_form(request, _FIELDS, ("file",), ignores_others=True)
    content = form.file("file")
    if len(content) > MAX_BODY_BYTES:
        raise InvalidRequest(f"a file has at most {MAX_BODY_BYTES} bytes", field="file")
    name, description = form.field("name"), form.field("description")
    made = await gateway.dictionaries.add_file(name, content, client.tenant, description)
    return dialect.made_entry(made)


@router.get("", summary="The stored pronunciation dictionaries")
@router.get("/", include_in_schema=False)
async def list_dictionaries(
    request: Request, client: Owner, cursor: str = "", page_size: Annotated[int, Query(ge=1, le=100)] = 30
) -> dict[str, Any]:
    found = await get_gateway(request).dictionaries.all_of(client.tenant)
    ids = [each.record_id for each in found]
    rest = found[ids.index(cursor) + 1 :] if cursor in ids else found
    page, has_more = rest[:page_size], len(rest) > page_size
    return {
        "pronunciation_dictionaries": [dialect.listed_entry(each) for each in page],
        "has_more": has_more,
        "next_cursor": page[-1].record_id if has_more else None,
    }


@router.get("/{dictionary_id}", summary="A stored pronunciation dictionary")
async def get_dictionary(request: Request, dictionary_id: str, client: Owner) -> dict[str, Any]:
    return dialect.full_entry(await get_gateway(request).dictionaries.get(dictionary_id, client.tenant))


@router.patch("/{dictionary_id}", summary="Rename a pronunciation dictionary, or delete it by archiving")
async def change_dictionary(request: Request, dictionary_id: str, client: Owner) -> dict[str, Any]:
    fields, dictionaries = await read_fields(request), get_gateway(request).dictionaries
    changed = await dictionaries.change(dictionary_id, client.tenant, name=fields.optional_text("name"))
    if fields.optional_boolean("archived"):
        await dictionaries.remove(dictionary_id, client.tenant)
    return dialect.listed_entry(changed)


@router.post("/{dictionary_id}/set-rules", summary="Replace the rules")
async def set_rules(request: Request, dictionary_id: str, client: Owner) -> dict[str, Any]:
    rules = dialect.read_rules(await read_fields(request))
    changed = await get_gateway(request).dictionaries.change(dictionary_id, client.tenant, entries=rules)
    return dialect.made_entry(changed)


@router.post("/{dictionary_id}/add-rules", summary="Add rules")
async def add_rules(request: Request, dictionary_id: str, client: Owner) -> dict[str, Any]:
    more, dictionaries = dialect.read_rules(await read_fields(request)), get_gateway(request).dictionaries
    old = await dictionaries.get(dictionary_id, client.tenant)
    entries = dialect.merged(old.entries, more)
    return dialect.made_entry(await dictionaries.change(dictionary_id, client.tenant, entries=entries))


@router.post("/{dictionary_id}/remove-rules", summary="Remove rules")
async def remove_rules(request: Request, dictionary_id: str, client: Owner) -> dict[str, Any]:
    gone = set((await read_fields(request)).strings("rule_strings"))
    dictionaries = get_gateway(request).dictionaries
    old = await dictionaries.get(dictionary_id, client.tenant)
    entries = [entry for entry in old.entries if entry[0] not in gone]
    return dialect.made_entry(await dictionaries.change(dictionary_id, client.tenant, entries=entries))


async def read_fields(request: Request) -> Fields:
    """Return the JSON object in a body. Raises RequestTooLarge, InvalidMessage."""
    body = await read_bounded(request, MAX_BODY_BYTES)
    if not body:
        raise InvalidMessage("the body is empty")
    return load_object(body, len(body))
