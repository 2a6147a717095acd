"""Cartesia's addresses."""

from __future__ import annotations

from fastapi import APIRouter, WebSocket
from fastapi.responses import JSONResponse

from realtime_tts.dialects import cartesia
from realtime_tts.errors import RealtimeTTSError
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.problems import problem_response
from realtime_tts.server.request_ids import request_id
from realtime_tts.server.websocket import serve_stream

router = APIRouter()


@router.websocket("/tts/websocket")
async def socket(websocket: WebSocket) -> None:
    gateway: Gateway = websocket.app.state.gateway

    def refuse(error: RealtimeTTSError) -> JSONResponse:
        return problem_response(error, cartesia.problem)

    def make_dialect() -> cartesia.CartesiaDialect:
        return cartesia.CartesiaDialect(request_id(websocket.scope), gateway.check_model)

    await serve_stream(websocket, gateway, make_dialect, refuse=refuse)
