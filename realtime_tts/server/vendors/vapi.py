"""Route of Vapi's interface for custom voices."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from realtime_tts.dialects.vapi import KEYS, VapiBody, VapiError, parse_speech, vapi_problem
from realtime_tts.server.http.routes import NEEDS_KEY, AnyClient, AnyGateway, problems, takes
from realtime_tts.server.http.speech_response import read_speech_body, speech_response
from realtime_tts.server.vendors.router import DialectRouter

router = DialectRouter(vapi_problem, KEYS)
_http = APIRouter(tags=["Vapi"], dependencies=NEEDS_KEY, responses=problems(model=VapiError))


@_http.post(
    "/v1/vapi", summary="Speak a text; the answer is raw PCM", response_class=Response, openapi_extra=takes(VapiBody)
)
async def speak(request: Request, gateway: AnyGateway, client: AnyClient) -> Response:
    wanted = parse_speech(request.query_params, await read_speech_body(request, gateway, client))
    return await speech_response(gateway, client, wanted)


router.include_router(_http)
