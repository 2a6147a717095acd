"""Routes of Deepgram's interface."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response, WebSocket
from pydantic import Field

from realtime_tts.dialects.deepgram.flux import FluxDialect
from realtime_tts.dialects.deepgram.requests import KEYS, DeepgramError, SpeechBody, deepgram_problem, parse_speech
from realtime_tts.dialects.deepgram.stream import DeepgramDialect, model_uuid
from realtime_tts.dialects.json_input import Body, Integer
from realtime_tts.errors import RealtimeTTSError
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http.browser_tokens import make_plain_token
from realtime_tts.server.http.problems import request_id
from realtime_tts.server.http.routes import NEEDS_KEY, AnyClient, AnyGateway, JsonObject, problems, read_json, takes
from realtime_tts.server.http.speech_response import TextBody, speech_response
from realtime_tts.server.stream.websocket import serve_stream
from realtime_tts.server.vendors.router import DialectRouter


def _problem_headers(error: RealtimeTTSError, request_id: str) -> dict[str, str]:
    """Return the headers of a refusal, the only part of it that WebSocket clients see."""
    # A message may name voices, whose names have any characters: h11 refuses a header value with a line break.
    message = "".join(char if " " <= char <= "~" else "?" for char in error.message)
    return {"dg-error": message.strip(), "dg-request-id": request_id}


class _TokenBody(Body):
    ttl_seconds: Integer = Field(default=30, ge=1)


router = DialectRouter(deepgram_problem, KEYS, _problem_headers)
_http = APIRouter(tags=["Deepgram"], dependencies=NEEDS_KEY, responses=problems(model=DeepgramError))
_PARAMETERS = ("model", "encoding", "container", "sample_rate", "bit_rate")
_REQUEST: JsonObject = {
    "parameters": [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}} for name in _PARAMETERS
    ],
    **takes(SpeechBody),
}


@router.websocket("/v1/speak")
async def socket(websocket: WebSocket, gateway: AnyGateway) -> None:
    await _serve(websocket, gateway, DeepgramDialect)


@router.websocket("/v2/speak")
async def flux_socket(websocket: WebSocket, gateway: AnyGateway) -> None:
    await _serve(websocket, gateway, FluxDialect)


async def _serve(websocket: WebSocket, gateway: Gateway, kind: type[DeepgramDialect]) -> None:
    id_ = request_id(websocket.scope)

    def make_dialect() -> DeepgramDialect:
        dialect = kind(websocket.query_params, id_, gateway.catalogue.ready.model, gateway.adapters.split)
        offered = websocket.scope.get("subprotocols", [])
        dialect.subprotocol = next((name for name in offered if name in KEYS.schemes), dialect.subprotocol)
        return dialect

    await serve_stream(websocket, gateway, make_dialect, headers={"dg-request-id": id_})


@_http.post(
    "/v2/speak", summary="Speak a text; the answer is the audio", response_class=Response, openapi_extra=_REQUEST
)
@_http.post(
    "/v1/speak", summary="Speak a text; the answer is the audio", response_class=Response, openapi_extra=_REQUEST
)
async def speak(request: Request, gateway: AnyGateway, client: AnyClient, text: TextBody) -> Response:
    wanted = parse_speech(request.query_params, text, gateway.adapters.split)
    answer = await speech_response(gateway, client, wanted)
    answer.headers["dg-request-id"] = request_id(request.scope)
    answer.headers["dg-model-name"] = gateway.catalogue.ready.model.encode("ascii", "replace").decode()
    answer.headers["dg-model-uuid"] = model_uuid(gateway.catalogue.ready.model)
    answer.headers["dg-char-count"] = str(len(wanted.text))
    return answer


@_http.post("/v1/auth/grant", summary="A short-lived token", openapi_extra=takes(_TokenBody))
async def grant(request: Request, response: Response, gateway: AnyGateway, client: AnyClient) -> JsonObject:
    """Return a token and its lifetime in seconds."""
    ttl_s = (await read_json(request, _TokenBody)).ttl_seconds
    return {"access_token": make_plain_token(gateway, client, ttl_s, response), "expires_in": ttl_s}


router.include_router(_http)
