"""Routes of voice platforms: LiveKit Inference, Vapi's custom voices, and jambonz' custom speech."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fastapi import APIRouter, Request, Response, WebSocket

from realtime_tts.dialects import jambonz, livekit, vapi
from realtime_tts.dialects.base import KeyPlaces
from realtime_tts.dialects.json_input import Body
from realtime_tts.dialects.speech_request import SpeechRequest
from realtime_tts.server.http.problems import request_id
from realtime_tts.server.http.routes import NEEDS_KEY, AnyClient, AnyGateway, problems, takes
from realtime_tts.server.http.speech_response import TextBody, speech_response
from realtime_tts.server.stream.websocket import serve_stream
from realtime_tts.server.vendors.router import DialectRouter


def _speech_route(
    tag: str, path: str, problem: type, body: type[Body], parse: Callable[[Mapping[str, str], bytes], SpeechRequest]
) -> APIRouter:
    """Return the route of a platform that sends a query and a body with a whole text, and takes raw PCM.

    Args:
        problem, body: types of an error's body and of a request's, for the documentation.
    """
    route = APIRouter(tags=[tag], dependencies=NEEDS_KEY, responses=problems(model=problem))

    @route.post(path, summary="Speak a text; the answer is raw PCM", response_class=Response, openapi_extra=takes(body))
    async def speak(request: Request, gateway: AnyGateway, client: AnyClient, text: TextBody) -> Response:
        return await speech_response(gateway, client, parse(request.query_params, text))

    return route


# ---- LiveKit ---------------------------------------------------------------------------------------------------------

# A key is the token's issuer: `tokens.issuer_of`.
livekit_router = DialectRouter(livekit.inference_problem, KeyPlaces())


@livekit_router.websocket("/v1/tts")
async def livekit_socket(websocket: WebSocket, gateway: AnyGateway) -> None:
    id_ = request_id(websocket.scope)
    await serve_stream(websocket, gateway, lambda: livekit.InferenceDialect(id_))


# ---- Vapi ------------------------------------------------------------------------------------------------------------

vapi_router = DialectRouter(vapi.vapi_problem, vapi.KEYS)
vapi_router.include_router(_speech_route("Vapi", "/v1/vapi", vapi.VapiError, vapi.VapiBody, vapi.parse_speech))

# ---- jambonz ---------------------------------------------------------------------------------------------------------

jambonz_router = DialectRouter(jambonz.jambonz_problem, KeyPlaces())


@jambonz_router.websocket("/v1/jambonz")
async def jambonz_socket(websocket: WebSocket, gateway: AnyGateway) -> None:
    await serve_stream(websocket, gateway, lambda: jambonz.JambonzDialect(websocket.query_params))


jambonz_router.include_router(
    _speech_route("jambonz", "/v1/jambonz", jambonz.JambonzError, jambonz.JambonzBody, jambonz.parse_speech)
)
