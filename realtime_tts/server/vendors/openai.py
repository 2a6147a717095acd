"""Routes of OpenAI's interface: `POST /v1/audio/speech`, models, and answers to unsupported requests."""

from __future__ import annotations

import contextlib
import dataclasses
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response, WebSocket

from realtime_tts import __version__
from realtime_tts.dialects import openai
from realtime_tts.dialects.speech_request import SpeechRequest
from realtime_tts.dialects.voice_request import VoiceRequest
from realtime_tts.errors import ModelNotFound, TextTooLong
from realtime_tts.server.admission.client import Client
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http.routes import NEEDS_KEY, AnyClient, AnyGateway, JsonObject, is_form, problems
from realtime_tts.server.http.speech_response import (
    max_speech_body_bytes,
    read_recordings_body,
    read_speech_body,
    speech_response,
)
from realtime_tts.server.vendors import openai_voices
from realtime_tts.server.vendors.router import DialectRouter
from realtime_tts.server.voices.cloning import make_voice
from realtime_tts.server.voices.forms import CONSENT_FIELDS, FormShape, VoiceForm, upload_place

_SPEECH_FIELDS = [name for name in openai.BODY_SCHEMA["properties"] if name != "lexicon"]
_VOICE_FIELDS = ("prompt_text", *CONSENT_FIELDS)
_FORM = FormShape((*_SPEECH_FIELDS, *_VOICE_FIELDS), ("reference", "prompt"))


_AUDIO: dict[str, Any] = {
    "description": "the speech, as it is made; or `text/event-stream`. `realtime-tts-voice` names the voice, "
    "`realtime-tts-notice` the ignored parts of the request",
    "content": {
        content_type: {"schema": {"type": "string", "format": "binary"}}
        for content_type in [*(fmt.content_type for fmt in openai.FORMATS.values()), openai.EVENT_STREAM]
    },
}

router = DialectRouter(openai.problem, openai.KEYS)
_http = APIRouter(prefix="/v1", tags=["OpenAI"], dependencies=NEEDS_KEY, responses=problems(model=openai.OpenAIError))


@_http.post(
    "/audio/speech",
    summary="Speak a text",
    response_class=Response,
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": openai.BODY_SCHEMA}}}},
    responses={200: _AUDIO},
)
async def create_speech(request: Request, gateway: AnyGateway, client: AnyClient) -> Response:
    return await speech_response(gateway, client, await read_request(request, gateway, client))


async def read_request(request: Request, gateway: Gateway, client: Client) -> SpeechRequest:
    """Read a request, and make the voice of recordings that it contains.

    Raises:
        RealtimeTTSError: the body is invalid or too large, or the request or its voice is refused.
    """
    is_large = is_form(request) or int(request.headers.get("content-length", 0)) > max_speech_body_bytes(gateway)
    async with contextlib.AsyncExitStack() as upload:
        if is_large:  # with recordings, which need an upload slot
            client.check_owner()
            gateway.admission.check(client)
            await upload.enter_async_context(upload_place(request, gateway.voice_making, client.tenant))
        if is_form(request):
            max_chars = gateway.settings.server.limits.max_text_chars
            wanted = _parse_form(await _FORM.read(request, max_chars))
        elif is_large:
            wanted = openai.parse_request(await read_recordings_body(request, gateway))
        else:
            try:
                body = await read_speech_body(request, gateway, client)
            except TextTooLong as error:  # the body came in chunks, without a length
                message = f"{error.message}; a body with recordings needs a Content-Length header"
                raise TextTooLong(message, field="text") from None
            wanted = openai.parse_request(body)
        if wanted.own_voice is None:
            return wanted
        record, _ = await make_voice(gateway, client, wanted.own_voice)
        return dataclasses.replace(wanted, voice=record.voice_id)


def _parse_form(form: VoiceForm) -> SpeechRequest:
    fields = {name: form.field(name) for name in _VOICE_FIELDS}
    own_voice = VoiceRequest.of_form(fields, form.files_of("reference"), form.file("prompt"), openai.INLINE_TTL_S)
    return openai.parse_form(form.fields, own_voice)


@_http.get("/models/{model_id:path}", summary="A model by its id")
async def model(model_id: str, gateway: AnyGateway) -> JsonObject:
    """Return the loaded model for any id, unless the setting `strict_ids` is on."""
    if not model_id:
        raise ModelNotFound("a model has a name", field="model")
    gateway.adapter_of(model_id)
    return {"id": model_id, "object": "model", "created": gateway.catalogue.created, "owned_by": "realtime-tts"}


@_http.get("", include_in_schema=False)
@_http.get("/", summary="Identity of the service; some clients request it to open a connection")
async def service() -> JsonObject:
    return {"object": "service", "name": "realtime-tts", "version": __version__}


_NO_REALTIME = (
    "this server has no Realtime API: a voice agent has one (`make agent`, docs/guides/realtime.md); speech is POST "
    "/v1/audio/speech, or text as it is written over the WebSocket in docs/protocol/native.md"
)
_METHODS = ["GET", "POST", "DELETE"]


@_http.api_route("/realtime", methods=_METHODS, include_in_schema=False)
@_http.api_route("/realtime/{rest:path}", methods=_METHODS, include_in_schema=False)
async def no_realtime(rest: str = "") -> None:
    raise HTTPException(HTTPStatus.NOT_FOUND, _NO_REALTIME)


@router.websocket("/v1/realtime")
async def no_realtime_socket(websocket: WebSocket) -> None:
    raise HTTPException(HTTPStatus.NOT_FOUND, _NO_REALTIME)


_http.include_router(openai_voices.router)
router.include_router(_http)
