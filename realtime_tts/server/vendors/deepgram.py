"""Routes of Deepgram's interface."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response, WebSocket
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from realtime_tts.dialects.deepgram.errors import deepgram_problem
from realtime_tts.dialects.deepgram.requests import parse_speech
from realtime_tts.dialects.deepgram.stream import SUBPROTOCOLS, DeepgramDialect, model_uuid
from realtime_tts.errors import RealtimeTTSError
from realtime_tts.server.admission.client import Client
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http.browser_tokens import make_plain_token, read_ttl_s
from realtime_tts.server.http.problems import answers_in_with_id, problem_response
from realtime_tts.server.http.request_ids import request_id
from realtime_tts.server.http.routes import NEEDS_KEY, authorize, get_gateway, read_bounded
from realtime_tts.server.http.speech_response import read_speech_body, speech_response
from realtime_tts.server.stream.websocket import serve_stream

_DEFAULT_TTL_S = 30  # lifetime of a token, the same as Deepgram's
_MAX_GRANT_BYTES = 16 * 1024


class DeepgramError(BaseModel):
    """Body of every error response of this dialect."""

    err_code: str
    err_msg: str
    request_id: str


router = APIRouter()
_http = APIRouter(
    tags=["Deepgram"],
    dependencies=[answers_in_with_id(deepgram_problem), *NEEDS_KEY],
    responses={
        status: {"model": DeepgramError, "description": description}
        for status, description in {
            400: "an invalid request",
            401: "the API key is missing or not active",
            404: "an unknown voice, where `strict_ids` is on",
            413: "too much text",
            429: "a limit of the key is reached",
            503: "overloaded or not ready",
        }.items()
    },
)
_PARAMETERS = ("model", "encoding", "container", "sample_rate", "bit_rate")
_REQUEST: dict[str, Any] = {
    "parameters": [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}} for name in _PARAMETERS
    ],
    "requestBody": {
        "content": {
            "application/json": {
                "schema": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
            }
        }
    },
}


@router.websocket("/v1/speak")
async def socket(websocket: WebSocket) -> None:
    gateway: Gateway = websocket.app.state.gateway
    id_ = request_id(websocket.scope)

    def make_dialect() -> DeepgramDialect:
        dialect = DeepgramDialect(websocket.query_params, id_, gateway.catalogue.ready.model, gateway.adapters.split)
        offered = websocket.scope.get("subprotocols", [])
        dialect.subprotocol = next((name for name in offered if name in SUBPROTOCOLS), dialect.subprotocol)
        return dialect

    def refuse(error: RealtimeTTSError) -> JSONResponse:
        answer = problem_response(error, lambda told: deepgram_problem(told, id_))
        # WebSocket clients see only the headers of a refusal.
        answer.headers["dg-error"] = error.message.encode("ascii", "replace").decode()
        answer.headers["dg-request-id"] = id_
        return answer

    await serve_stream(websocket, gateway, make_dialect, refuse=refuse, headers={"dg-request-id": id_})


@_http.post(
    "/v1/speak", summary="Speak a text; the answer is the audio", response_class=Response, openapi_extra=_REQUEST
)
async def speak(request: Request, client: Annotated[Client, Depends(authorize)]) -> Response:
    gateway = get_gateway(request)
    wanted = parse_speech(
        request.query_params, await read_speech_body(request, gateway, client), gateway.adapters.split
    )
    answer = await speech_response(gateway, client, wanted)
    answer.headers["dg-request-id"] = request_id(request.scope)
    answer.headers["dg-model-name"] = gateway.catalogue.ready.model.encode("ascii", "replace").decode()
    answer.headers["dg-model-uuid"] = model_uuid(gateway.catalogue.ready.model)
    answer.headers["dg-char-count"] = str(len(wanted.text))
    return answer


@_http.post("/v1/auth/grant", summary="A short-lived token")
async def grant(request: Request, response: Response, client: Annotated[Client, Depends(authorize)]) -> dict[str, Any]:
    """Return a token and its lifetime in seconds."""
    ttl_s = read_ttl_s(await read_bounded(request, _MAX_GRANT_BYTES), "ttl_seconds", _DEFAULT_TTL_S)
    return {"access_token": make_plain_token(get_gateway(request), client, ttl_s, response), "expires_in": ttl_s}


router.include_router(_http)
