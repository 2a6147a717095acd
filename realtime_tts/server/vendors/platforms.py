"""Routes of voice platforms: LiveKit Inference, Vapi's custom voices, and jambonz' custom speech."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response, WebSocket

from realtime_tts.dialects import jambonz, livekit, vapi
from realtime_tts.dialects.base import KeyPlaces
from realtime_tts.server.http.problems import request_id
from realtime_tts.server.http.routes import NEEDS_KEY, AnyClient, AnyGateway, problems, takes
from realtime_tts.server.http.speech_response import read_speech_body, speech_response
from realtime_tts.server.stream.websocket import serve_stream
from realtime_tts.server.vendors.router import DialectRouter

# ---- LiveKit ---------------------------------------------------------------------------------------------------------

livekit_router = DialectRouter(
    livekit.inference_problem, KeyPlaces()
)  # a key is the token's issuer: `tokens.issuer_of`


@livekit_router.websocket("/v1/tts")
async def livekit_socket(websocket: WebSocket, gateway: AnyGateway) -> None:
    id_ = request_id(websocket.scope)
    await serve_stream(websocket, gateway, lambda: livekit.InferenceDialect(id_))


# ---- Vapi ------------------------------------------------------------------------------------------------------------

vapi_router = DialectRouter(vapi.vapi_problem, vapi.KEYS)
_vapi_http = APIRouter(tags=["Vapi"], dependencies=NEEDS_KEY, responses=problems(model=vapi.VapiError))


@_vapi_http.post(
    "/v1/vapi",
    name="speak",
    summary="Speak a text; the answer is raw PCM",
    response_class=Response,
    openapi_extra=takes(vapi.VapiBody),
)
async def speak_for_vapi(request: Request, gateway: AnyGateway, client: AnyClient) -> Response:
    wanted = vapi.parse_speech(request.query_params, await read_speech_body(request, gateway, client))
    return await speech_response(gateway, client, wanted)


vapi_router.include_router(_vapi_http)

# ---- jambonz ---------------------------------------------------------------------------------------------------------

jambonz_router = DialectRouter(jambonz.jambonz_problem, KeyPlaces())
_jambonz_http = APIRouter(tags=["jambonz"], dependencies=NEEDS_KEY, responses=problems(model=jambonz.JambonzError))


@jambonz_router.websocket("/v1/jambonz")
async def jambonz_socket(websocket: WebSocket, gateway: AnyGateway) -> None:
    await serve_stream(websocket, gateway, lambda: jambonz.JambonzDialect(websocket.query_params))


@_jambonz_http.post(
    "/v1/jambonz",
    name="speak",
    summary="Speak a text; the answer is raw PCM",
    response_class=Response,
    openapi_extra=takes(jambonz.JambonzBody),
)
async def speak_for_jambonz(request: Request, gateway: AnyGateway, client: AnyClient) -> Response:
    wanted = jambonz.parse_speech(request.query_params, await read_speech_body(request, gateway, client))
    return await speech_response(gateway, client, wanted)


jambonz_router.include_router(_jambonz_http)
