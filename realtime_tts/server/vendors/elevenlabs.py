"""ElevenLabs' addresses."""

from __future__ import annotations

from fastapi import APIRouter, WebSocket
from fastapi.responses import JSONResponse

from realtime_tts.dialects.elevenlabs.errors import error_body
from realtime_tts.dialects.elevenlabs.stream import ElevenLabsDialect
from realtime_tts.errors import RealtimeTTSError
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.problems import problem_response
from realtime_tts.server.websocket import serve_stream

router = APIRouter()


def refusal_response(error: RealtimeTTSError) -> JSONResponse:
    """An error of ours as ElevenLabs writes them."""
    retry_after = problem_response(error).headers.get("retry-after")
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return JSONResponse(error_body(error), error.http_status, headers)


@router.websocket("/v1/text-to-speech/{voice}/multi-stream-input")
async def multi_stream_input(websocket: WebSocket, voice: str) -> None:
    await _serve(websocket, voice, multi=True)


@router.websocket("/v1/text-to-speech/{voice}/stream-input")
async def stream_input(websocket: WebSocket, voice: str) -> None:
    await _serve(websocket, voice, multi=False)


async def _serve(websocket: WebSocket, voice: str, multi: bool) -> None:
    gateway: Gateway = websocket.app.state.gateway

    def make_dialect() -> ElevenLabsDialect:
        gateway.check_model(websocket.query_params.get("model_id"))
        return ElevenLabsDialect(voice, websocket.query_params, multi)

    await serve_stream(websocket, gateway, make_dialect, refuse=refusal_response)
