"""Routes of jambonz's interface for custom speech."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response, WebSocket

from realtime_tts.dialects.base import KeyPlaces
from realtime_tts.dialects.jambonz import (
    JambonzBody,
    JambonzDialect,
    JambonzError,
    RawRendering,
    jambonz_problem,
    parse_speech,
)
from realtime_tts.server.http.routes import NEEDS_KEY, AnyClient, AnyGateway, problems, takes
from realtime_tts.server.http.speech_response import read_speech_body, speech_response
from realtime_tts.server.stream.websocket import serve_stream
from realtime_tts.server.vendors.router import DialectRouter

router = DialectRouter(jambonz_problem, KeyPlaces())
_http = APIRouter(tags=["jambonz"], dependencies=NEEDS_KEY, responses=problems(model=JambonzError))


@router.websocket("/v1/jambonz")
async def socket(websocket: WebSocket, gateway: AnyGateway) -> None:
    await serve_stream(websocket, gateway, lambda: JambonzDialect(websocket.query_params))


@_http.post(
    "/v1/jambonz",
    summary="Speak a text; the answer is raw PCM",
    response_class=Response,
    openapi_extra=takes(JambonzBody),
)
async def speak(request: Request, gateway: AnyGateway, client: AnyClient) -> Response:
    wanted = parse_speech(request.query_params, await read_speech_body(request, gateway, client))
    return await speech_response(gateway, client, wanted, RawRendering(wanted.audio.sample_rate))


router.include_router(_http)
