"""Deepgram's addresses."""

from __future__ import annotations

from fastapi import APIRouter, WebSocket
from fastapi.responses import JSONResponse

from realtime_tts.dialects import deepgram
from realtime_tts.errors import RealtimeTTSError
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.problems import problem_response
from realtime_tts.server.request_ids import request_id
from realtime_tts.server.websocket import serve_stream

router = APIRouter()


@router.websocket("/v1/speak")
async def socket(websocket: WebSocket) -> None:
    gateway: Gateway = websocket.app.state.gateway
    id_ = request_id(websocket.scope)

    def make_dialect() -> deepgram.DeepgramDialect:
        return deepgram.DeepgramDialect(websocket.query_params, id_, gateway.catalogue.ready.model)

    await serve_stream(websocket, gateway, make_dialect, refuse=refusal, headers={"dg-request-id": id_})


def refusal(error: RealtimeTTSError) -> JSONResponse:
    """An error of ours as Deepgram writes them; clients of its sockets see no more of it than the headers."""
    answer = problem_response(error, deepgram.problem)
    answer.headers["dg-error"] = error.message.encode("ascii", "replace").decode()
    return answer
