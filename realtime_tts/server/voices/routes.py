"""Voices over HTTP: add, list, preview, rename, delete."""

from __future__ import annotations

import asyncio
import contextlib
from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from realtime_tts.audio.containers import wav_header
from realtime_tts.audio.stream_format import StreamFormat
from realtime_tts.contract.speech_params import SpeechParams
from realtime_tts.dialects.speech_request import SpeechRequest
from realtime_tts.dialects.voice_request import VoiceRequest
from realtime_tts.errors import InvalidRequest, VoiceNotFound
from realtime_tts.server.admission.client import Client
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http import schemas
from realtime_tts.server.http.catalogue import added_voice
from realtime_tts.server.http.problems import until_gone
from realtime_tts.server.http.routes import (
    NEEDS_KEY,
    AnyClient,
    AnyGateway,
    FoundVoice,
    Owner,
    problems,
    read_body,
    takes,
)
from realtime_tts.server.http.speech import HttpSpeech
from realtime_tts.server.voices.cloning import make_voice
from realtime_tts.server.voices.forms import CONSENT_FIELDS, FormShape, upload_place
from realtime_tts.session.settings import Choices, ContextSettings
from realtime_tts.speech.defaults import sample_sentence
from realtime_tts.workers.child import until_one_ends

_FIELDS = ("name", "description", "language", "prompt_text", "instructions", "ttl_s")
_FORM = FormShape((*_FIELDS, *CONSENT_FIELDS), ("reference", "prompt"))

voices = APIRouter(prefix="/v1/voices", tags=["voices"], dependencies=NEEDS_KEY, responses=problems())


@voices.post(
    "",
    summary="Create a voice from recordings or a description",
    status_code=HTTPStatus.CREATED,
    response_model_exclude_unset=True,
    openapi_extra=_FORM.documented(),
)
async def create_voice(request: Request, gateway: AnyGateway, client: Owner) -> schemas.NewVoice:
    """`reference`: speech of the voice to imitate. `prompt` with `prompt_text`: speech to continue from. Or
    `instructions`: a description, for models that design voices. 2 to 60 s of one speaker, any usual file format. With
    `ttl_s` instead of a `name`: a temporary voice, which is not listed and expires after this time without use."""
    gateway.availability.check()
    async with upload_place(request, gateway.voice_making, client.tenant):
        form = await _FORM.read(request)
        ttl_s = _seconds(form.field("ttl_s"))
        wanted = VoiceRequest.of_form(form.fields, form.files_of("reference"), form.file("prompt"), ttl_s)
        record, remarks = await make_voice(gateway, client, wanted)
    about = added_voice(record).model_dump(exclude_unset=True)
    return schemas.NewVoice(**about, warnings=list(remarks))


@voices.get("/{voice_id}", summary="A voice", response_model_exclude_unset=True)
async def get_voice(found: FoundVoice) -> schemas.Voice:
    return found


@voices.patch(
    "/{voice_id}",
    summary="Rename or describe a voice",
    response_model_exclude_unset=True,
    openapi_extra=takes(schemas.VoiceChange),
)
async def change_voice(request: Request, voice_id: str, gateway: AnyGateway, client: Owner) -> schemas.Voice:
    change = await read_body(request, schemas.VoiceChange)
    return added_voice(await gateway.voices.relabel(voice_id, client.tenant, **change.model_dump()))


@voices.delete(
    "/{voice_id}", summary="Delete a voice with its recordings and previews", status_code=HTTPStatus.NO_CONTENT
)
async def delete_voice(voice_id: str, gateway: AnyGateway, client: Owner) -> None:
    """Speech that is running with it ends with `voice_not_found`."""
    await gateway.voices.delete(voice_id, client.tenant)


@voices.get(
    "/{voice_id}/preview",
    summary="Preview of a voice: one spoken sentence",
    response_class=Response,
    responses={200: {"content": {"audio/wav": {}}}},
)
async def preview_voice(request: Request, voice_id: str, gateway: AnyGateway, client: AnyClient) -> Response:
    gateway.availability.check()
    await gateway.voices.look_up(voice_id, client.tenant)
    defaults = gateway.catalogue.defaults
    choices = Choices(voice_id, params=SpeechParams(seed=0, mode="clause"))
    settings = defaults.resolve(Choices(), choices, tenant=client.tenant, only_voices=client.voices)
    engine_id = gateway.voices.engine_id(settings.voice, client.tenant)
    # Made once for all requests that wait for it; the first one has the slot and is charged.
    async with gateway.preview_locks.setdefault(engine_id, asyncio.Lock()):
        if gateway.previews.get(engine_id) is None:
            making = _make_preview(gateway, settings, engine_id, client)
            await until_one_ends(making, until_gone(request.receive))  # the next client may need the stream
        if (wav := gateway.previews.get(engine_id)) is None:
            raise ClientDisconnect
    return Response(wav, media_type="audio/wav", headers={"cache-control": "private, max-age=300"})


async def _make_preview(gateway: Gateway, settings: ContextSettings, engine_id: str, client: Client) -> None:
    is_kept = gateway.voices.by_id(engine_id) is not None  # else a voice of the model: not kept
    wav = await asyncio.to_thread(gateway.previews.load, engine_id) if is_kept else None
    if wav is None:
        wav = await _sample(gateway, client, engine_id, _language_of(gateway, settings, engine_id))
        if is_kept:
            await asyncio.to_thread(gateway.previews.keep, engine_id, wav)
    if is_kept and gateway.voices.by_id(engine_id) is None:  # deleted meanwhile
        gateway.previews.forget(engine_id)
        raise VoiceNotFound("the voice was removed", field="voice")
    gateway.previews.put(engine_id, wav)


def _language_of(gateway: Gateway, settings: ContextSettings, engine_id: str) -> str:
    """Return the language of a voice's sample sentence."""
    added = gateway.voices.by_id(engine_id)
    try:
        return gateway.catalogue.defaults.known_language(added.language if added is not None else "")
    except InvalidRequest:  # one of the model's voices, none, or an unsupported language
        return settings.params["language"]


async def _sample(gateway: Gateway, client: Client, engine_id: str, language: str) -> bytes:
    """Return the sample sentence as a WAV file. Raises the errors of `HttpSpeech` and of admission."""
    text, rate_hz = sample_sentence(language), gateway.catalogue.ready.sample_rate
    audio = StreamFormat("raw", "pcm_s16le", rate_hz)
    # By its id: the voice may have another name by now. If it is gone, the default voice would speak.
    request = SpeechRequest(text, audio, engine_id, params=SpeechParams(seed=0, language=language))
    speech, pcm = HttpSpeech(gateway, client, request), bytearray()
    if speech.voices != (engine_id,):
        raise VoiceNotFound("the voice was removed, or is not allowed any more", field="voice")
    async with gateway.admission.speech(speech, len(text)), contextlib.aclosing(speech.chunks()) as chunks:
        try:
            async for chunk in chunks:
                pcm += chunk.data
                speech.taken()
        finally:
            speech.left()
    return wav_header(rate_hz, num_samples=len(pcm) // 2, provenance=gateway.provenance(*speech.voices)) + pcm


def _seconds(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise InvalidRequest("ttl_s must be a number of seconds", field="ttl_s") from None
