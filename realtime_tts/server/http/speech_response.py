"""HTTP response with speech, as a dialect renders it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from realtime_tts.contract.speech_params import MAX_INSTRUCTION_CHARS
from realtime_tts.dialects.speech_request import SpeechRequest
from realtime_tts.errors import RealtimeTTSError, RequestTooLarge, TextTooLong
from realtime_tts.server.admission.client import Client
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http.problems import until_gone
from realtime_tts.server.http.routes import AnyClient, AnyGateway, read_bounded
from realtime_tts.server.http.speech import HttpSpeech, ignores_instructions
from realtime_tts.server.stream.socket_protocol import SOCKET_EXTENSION, RequestProtocol
from realtime_tts.workers.child import until_one_ends

_UNREAD_S = 30.0  # a client that reads nothing for this long is disconnected; a player first plays its buffer
_BODY_BYTES_PER_CHAR = 12  # of JSON with every character escaped
_BODY_BYTES_BESIDE = 16 * 1024
MAX_RECORDINGS_BODY_BYTES = 4 * 1024 * 1024  # a minute at 24 kHz; larger ones come as a form
_MAX_NAME_CHARS = 64


class SpeechResponse(StreamingResponse):
    """Response to a request for speech. An error before the first bytes is raised, for the router's error shape.

    Raises (at construction): the errors of `HttpSpeech`.
    """

    def __init__(self, gateway: Gateway, client: Client, request: SpeechRequest) -> None:
        self._gateway, self._rendering = gateway, request.rendering
        self._speech = HttpSpeech(gateway, client, request)
        voice = self._speech.voice
        self._notices = [*_substitutions(gateway, client, request, voice), *request.notices]
        headers = {
            "cache-control": "no-store",
            "x-accel-buffering": "no",  # else nginx buffers the whole answer
            "realtime-tts-voice": ascii(voice)[1:-1].strip(),  # h11 refuses header values with blanks at an end
        }
        super().__init__((), headers=headers, media_type=self._rendering.content_type or request.audio.content_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        speech, admission = self._speech, self._gateway.admission
        socket: RequestProtocol = scope["extensions"][SOCKET_EXTENSION]
        async with contextlib.AsyncExitStack() as slot:
            await slot.enter_async_context(admission.speech(speech, len(speech.request.text)))
            try:
                with socket.streaming(speech.listens, _UNREAD_S):
                    await until_one_ends(self._answer(send, socket, slot), until_gone(receive))
            finally:
                speech.left()  # no effect after its end

    async def _answer(self, send: Send, socket: RequestProtocol, slot: contextlib.AsyncExitStack) -> None:
        speech, has_begun = self._speech, False
        try:
            async with contextlib.aclosing(speech.chunks()) as chunks:
                async for chunk in chunks:
                    if socket.transport.is_closing():
                        speech.left()  # not reported yet; asyncio would log every write
                    elif body := self._rendering.chunk(chunk):
                        await self._put(send, body, has_begun)
                        has_begun = True
                    speech.taken()
            if speech.outcome != "cancelled":
                await slot.aclose()  # before the client's next request, which needs the slot
                socket.flush()
                await self._put(send, self._rendering.end(speech.total), has_begun, more=False)
        except RealtimeTTSError as failure:
            if not has_begun:
                raise
            if last := self._rendering.error(failure):
                await self._put(send, last, has_begun)
            socket.cut_off()

    async def _put(self, send: Send, body: bytes, has_begun: bool, more: bool = True) -> None:
        if not has_begun:
            if notices := [*self._notices, *self._speech.take_notices()]:
                self.headers["realtime-tts-notice"] = "; ".join(notices)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": body, "more_body": more})


async def speech_response(gateway: Gateway, client: Client, request: SpeechRequest) -> SpeechResponse:
    """Return the response to a request. Raises the errors of `HttpSpeech`."""
    await gateway.voices.look_up(request.voice, client.tenant)
    if request.dictionaries:
        params, all_known = await gateway.with_dictionaries(client, request.params, request.dictionaries)
        unknown = () if all_known else ("a pronunciation dictionary is not known here, and is ignored",)
        request = dataclasses.replace(request, params=params, notices=(*request.notices, *unknown))
    return SpeechResponse(gateway, client, request)


async def read_speech_body(request: Request, gateway: AnyGateway, client: AnyClient) -> bytes:
    """Read a JSON body with a text. The limit allows the longest text with every character escaped.

    Raises:
        TextTooLong: the body is larger.
        Draining, EngineLost, Overloaded, TooManySessions, RateLimited: refused before the body was read.
    """
    gateway.admission.check(client)
    try:
        return await read_bounded(request, max_speech_body_bytes(gateway))
    except RequestTooLarge:
        raise _text_too_long(gateway) from None


TextBody = Annotated[bytes, Depends(read_speech_body)]


async def read_recordings_body(request: Request, gateway: Gateway) -> bytes:
    """Read a body like that of `read_speech_body`, with recordings in it as base64.

    JSON is parsed in one call on the event loop. Base64 takes a few ms; the same number of bytes of brackets, commas
    and escapes takes a hundred times as long, so their number is limited.

    Raises:
        TextTooLong: the body has no recordings.
        RequestTooLarge: the body has more than a text and recordings.
    """
    body = await read_bounded(request, MAX_RECORDINGS_BODY_BYTES)
    has_recordings = b'"reference"' in body or b'"prompt"' in body
    if not has_recordings:
        raise _text_too_long(gateway)
    if sum(map(body.count, (b"\\", b",", b"[", b"{"))) > max_speech_body_bytes(gateway):
        longest = gateway.settings.server.limits.max_text_chars
        raise RequestTooLarge(f"the body is more than recordings and a text, which may have up to {longest} characters")
    return body


def _text_too_long(gateway: Gateway) -> TextTooLong:
    longest = gateway.settings.server.limits.max_text_chars
    return TextTooLong(f"the body is larger than a text of {longest} characters, the most that is taken", field="text")


def max_speech_body_bytes(gateway: Gateway) -> int:
    return _BODY_BYTES_PER_CHAR * gateway.settings.server.limits.max_text_chars + _BODY_BYTES_BESIDE


def _substitutions(gateway: Gateway, client: Client, request: SpeechRequest, voice: str) -> Iterator[str]:
    """Yield notices about unknown voices, models and instructions, with client values escaped for a header."""
    config, model = gateway.settings.server.voices, gateway.catalogue.ready.model
    is_id = request.voice is not None and gateway.voices.name_of(request.voice, client.tenant) == voice
    if request.voice not in (None, voice) and dict(config.voice_aliases).get(request.voice) != voice and not is_id:
        yield f"voice {ascii(request.voice)[:_MAX_NAME_CHARS]} is not known here, {voice!a} speaks"
    asked, _ = gateway.adapters.split(request.model)
    if asked not in (None, model, *config.model_aliases):
        yield f"model {ascii(asked)[:_MAX_NAME_CHARS]} is not known here, {model!a} speaks"
    if ignores_instructions(gateway, request):
        yield "instructions are ignored, this model takes none"
    elif len(request.params.get("instructions", "").strip()) > MAX_INSTRUCTION_CHARS:
        yield f"instructions are cut after {MAX_INSTRUCTION_CHARS} characters"
