"""Routes of Cartesia's interface."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response, WebSocket
from pydantic import Field

from realtime_tts.dialects.cartesia import events
from realtime_tts.dialects.cartesia.events import CartesiaError, cartesia_problem
from realtime_tts.dialects.cartesia.requests import KEYS, SpeechBody
from realtime_tts.dialects.cartesia.stream import CartesiaDialect
from realtime_tts.dialects.json_input import Body, Integer
from realtime_tts.dialects.speech_request import Chunk, Rendering, Total
from realtime_tts.errors import RealtimeTTSError
from realtime_tts.server.http.browser_tokens import make_plain_token
from realtime_tts.server.http.problems import request_id
from realtime_tts.server.http.routes import NEEDS_KEY, AnyClient, AnyGateway, problems, read_json, takes
from realtime_tts.server.http.speech_response import TextBody, speech_response
from realtime_tts.server.stream.websocket import serve_stream
from realtime_tts.server.vendors import cartesia_dictionaries, cartesia_voices
from realtime_tts.server.vendors.router import DialectRouter

_EVENT_STREAM = "text/event-stream"


router = DialectRouter(cartesia_problem, KEYS)
_http = APIRouter(tags=["Cartesia"], dependencies=NEEDS_KEY, responses=problems(model=CartesiaError))
_BODY = takes(SpeechBody)


class _TokenBody(Body):
    expires_in: Integer = Field(default=60, ge=1)  # s


class _Events(Rendering):
    """Server-sent events of one speech."""

    content_type = _EVENT_STREAM

    def __init__(self, wanted: SpeechBody, id_: str) -> None:
        self.wants_words = wanted.add_timestamps
        self._context_id, self._request_id = wanted.context_id, id_
        self._times = events.WordTimes()

    def chunk(self, chunk: Chunk) -> bytes:
        placed = self._times.apart(chunk.words)
        words = _event("timestamps", events.timestamps(self._context_id, placed)) if placed else b""
        return words + (_event("chunk", events.chunk(self._context_id, chunk.data)) if chunk.data else b"")

    def end(self, total: Total) -> bytes:
        return _event("done", events.done(self._context_id))

    def error(self, error: RealtimeTTSError) -> bytes:
        told = events.error(self._context_id, error.code, error.http_status, error.message, self._request_id)
        return _event("error", told)


def _event(kind: str, data: str) -> bytes:
    return f"event: {kind}\ndata: {data}\n\n".encode()


@router.websocket("/tts/websocket")
async def socket(websocket: WebSocket, gateway: AnyGateway) -> None:
    id_ = request_id(websocket.scope)
    await serve_stream(websocket, gateway, lambda: CartesiaDialect(id_, gateway.adapter_of))


@_http.post("/tts/bytes", summary="Speak a text; the answer is the audio", response_class=Response, openapi_extra=_BODY)
async def speak_bytes(gateway: AnyGateway, client: AnyClient, text: TextBody) -> Response:
    return await speech_response(gateway, client, SpeechBody.parse(text).speech())


@_http.post(
    "/tts/sse",
    summary="Speak a text; the answer is events with audio and words",
    response_class=Response,
    openapi_extra=_BODY,
)
async def speak_events(request: Request, gateway: AnyGateway, client: AnyClient, text: TextBody) -> Response:
    wanted = SpeechBody.parse(text)
    return await speech_response(gateway, client, wanted.speech(_Events(wanted, request_id(request.scope))))


@_http.post("/access-token", summary="A short-lived token", openapi_extra=takes(_TokenBody))
async def access_token(request: Request, response: Response, gateway: AnyGateway, client: AnyClient) -> dict[str, str]:
    """Return a token for speech, whatever grants are asked for."""
    wanted = await read_json(request, _TokenBody)
    return {"token": make_plain_token(gateway, client, wanted.expires_in, response)}


for part in (cartesia_voices.router, cartesia_dictionaries.router):
    _http.include_router(part)
router.include_router(_http)
