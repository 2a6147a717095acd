"""Routes of Cartesia's interface."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response, WebSocket
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from realtime_tts.dialects.cartesia import events
from realtime_tts.dialects.cartesia.errors import cartesia_problem
from realtime_tts.dialects.cartesia.requests import CartesiaSpeech, parse_speech
from realtime_tts.dialects.cartesia.stream import CartesiaDialect
from realtime_tts.dialects.cartesia.voices import CLONE_FIELDS, metadata, parse_clone, voice_entry, voices_page
from realtime_tts.dialects.json_input import load_object
from realtime_tts.dialects.speech_request import Chunk, Total
from realtime_tts.errors import RealtimeTTSError, VoiceNotFound
from realtime_tts.server.admission.client import Client
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http.browser_tokens import make_plain_token, read_ttl_s
from realtime_tts.server.http.catalogue import added_voice
from realtime_tts.server.http.problems import answers_in_with_id, problem_response
from realtime_tts.server.http.request_ids import request_id
from realtime_tts.server.http.routes import NEEDS_KEY, Owner, authorize, get_gateway, read_bounded
from realtime_tts.server.http.speech_response import read_speech_body, speech_response
from realtime_tts.server.stream.websocket import serve_stream
from realtime_tts.server.vendors import cartesia_dictionaries
from realtime_tts.server.voices.cloning import make_voice
from realtime_tts.server.voices.forms import read_voice_form, upload_place
from realtime_tts.speech.voices import VoiceLabels

_EVENT_STREAM = "text/event-stream"
_MAX_PAGE = 100
_MAX_CHANGE_BYTES = 16 * 1024
_DEFAULT_TTL_S = 60  # of a token
_PAGES_SINCE = "2024-11-13"  # first of Cartesia's versions that lists voices in pages


class CartesiaError(BaseModel):
    """Body of every error response of this dialect."""

    error_code: str
    title: str
    message: str
    error: str
    request_id: str


router = APIRouter()
_http = APIRouter(
    tags=["Cartesia"],
    dependencies=[answers_in_with_id(cartesia_problem), *NEEDS_KEY],
    responses={401: {"model": CartesiaError, "description": "the API key is missing or not active"}},
)
_BODY = {
    "requestBody": {
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["transcript", "output_format"],
                    "properties": {
                        "transcript": {"type": "string"},
                        "model_id": {"type": "string"},
                        "voice": {"oneOf": [{"type": "string"}, {"type": "object"}]},
                        "output_format": {"type": "object"},
                        "language": {"type": "string"},
                        "add_timestamps": {"type": "boolean"},
                        "context_id": {"type": "string"},
                    },
                }
            }
        }
    }
}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": CartesiaError, "description": description}
    for status, description in {
        400: "an invalid request",
        404: "an unknown voice or model, where `strict_ids` is on",
        413: "a body that is too large",
        429: "a limit of the key is reached",
        503: "overloaded or not ready",
    }.items()
}


class _Events:
    """Server-sent events of one speech."""

    content_type = _EVENT_STREAM

    def __init__(self, wanted: CartesiaSpeech, id_: str) -> None:
        self.wants_words = wanted.wants_words
        self._context_id, self._request_id = wanted.context_id, id_
        self._times = events.WordTimes()

    def chunk(self, chunk: Chunk) -> bytes:
        placed = self._times.apart(chunk.words)
        words = _event("timestamps", events.timestamps(self._context_id, placed)) if placed else b""
        return words + (_event("chunk", events.chunk(self._context_id, chunk.data)) if chunk.data else b"")

    def end(self, total: Total) -> bytes:
        return _event("done", events.done(self._context_id))

    def error(self, error: RealtimeTTSError) -> bytes:
        told = events.error(self._context_id, error.code, error.http_status, error.message, self._request_id)
        return _event("error", told)


def _event(kind: str, data: str) -> bytes:
    return f"event: {kind}\ndata: {data}\n\n".encode()


@router.websocket("/tts/websocket")
async def socket(websocket: WebSocket) -> None:
    gateway: Gateway = websocket.app.state.gateway
    id_ = request_id(websocket.scope)

    def refuse(error: RealtimeTTSError) -> JSONResponse:
        return problem_response(error, lambda told: cartesia_problem(told, id_))

    await serve_stream(websocket, gateway, lambda: CartesiaDialect(id_, gateway.adapter_of), refuse=refuse)


@_http.post(
    "/tts/bytes",
    summary="Speak a text; the answer is the audio",
    response_class=Response,
    openapi_extra=_BODY,
    responses=_PROBLEMS,
)
async def speak_bytes(request: Request, client: Annotated[Client, Depends(authorize)]) -> Response:
    gateway = get_gateway(request)
    wanted = parse_speech(await read_speech_body(request, gateway, client), as_events=False)
    return await speech_response(gateway, client, wanted.speech)


@_http.post(
    "/tts/sse",
    summary="Speak a text; the answer is events with audio and words",
    response_class=Response,
    openapi_extra=_BODY,
    responses=_PROBLEMS,
)
async def speak_events(request: Request, client: Annotated[Client, Depends(authorize)]) -> Response:
    gateway = get_gateway(request)
    wanted = parse_speech(await read_speech_body(request, gateway, client), as_events=True)
    return await speech_response(gateway, client, wanted.speech, _Events(wanted, request_id(request.scope)))


@_http.get("/voices/", include_in_schema=False)  # older clients
@_http.get("/voices", summary="Voices, a page at a time; all in a list for versions before 2024-11-13")
async def voices(
    request: Request,
    client: Annotated[Client, Depends(authorize)],
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 10,
    starting_after: str | None = None,
    ending_before: str | None = None,
    q: str = "",
    is_owner: bool | None = None,
    cartesia_version: Annotated[str, Header()] = _PAGES_SINCE,
) -> dict[str, Any] | list[dict[str, Any]]:
    entries = [entry for entry in _entries(request, client) if is_owner in (None, entry["is_owner"])]
    if cartesia_version < _PAGES_SINCE:
        return entries
    return voices_page(entries, limit, starting_after, ending_before, q)


@_http.get("/voices/{voice_id}", summary="A voice", responses={404: _PROBLEMS[404]})
async def voice(request: Request, voice_id: str, client: Annotated[Client, Depends(authorize)]) -> dict[str, Any]:
    aliases = dict(get_gateway(request).settings.server.voices.voice_aliases)
    entries = {entry["id"]: entry for entry in _entries(request, client)}
    found = entries.get(voice_id) or entries.get(aliases.get(voice_id, ""))
    if found is None:
        raise VoiceNotFound(f"there is no such voice; the voices are {', '.join(entries)}", field="id")
    return found


@_http.post("/voices/clone", summary="Create a voice from a recording", responses=_PROBLEMS)
async def clone(request: Request, client: Owner) -> dict[str, Any]:
    gateway = get_gateway(request)
    gateway.availability.check()
    async with upload_place(request, gateway.voice_making, client.tenant):
        form = await read_voice_form(request, CLONE_FIELDS, ("clip",), ignores_others=True)
        made = await make_voice(gateway, client, parse_clone(form.fields, form.file("clip")))
    return metadata(added_voice(made.record))


@_http.patch("/voices/{voice_id}", summary="Rename or describe a voice", responses={404: _PROBLEMS[404]})
async def change_voice(request: Request, voice_id: str, client: Owner) -> dict[str, Any]:
    body = await read_bounded(request, _MAX_CHANGE_BYTES)
    fields, gateway = load_object(body, len(body)), get_gateway(request)
    old = await gateway.voices.find(voice_id, client.tenant)
    name, description = fields.optional_text("name"), fields.optional_text("description")
    labels = VoiceLabels(
        old.name if name is None else name, old.description if description is None else description, old.language
    )
    changed = await gateway.voices.relabel(old.voice_id, labels, client.tenant)
    return voice_entry(added_voice(changed), gateway.catalogue.created)


@_http.delete(
    "/voices/{voice_id}", summary="Delete a voice", status_code=HTTPStatus.NO_CONTENT, responses={404: _PROBLEMS[404]}
)
async def delete_voice(request: Request, voice_id: str, client: Owner) -> None:
    await get_gateway(request).voices.delete(voice_id, client.tenant)


@_http.post("/access-token", summary="A short-lived token")
async def access_token(
    request: Request, response: Response, client: Annotated[Client, Depends(authorize)]
) -> dict[str, str]:
    """Return a token for speech, whatever grants are asked for."""
    ttl_s = read_ttl_s(await read_bounded(request, _MAX_CHANGE_BYTES), "expires_in", _DEFAULT_TTL_S)
    return {"token": make_plain_token(get_gateway(request), client, ttl_s, response)}


def _entries(request: Request, client: Client) -> list[dict[str, Any]]:
    gateway = get_gateway(request)
    catalogue = gateway.catalogue
    known = catalogue.voices(client.voices, gateway.voices.added(client.tenant))["voices"]
    return [voice_entry(about, catalogue.created) for about in known]


router.include_router(_http)
router.include_router(cartesia_dictionaries.router)
