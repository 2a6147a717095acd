"""Routes of ElevenLabs' interface."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response, WebSocket
from starlette.types import Message

from realtime_tts.dialects.elevenlabs.formats import DEFAULT_FORMAT
from realtime_tts.dialects.elevenlabs.requests import KEYS, ElevenLabsError, elevenlabs_problem
from realtime_tts.dialects.elevenlabs.speech import SpeechBody, TimedLines, TimedObject, parse_request
from realtime_tts.dialects.elevenlabs.stream import ElevenLabsDialect, read_key, refusal
from realtime_tts.dialects.speech_request import SpeechRequest
from realtime_tts.errors import InvalidRequest, RealtimeTTSError
from realtime_tts.server.admission.client import Client
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http.browser_tokens import make_plain_token
from realtime_tts.server.http.problems import delay_answer, request_id
from realtime_tts.server.http.routes import NEEDS_KEY, AnyClient, AnyGateway, JsonObject, problems, takes
from realtime_tts.server.http.speech_response import TextBody, speech_response
from realtime_tts.server.stream.websocket import serve_stream
from realtime_tts.server.vendors import elevenlabs_dictionaries, elevenlabs_voices
from realtime_tts.server.vendors.router import DialectRouter
from realtime_tts.session.connection import POLICY_VIOLATION, close_with_message

_TOKEN_TTL_S = 900  # the lifetime of ElevenLabs' tokens
_UNLIMITED_CHARS = 2**31 - 1  # this server has no monthly limit

router = DialectRouter(elevenlabs_problem, KEYS)
_http = APIRouter(dependencies=NEEDS_KEY, responses=problems(model=ElevenLabsError))
speech = APIRouter(prefix="/v1/text-to-speech/{voice}", tags=["ElevenLabs"])


# ---- WebSockets ------------------------------------------------------------------------------------------------------


@router.websocket("/v1/text-to-speech/{voice}/multi-stream-input")
async def multi_stream_input(websocket: WebSocket, voice: str, gateway: AnyGateway) -> None:
    await _serve(websocket, gateway, voice, multi=True)


@router.websocket("/v1/text-to-speech/{voice}/stream-input")
async def stream_input(websocket: WebSocket, voice: str, gateway: AnyGateway) -> None:
    await _serve(websocket, gateway, voice, multi=False)


async def _serve(websocket: WebSocket, gateway: Gateway, voice: str, multi: bool) -> None:
    def make_dialect() -> ElevenLabsDialect:
        adapter = gateway.adapter_of(websocket.query_params.get("model_id"))
        return ElevenLabsDialect(voice, websocket.query_params, multi, adapter)

    socket = await _with_key(websocket, gateway)
    if socket is None:
        return
    try:
        await serve_stream(socket, gateway, make_dialect)
    except RealtimeTTSError as error:
        if socket is websocket:
            raise
        await delay_answer(error, websocket.receive)  # the handshake was accepted, so the refusal is a message
        await websocket.send_text(refusal(error))
        closing = close_with_message(error.message)
        await websocket.close(closing.code, closing.reason)


async def _with_key(websocket: WebSocket, gateway: Gateway) -> WebSocket | None:
    """Return the socket, with the key of its first message if the handshake has none.

    Such a handshake is answered before the key is known. The first message is passed to the dialect too.

    Returns:
        None if the client is gone or sent nothing in time.
    """
    authenticator, limits = gateway.admission.authenticator, gateway.settings.server.limits
    try:
        authenticator.check_origin(websocket.headers)
    except RealtimeTTSError:
        return websocket  # refused at the handshake
    if not authenticator.lacks_key(websocket.headers, websocket.query_params):
        return websocket
    await websocket.accept()
    try:
        first = await asyncio.wait_for(websocket.receive(), gateway.settings.server.timeouts.handshake_timeout_s)
    except TimeoutError:
        with contextlib.suppress(RuntimeError):  # the client disconnected at the same time
            await websocket.close(POLICY_VIOLATION, "no key")
        return None
    if first["type"] != "websocket.receive":
        return None
    frame = first["text"] if first.get("text") is not None else first["bytes"]
    key = read_key(frame, limits.max_message_bytes).encode("latin-1", "replace")
    pending: list[Message] = [{"type": "websocket.connect"}, first]

    async def receive() -> Message:
        return pending.pop(0) if pending else await websocket.receive()

    async def send(message: Message) -> None:
        if message["type"] != "websocket.accept":  # it was answered
            await websocket.send(message)

    headers = [*websocket.scope["headers"], (b"xi-api-key", key)]
    return WebSocket({**websocket.scope, "headers": headers}, receive, send)


# ---- speech over plain HTTP ------------------------------------------------------------------------------------------


async def _read_request(voice: str, text: TextBody, output_format: str = DEFAULT_FORMAT) -> SpeechRequest:
    return parse_request(text, voice, output_format or DEFAULT_FORMAT)


Wanted = Annotated[SpeechRequest, Depends(_read_request)]
_BODY = takes(SpeechBody)


@speech.post("", summary="Speak a text", response_class=Response, openapi_extra=_BODY)
@speech.post("/stream", summary="Speak a text", response_class=Response, openapi_extra=_BODY)
async def speak(request: Request, gateway: AnyGateway, client: AnyClient, wanted: Wanted) -> Response:
    return await _answer(request, gateway, client, wanted)


@speech.post("/with-timestamps", summary="Speech with times of characters", openapi_extra=_BODY)
async def speak_with_times(request: Request, gateway: AnyGateway, client: AnyClient, wanted: Wanted) -> Response:
    return await _answer(request, gateway, client, dataclasses.replace(wanted, rendering=TimedObject(wanted.text)))


@speech.post("/stream/with-timestamps", summary="Speech with times of characters, as it is made", openapi_extra=_BODY)
async def stream_with_times(request: Request, gateway: AnyGateway, client: AnyClient, wanted: Wanted) -> Response:
    return await _answer(request, gateway, client, dataclasses.replace(wanted, rendering=TimedLines(wanted.text)))


async def _answer(request: Request, gateway: Gateway, client: Client, wanted: SpeechRequest) -> Response:
    answer = await speech_response(gateway, client, wanted)
    answer.headers["request-id"] = request_id(request.scope)
    return answer


# ---- the account, by which clients check a key ----------------------------------------------------------------------


@_http.get("/v1/user", tags=["ElevenLabs"], summary="Whether the key is active")
async def get_user(gateway: AnyGateway, client: AnyClient) -> JsonObject:
    name = client.tenant or "local"
    return {
        "user_id": name,
        "workspace_id": name,
        "subscription": _subscription(gateway, client),
        "is_new_user": False,
        "is_onboarding_completed": True,
        "is_onboarding_checklist_completed": True,
        "can_use_delayed_payment_methods": False,
        "created_at": 0,
        "seat_type": "workspace_member",
        "xi_api_key": None,
    }


@_http.get("/v1/user/subscription", tags=["ElevenLabs"], summary="Whether the key is active")
async def get_subscription(gateway: AnyGateway, client: AnyClient) -> JsonObject:
    return _subscription(gateway, client)


@_http.post("/v1/single-use-token/{token_type}", tags=["ElevenLabs"], summary="A short-lived token")
async def create_token(response: Response, token_type: str, gateway: AnyGateway, client: AnyClient) -> dict[str, str]:
    """Return a token that can be used for 15 minutes at most, more than once."""
    if token_type != "tts_websocket":
        raise InvalidRequest("the only token type is tts_websocket", field="token_type")
    ttl_s = min(_TOKEN_TTL_S, gateway.settings.server.access.max_token_ttl_s)
    return {"token": make_plain_token(gateway, client, ttl_s, response)}


def _subscription(gateway: Gateway, client: Client) -> JsonObject:
    return {
        "tier": "self_hosted",
        "status": "active",
        "character_count": 0,
        "character_limit": _UNLIMITED_CHARS,
        "can_extend_character_limit": False,
        "allowed_to_extend_character_limit": False,
        "max_credit_limit_extension": 0,
        "next_character_count_reset_unix": None,
        "voice_slots_used": len(gateway.voices.added(client.tenant)),
        "voice_limit": gateway.settings.server.voices.max_voices_per_tenant,
        "voice_add_edit_counter": 0,
        "max_voice_add_edits": None,
        "professional_voice_slots_used": 0,
        "professional_voice_slots_used_in_workspace": 0,
        "professional_voice_limit": 0,
        "can_extend_voice_limit": False,
        "can_use_instant_voice_cloning": True,
        "can_use_professional_voice_cloning": False,
        "currency": None,
        "current_overage": {"amount": "0", "currency": "usd"},
        "billing_period": None,
        "character_refresh_period": None,
        "next_invoice": None,
        "open_invoices": [],
        "has_open_invoices": False,
    }


for part in (speech, elevenlabs_dictionaries.router, elevenlabs_voices.router):
    _http.include_router(part)
router.include_router(_http)
