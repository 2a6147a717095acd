"""Routes of ElevenLabs' interface."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response, WebSocket

from realtime_tts.dialects.elevenlabs.errors import elevenlabs_problem
from realtime_tts.dialects.elevenlabs.speech import TimedLines, TimedObject, parse_request
from realtime_tts.dialects.elevenlabs.stream import ElevenLabsDialect, read_key, refusal
from realtime_tts.dialects.speech_request import Rendering, SpeechRequest
from realtime_tts.errors import RealtimeTTSError
from realtime_tts.server.admission.client import Client
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http.problems import answers_in, problem_response
from realtime_tts.server.http.request_ids import request_id
from realtime_tts.server.http.routes import NEEDS_KEY, authorize, get_gateway
from realtime_tts.server.http.speech_response import read_speech_body, speech_response
from realtime_tts.server.stream.first_message_key import with_key_of_first_message
from realtime_tts.server.stream.websocket import serve_stream
from realtime_tts.server.vendors import elevenlabs_account, elevenlabs_dictionaries, elevenlabs_voices

KnownClient = Annotated[Client, Depends(authorize)]


_DEPENDENCIES = (answers_in(elevenlabs_problem), *NEEDS_KEY)
sockets = APIRouter(prefix="/v1/text-to-speech/{voice}")
speech = APIRouter(prefix="/v1/text-to-speech/{voice}", tags=["ElevenLabs"], dependencies=_DEPENDENCIES)


# ---- WebSockets ------------------------------------------------------------------------------------------------------


@sockets.websocket("/multi-stream-input")
async def multi_stream_input(websocket: WebSocket, voice: str) -> None:
    await _serve(websocket, voice, multi=True)


@sockets.websocket("/stream-input")
async def stream_input(websocket: WebSocket, voice: str) -> None:
    await _serve(websocket, voice, multi=False)


async def _serve(websocket: WebSocket, voice: str, multi: bool) -> None:
    gateway: Gateway = websocket.app.state.gateway

    def make_dialect() -> ElevenLabsDialect:
        adapter = gateway.adapter_of(websocket.query_params.get("model_id"))
        return ElevenLabsDialect(voice, websocket.query_params, multi, adapter)

    socket = await _with_key(websocket, gateway)
    if socket is not None:
        await serve_stream(
            socket, gateway, make_dialect, refuse=lambda error: problem_response(error, elevenlabs_problem)
        )


async def _with_key(websocket: WebSocket, gateway: Gateway) -> WebSocket | None:
    """Return the socket, with the key of its first message if the handshake has none; None if it was closed."""
    authenticator = gateway.admission.authenticator
    try:
        authenticator.check_origin(websocket.headers)
    except RealtimeTTSError:
        return websocket  # refused at the handshake
    if not authenticator.lacks_key(websocket.headers, websocket.query_params):
        return websocket
    timeout_s = gateway.settings.server.timeouts.handshake_timeout_s
    max_bytes = gateway.settings.server.limits.max_message_bytes
    return await with_key_of_first_message(websocket, timeout_s, lambda frame: read_key(frame, max_bytes), refusal)


# ---- speech over plain HTTP ------------------------------------------------------------------------------------------


@speech.post("", summary="Speak a text", response_class=Response)
@speech.post("/stream", summary="Speak a text", response_class=Response)
async def speak(request: Request, voice: str, client: KnownClient) -> Response:
    return await _answer(request, client, await _wanted(request, voice, client))


@speech.post("/with-timestamps", summary="Speech with times of characters")
async def speak_with_times(request: Request, voice: str, client: KnownClient) -> Response:
    wanted = await _wanted(request, voice, client)
    return await _answer(request, client, wanted, TimedObject(wanted.text))


@speech.post("/stream/with-timestamps", summary="Speech with times of characters, as it is made")
async def stream_with_times(request: Request, voice: str, client: KnownClient) -> Response:
    wanted = await _wanted(request, voice, client)
    return await _answer(request, client, wanted, TimedLines(wanted.text))


async def _wanted(request: Request, voice: str, client: Client) -> SpeechRequest:
    return parse_request(await read_speech_body(request, get_gateway(request), client), voice, request.query_params)


async def _answer(
    request: Request, client: Client, wanted: SpeechRequest, rendering: Rendering | None = None
) -> Response:
    answer = await speech_response(get_gateway(request), client, wanted, rendering)
    answer.headers["request-id"] = request_id(request.scope)
    return answer


router = APIRouter()
for part in (sockets, speech, elevenlabs_account.router, elevenlabs_dictionaries.router, elevenlabs_voices.catalogue):
    router.include_router(part)
