"""Route of LiveKit Inference's interface."""

from __future__ import annotations

from fastapi import WebSocket

from realtime_tts.dialects.base import KeyPlaces
from realtime_tts.dialects.livekit import InferenceDialect, inference_problem
from realtime_tts.server.http.problems import request_id
from realtime_tts.server.http.routes import AnyGateway
from realtime_tts.server.stream.websocket import serve_stream
from realtime_tts.server.vendors.router import DialectRouter

router = DialectRouter(inference_problem, KeyPlaces())  # a key is the issuer of the token: `tokens.issuer_of`


@router.websocket("/v1/tts")
async def socket(websocket: WebSocket, gateway: AnyGateway) -> None:
    id_ = request_id(websocket.scope)
    await serve_stream(websocket, gateway, lambda: InferenceDialect(id_))
