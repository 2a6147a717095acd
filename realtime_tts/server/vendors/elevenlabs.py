"""Routes of ElevenLabs' interface."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response, WebSocket

from realtime_tts.dialects.elevenlabs.errors import elevenlabs_problem
from realtime_tts.dialects.elevenlabs.speech import TimedLines, TimedObject, parse_request
from realtime_tts.dialects.elevenlabs.stream import ElevenLabsDialect, read_key, refusal
from realtime_tts.dialects.speech_request import SpeechRequest
from realtime_tts.errors import RealtimeTTSError
from realtime_tts.server.admission.client import Caller
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http.problems import problem_response, speaks
from realtime_tts.server.http.request_ids import request_id
from realtime_tts.server.http.routes import NEEDS_KEY, authorize, get_gateway
from realtime_tts.server.http.speech import Chunk, Total
from realtime_tts.server.http.speech_response import Rendering, read_speech_body, speech_response
from realtime_tts.server.stream.first_message_key import with_late_key
from realtime_tts.server.stream.websocket import serve_stream
from realtime_tts.server.vendors import elevenlabs_account, elevenlabs_dictionaries, elevenlabs_voices

KnownCaller = Annotated[Caller, Depends(authorize)]


_IN_THEIR_WORDS = (speaks(elevenlabs_problem), *NEEDS_KEY)
sockets = APIRouter(prefix="/v1/text-to-speech/{voice}")
speech = APIRouter(prefix="/v1/text-to-speech/{voice}", tags=["ElevenLabs"], dependencies=_IN_THEIR_WORDS)


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
    authenticator = gateway.authenticator
    try:
        authenticator.check_origin(websocket.headers)
    except RealtimeTTSError:
        return websocket  # refused at the handshake
    if not authenticator.lacks_key(websocket.headers, websocket.query_params):
        return websocket
    timeout_s = gateway.settings.server.handshake_timeout_s
    max_bytes = gateway.settings.server.max_message_bytes
    return await with_late_key(websocket, timeout_s, lambda frame: read_key(frame, max_bytes), refusal)


# ---- speech over plain HTTP ------------------------------------------------------------------------------------------


class _Lines(TimedLines):
    wants_words = True

    def chunk(self, chunk: Chunk) -> bytes:
        return self.line(chunk.data, chunk.words)

    def end(self, total: Total) -> bytes:
        return self.last(total.audio_ms)


class _Object(TimedObject):
    wants_words = True

    def chunk(self, chunk: Chunk) -> bytes:
        return self.piece(chunk.data, chunk.words)

    def end(self, total: Total) -> bytes:
        return self.last(total.audio_ms)

    def error(self, error: RealtimeTTSError) -> bytes:
        return b""


@speech.post("", summary="Speak a text", response_class=Response)
@speech.post("/stream", summary="Speak a text", response_class=Response)
async def speak(request: Request, voice: str, caller: KnownCaller) -> Response:
    return await _answer(request, caller, await _wanted(request, voice, caller))


@speech.post("/with-timestamps", summary="Speech with times of characters")
async def speak_with_times(request: Request, voice: str, caller: KnownCaller) -> Response:
    wanted = await _wanted(request, voice, caller)
    return await _answer(request, caller, wanted, _Object(wanted.text))


@speech.post("/stream/with-timestamps", summary="Speech with times of characters, as it is made")
async def stream_with_times(request: Request, voice: str, caller: KnownCaller) -> Response:
    wanted = await _wanted(request, voice, caller)
    return await _answer(request, caller, wanted, _Lines(wanted.text))


async def _wanted(request: Request, voice: str, caller: Caller) -> SpeechRequest:
    return parse_request(await read_speech_body(request, get_gateway(request), caller), voice, request.query_params)


async def _answer(
    request: Request, caller: Caller, wanted: SpeechRequest, rendering: Rendering | None = None
) -> Response:
    answer = await speech_response(get_gateway(request), caller, wanted, rendering)
    answer.headers["request-id"] = request_id(request.scope)
    return answer


router = APIRouter()
for part in (sockets, speech, elevenlabs_account.router, elevenlabs_dictionaries.router, elevenlabs_voices.catalogue):
    router.include_router(part)
