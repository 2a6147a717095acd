"""Routes of ElevenLabs' interface for pronunciation dictionaries."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from realtime_tts.dialects.json_input import Body, required
from realtime_tts.errors import AudioDecodeError, InvalidRequest
from realtime_tts.server.http.routes import AnyGateway, JsonObject, Owner, read_json, takes
from realtime_tts.server.vendors.pages import page_after
from realtime_tts.server.voices.forms import FormShape, upload_place
from realtime_tts.speech.records import Dictionary

_MAX_BODY_BYTES = 128 * 1024  # fits the maximum number of entries of maximum length
_FORM = FormShape(("name", "description", "workspace_access"), ("file",), ignores_others=True)

router = APIRouter(prefix="/v1/pronunciation-dictionaries", tags=["ElevenLabs"])


class _Rule(Body):
    type: str = "alias"
    string_to_replace: str
    alias: str | None = None


class _Rules(Body):
    rules: list[_Rule]

    def entries(self) -> list[tuple[str, str]]:
        """Raises:
        InvalidRequest: a rule with phones, which models here do not support.
        """
        if any(rule.type != "alias" for rule in self.rules):
            raise InvalidRequest("a rule must have the type alias: models here take no phones", field="rules.type")
        return [(rule.string_to_replace, required(rule.alias, "rules.alias")) for rule in self.rules]


class _Dictionary(_Rules):
    name: str
    description: str = ""


class _Change(Body):
    name: str | None = None
    archived: bool = False


class _Removal(Body):
    rule_strings: list[str]


@router.post("/add-from-rules", summary="Store a pronunciation dictionary", openapi_extra=takes(_Dictionary))
async def add_from_rules(request: Request, gateway: AnyGateway, client: Owner) -> JsonObject:
    wanted = await read_json(request, _Dictionary, _MAX_BODY_BYTES)
    made = await gateway.dictionaries.add(wanted.name, wanted.entries(), client.tenant, wanted.description)
    return _made_entry(made)


@router.post(
    "/add-from-file",
    summary="Store a pronunciation dictionary of a PLS file",
    openapi_extra=_FORM.documented(),
)
async def add_from_file(request: Request, gateway: AnyGateway, client: Owner) -> JsonObject:
    async with upload_place(request, gateway.voice_making, client.tenant):
        try:
            form = await _FORM.read(request)
        except AudioDecodeError:  # the error of an empty file in the forms of voices
            raise InvalidRequest("the file is empty", field="file") from None
    content = form.file("file")
    if len(content) > _MAX_BODY_BYTES:
        raise InvalidRequest(f"a file has at most {_MAX_BODY_BYTES} bytes", field="file")
    name, description = form.field("name"), form.field("description")
    made = await gateway.dictionaries.add_file(name, content, client.tenant, description)
    return _made_entry(made)


@router.get("", summary="The stored pronunciation dictionaries")
@router.get("/", include_in_schema=False)
async def list_dictionaries(
    gateway: AnyGateway, client: Owner, cursor: str = "", page_size: Annotated[int, Query(ge=1, le=100)] = 30
) -> JsonObject:
    found = await gateway.dictionaries.all_of(client.tenant)
    page, has_more = page_after(found, [each.record_id for each in found], cursor, page_size)
    return {
        "pronunciation_dictionaries": [_listed_entry(each) for each in page],
        "has_more": has_more,
        "next_cursor": page[-1].record_id if has_more else None,
    }


@router.get("/{dictionary_id}", summary="A stored pronunciation dictionary")
async def get_dictionary(dictionary_id: str, gateway: AnyGateway, client: Owner) -> JsonObject:
    found = await gateway.dictionaries.get(dictionary_id, client.tenant)
    rules = [{"type": "alias", "string_to_replace": word, "alias": said} for word, said in found.entries]
    return {**_listed_entry(found), "rules": rules}


@router.patch(
    "/{dictionary_id}",
    summary="Rename a pronunciation dictionary, or delete it by archiving",
    openapi_extra=takes(_Change),
)
async def change_dictionary(request: Request, dictionary_id: str, gateway: AnyGateway, client: Owner) -> JsonObject:
    wanted, dictionaries = await read_json(request, _Change, _MAX_BODY_BYTES), gateway.dictionaries
    changed = await dictionaries.change(dictionary_id, client.tenant, name=wanted.name)
    if wanted.archived:
        await dictionaries.remove(dictionary_id, client.tenant)
    return _listed_entry(changed)


@router.post("/{dictionary_id}/set-rules", summary="Replace the rules", openapi_extra=takes(_Rules))
async def set_rules(request: Request, dictionary_id: str, gateway: AnyGateway, client: Owner) -> JsonObject:
    rules = (await read_json(request, _Rules, _MAX_BODY_BYTES)).entries()
    changed = await gateway.dictionaries.change(dictionary_id, client.tenant, entries=lambda old: rules)
    return _made_entry(changed)


@router.post("/{dictionary_id}/add-rules", summary="Add rules", openapi_extra=takes(_Rules))
async def add_rules(request: Request, dictionary_id: str, gateway: AnyGateway, client: Owner) -> JsonObject:
    more = (await read_json(request, _Rules, _MAX_BODY_BYTES)).entries()
    changed = await gateway.dictionaries.change(
        dictionary_id,
        client.tenant,
        entries=lambda old: {**dict(old), **dict(more)}.items(),  # an added rule replaces one for the same word
    )
    return _made_entry(changed)


@router.post("/{dictionary_id}/remove-rules", summary="Remove rules", openapi_extra=takes(_Removal))
async def remove_rules(request: Request, dictionary_id: str, gateway: AnyGateway, client: Owner) -> JsonObject:
    gone = (await read_json(request, _Removal, _MAX_BODY_BYTES)).rule_strings
    changed = await gateway.dictionaries.change(
        dictionary_id, client.tenant, entries=lambda old: [entry for entry in old if entry[0] not in gone]
    )
    return _made_entry(changed)


def _made_entry(dictionary: Dictionary) -> JsonObject:
    """Return the answer to a request that created or changed a dictionary."""
    return {**_about(dictionary), "version_id": _version_id(dictionary), "version_rules_num": len(dictionary.entries)}


def _listed_entry(dictionary: Dictionary) -> JsonObject:
    return {
        **_about(dictionary),
        "latest_version_id": _version_id(dictionary),
        "latest_version_rules_num": len(dictionary.entries),
        "archived_time_unix": None,
    }


def _about(dictionary: Dictionary) -> JsonObject:
    return {
        "id": dictionary.record_id,
        "name": dictionary.name,
        "created_by": "",
        "creation_time_unix": int(dictionary.created_at),
        "description": dictionary.description,
        "permission_on_resource": "admin",
    }


def _version_id(dictionary: Dictionary) -> str:
    return f"{dictionary.record_id}-{dictionary.version}"
