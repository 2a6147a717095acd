"""Routes of Cartesia's interface for pronunciation dictionaries."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from realtime_tts.dialects.cartesia.dictionaries import dictionary_entry, read_items
from realtime_tts.dialects.cartesia.errors import cartesia_problem
from realtime_tts.dialects.cartesia.voices import page_of
from realtime_tts.dialects.json_input import load_object
from realtime_tts.server.http.problems import answers_in_with_id
from realtime_tts.server.http.routes import NEEDS_KEY, Owner, get_gateway, read_bounded

_MAX_BODY_BYTES = 128 * 1024  # fits the maximum number of entries of maximum length

router = APIRouter(
    prefix="/pronunciation-dicts", dependencies=[answers_in_with_id(cartesia_problem), *NEEDS_KEY], tags=["Cartesia"]
)


@router.post("/", include_in_schema=False)
@router.post("", summary="Store a pronunciation dictionary")
async def create_dictionary(request: Request, client: Owner) -> dict[str, Any]:
    body = await read_bounded(request, _MAX_BODY_BYTES)
    fields = load_object(body, len(body))
    dictionaries = get_gateway(request).dictionaries
    made = await dictionaries.add(fields.text("name"), read_items(fields) or (), client.tenant)
    return dictionary_entry(made, client.tenant)


@router.get("/", include_in_schema=False)
@router.get("", summary="The stored pronunciation dictionaries")
async def list_dictionaries(
    request: Request,
    client: Owner,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
    starting_after: str | None = None,
    ending_before: str | None = None,
) -> dict[str, Any]:
    found = await get_gateway(request).dictionaries.all_of(client.tenant)
    return page_of([dictionary_entry(each, client.tenant) for each in found], limit, starting_after, ending_before)


@router.get("/{dictionary_id}", summary="A stored pronunciation dictionary")
async def get_dictionary(request: Request, dictionary_id: str, client: Owner) -> dict[str, Any]:
    found = await get_gateway(request).dictionaries.get(dictionary_id, client.tenant)
    return dictionary_entry(found, client.tenant)


@router.patch("/{dictionary_id}", summary="Rename a pronunciation dictionary, or replace its items")
async def change_dictionary(request: Request, dictionary_id: str, client: Owner) -> dict[str, Any]:
    body = await read_bounded(request, _MAX_BODY_BYTES)
    fields = load_object(body, len(body))
    changed = await get_gateway(request).dictionaries.change(
        dictionary_id, client.tenant, name=fields.optional_text("name"), entries=read_items(fields)
    )
    return dictionary_entry(changed, client.tenant)


@router.delete("/{dictionary_id}", summary="Delete a pronunciation dictionary", status_code=HTTPStatus.NO_CONTENT)
async def delete_dictionary(request: Request, dictionary_id: str, client: Owner) -> None:
    await get_gateway(request).dictionaries.remove(dictionary_id, client.tenant)
