"""Routes of Cartesia's interface for pronunciation dictionaries."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request

from realtime_tts.dialects.json_input import Body, required
from realtime_tts.server.http.routes import AnyGateway, JsonObject, Owner, read_json, takes
from realtime_tts.server.vendors.cartesia_voices import page_of, utc_time
from realtime_tts.speech.records import Dictionary

_MAX_BODY_BYTES = 128 * 1024  # fits the maximum number of entries of maximum length

router = APIRouter(prefix="/pronunciation-dicts")


class _Item(Body):
    text: str
    alias: str


class _Dictionary(Body):
    name: str | None = None
    items: list[_Item] | None = None

    def entries(self) -> list[tuple[str, str]] | None:
        return None if self.items is None else [(item.text, item.alias) for item in self.items]


@router.post("/", include_in_schema=False)
@router.post("", summary="Store a pronunciation dictionary", openapi_extra=takes(_Dictionary))
async def create_dictionary(request: Request, gateway: AnyGateway, client: Owner) -> JsonObject:
    wanted = await read_json(request, _Dictionary, _MAX_BODY_BYTES)
    made = await gateway.dictionaries.add(required(wanted.name, "name"), wanted.entries() or (), client.tenant)
    return _entry(made)


@router.get("/", include_in_schema=False)
@router.get("", summary="The stored pronunciation dictionaries")
async def list_dictionaries(
    gateway: AnyGateway,
    client: Owner,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
    starting_after: str | None = None,
    ending_before: str | None = None,
) -> JsonObject:
    entries = [_entry(each) for each in await gateway.dictionaries.all_of(client.tenant)]
    return page_of(entries, limit, starting_after, ending_before)


@router.get("/{dictionary_id}", summary="A stored pronunciation dictionary")
async def get_dictionary(dictionary_id: str, gateway: AnyGateway, client: Owner) -> JsonObject:
    return _entry(await gateway.dictionaries.get(dictionary_id, client.tenant))


@router.patch(
    "/{dictionary_id}",
    summary="Rename a pronunciation dictionary, or replace its items",
    openapi_extra=takes(_Dictionary),
)
async def change_dictionary(request: Request, dictionary_id: str, gateway: AnyGateway, client: Owner) -> JsonObject:
    wanted, change = await read_json(request, _Dictionary, _MAX_BODY_BYTES), gateway.dictionaries.change
    entries = wanted.entries()
    replace = None if entries is None else lambda old: entries
    changed = await change(dictionary_id, client.tenant, name=wanted.name, entries=replace)
    return _entry(changed)


@router.delete("/{dictionary_id}", summary="Delete a pronunciation dictionary", status_code=HTTPStatus.NO_CONTENT)
async def delete_dictionary(dictionary_id: str, gateway: AnyGateway, client: Owner) -> None:
    await gateway.dictionaries.remove(dictionary_id, client.tenant)


def _entry(dictionary: Dictionary) -> JsonObject:
    return {
        "id": dictionary.record_id,
        "name": dictionary.name,
        "owner_id": dictionary.tenant or "local",
        "created_at": utc_time(dictionary.created_at),
        "pinned": False,
        "items": [{"text": word, "alias": said} for word, said in dictionary.entries],
    }
