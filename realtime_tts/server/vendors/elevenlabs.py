"""ElevenLabs' addresses."""

from __future__ import annotations

from fastapi import APIRouter, WebSocket

from realtime_tts.dialects.elevenlabs.errors import elevenlabs_problem
from realtime_tts.dialects.elevenlabs.stream import ElevenLabsDialect
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.problems import problem_response
from realtime_tts.server.websocket import serve_stream

router = APIRouter()


@router.websocket("/v1/text-to-speech/{voice}/multi-stream-input")
async def multi_stream_input(websocket: WebSocket, voice: str) -> None:
    await _serve(websocket, voice, multi=True)


@router.websocket("/v1/text-to-speech/{voice}/stream-input")
async def stream_input(websocket: WebSocket, voice: str) -> None:
    await _serve(websocket, voice, multi=False)


async def _serve(websocket: WebSocket, voice: str, multi: bool) -> None:
    gateway: Gateway = websocket.app.state.gateway

    def make_dialect() -> ElevenLabsDialect:
        dialect = ElevenLabsDialect(voice, websocket.query_params, multi)
        gateway.check_model(websocket.query_params.get("model_id"))
        return dialect

    await serve_stream(
        websocket, gateway, make_dialect, refuse=lambda error: problem_response(error, elevenlabs_problem)
    )
