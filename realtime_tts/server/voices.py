"""Voices over HTTP: add, list, hear, rename, delete."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import time
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from realtime_tts.audio.containers import wav_header
from realtime_tts.audio.decode import DecodeLimits, Recording, decode_recording
from realtime_tts.audio.recording_report import check, report_on
from realtime_tts.errors import (
    Forbidden,
    InvalidRequest,
    RequestTooLarge,
    TooManyVoices,
    VoiceNotFound,
)
from realtime_tts.server import schemas
from realtime_tts.server.caller import Caller
from realtime_tts.server.catalogue import added_voice
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.http import NEEDS_KEY, authorize, get_gateway, problems, read_body
from realtime_tts.server.logs import log_event
from realtime_tts.session.settings import Choices, ContextSettings, SpeechParams
from realtime_tts.speech.recordings import RATE_HZ, VoiceRecordings
from realtime_tts.speech.sample import speak_sample
from realtime_tts.speech.voice_store import Consent, VoiceRecord
from realtime_tts.speech.voices import VoiceLabels
from realtime_tts.workers.policy import ZERO_SHOT_VOICE

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 2 * DecodeLimits().max_bytes + 64 * 1024  # two recordings, and the fields
_MAX_FIELD_CHARS = 4096
_FILES = ("reference", "prompt")
_FIELDS = (
    "name",
    "description",
    "language",
    "prompt_text",
    "instructions",
    "consent",
    "consent_by",
    "consent_scope",
)
_YES = frozenset({"true", "yes", "1", "on"})


def _owner(caller: Annotated[Caller, Depends(authorize)]) -> Caller:
    if caller.token:
        raise Forbidden("voices are added and changed with an API key, not with a token")
    return caller


Owner = Annotated[Caller, Depends(_owner)]
Anybody = Annotated[Caller, Depends(authorize)]

voices = APIRouter(prefix="/v1/voices", tags=["voices"], dependencies=NEEDS_KEY)

_NOT_FOUND = "there is no such voice, or it is another key's"
_FORM = {
    "type": "object",
    "required": ["name"],
    "properties": {
        **{name: {"type": "string", "format": "binary"} for name in _FILES},
        **{name: {"type": "string"} for name in _FIELDS},
    },
}


@voices.post(
    "",
    summary="Make a voice of recordings, or of a description",
    description="`reference`: speech to sound like. `prompt` with `prompt_text`: speech to continue from. Or "
    "`instructions`: a description, for models that design voices. 2 to 60 s of one speaker, any usual file format.",
    status_code=HTTPStatus.CREATED,
    openapi_extra={"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}},
    responses=problems(
        bad_request="a field that cannot be, or a recording that cannot be decoded",
        forbidden="asked for with a token",
        conflict="the name is taken, or the key has as many voices as it may",
        request_entity_too_large="recordings of more than 20 MiB",
        unprocessable_entity="a recording that makes no voice: too short, silent, clipped, without speech",
        service_unavailable="no worker is ready, or many voices are being made",
    ),
)
async def create_voice(request: Request, caller: Owner) -> schemas.NewVoice:
    gateway = get_gateway(request)
    gateway.check_ready()
    async with gateway.voice_making:
        form = await _read_form(request)
        try:
            record, warnings = await _make(gateway, caller, form)
        finally:
            await form.close()
    log_event(logger, logging.INFO, "voice_added", voice=record.voice_id, key=caller.tenant or None)
    return schemas.NewVoice(**added_voice(record), warnings=warnings)


@voices.get(
    "/{voice_id}",
    summary="One voice",
    response_model=schemas.Voice,
    response_model_exclude_unset=True,
    responses=problems(not_found=_NOT_FOUND),
)
async def get_voice(request: Request, voice_id: str, caller: Anybody) -> dict[str, Any]:
    gateway = get_gateway(request)
    listed = gateway.catalogue.voices(caller.voices, gateway.voices.added(caller.tenant))["voices"]
    for voice in listed:
        if voice_id in (voice["id"], voice["name"]):
            return dict(voice)
    raise VoiceNotFound("there is no such voice", field="voice")


@voices.patch(
    "/{voice_id}",
    summary="Call a voice something else",
    openapi_extra={
        "requestBody": {"content": {"application/json": {"schema": schemas.VoiceChange.model_json_schema()}}}
    },
    responses=problems(
        bad_request="a label that cannot be",
        forbidden="asked for with a token",
        not_found=_NOT_FOUND,
        conflict="the name is taken",
    ),
)
async def change_voice(request: Request, voice_id: str, caller: Owner) -> schemas.Voice:
    change = await read_body(request, schemas.VoiceChange)
    registry = get_gateway(request).voices
    old = registry.get(voice_id, caller.tenant)
    labels = VoiceLabels(
        old.name if change.name is None else change.name,
        old.description if change.description is None else change.description,
        old.language if change.language is None else change.language,
    )
    return schemas.Voice(**added_voice(await registry.relabel(old.voice_id, labels, caller.tenant)))


@voices.delete(
    "/{voice_id}",
    summary="Delete a voice and all that is kept of it",
    description="Speech that is running with it ends with `voice_not_found`.",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(forbidden="asked for with a token", not_found=_NOT_FOUND),
)
async def delete_voice(request: Request, voice_id: str, caller: Owner) -> Response:
    gateway = get_gateway(request)
    await gateway.voices.delete(voice_id, caller.tenant)
    log_event(logger, logging.INFO, "voice_deleted", key=caller.tenant or None)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@voices.get(
    "/{voice_id}/preview",
    summary="A sentence in this voice",
    response_class=Response,
    responses={
        200: {"content": {"audio/wav": {}}},
        **problems(not_found=_NOT_FOUND, service_unavailable="no worker is ready, or no stream is free"),
    },
)
async def preview_voice(request: Request, voice_id: str, caller: Anybody) -> Response:
    gateway = get_gateway(request)
    gateway.check_ready()
    defaults = gateway.catalogue.defaults
    choices = Choices(voice_id, params=SpeechParams(seed=0, mode="clause"))
    settings = defaults.resolve(Choices(), choices, tenant=caller.tenant, only_voices=caller.voices)
    engine_id = gateway.voices.engine_id(settings.voice, caller.tenant)
    if (wav := gateway.previews.get(engine_id)) is None:
        language = _language_of(gateway, settings, caller.tenant)
        wav = await _sample(gateway, dataclasses.replace(settings, voice=engine_id, language=language), caller)
        gateway.previews.put(engine_id, wav)
    return Response(wav, media_type="audio/wav", headers={"cache-control": "private, max-age=300"})


def _language_of(gateway: Gateway, settings: ContextSettings, tenant: str) -> str:
    """That in which a voice introduces itself."""
    try:
        wanted = gateway.voices.get(settings.voice, tenant).language
        return gateway.catalogue.defaults.known_language(wanted) if wanted else settings.language
    except InvalidRequest:  # a voice of the model's, or a language that the model does not speak
        return settings.language


# ---- making one --------------------------------------------------------------------------------------------------


async def _read_form(request: Request) -> FormData:
    """Raises:
    RequestTooLarge, InvalidRequest
    """
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise InvalidRequest("the body is a form: multipart/form-data", field="content-type")

    async def bounded() -> AsyncGenerator[bytes, None]:
        num_bytes = 0
        async for part in request.stream():
            num_bytes += len(part)
            if num_bytes > MAX_BODY_BYTES:
                raise RequestTooLarge(f"the body has more than {MAX_BODY_BYTES} bytes")
            yield part

    parser = MultiPartParser(
        request.headers, bounded(), max_files=len(_FILES), max_fields=len(_FIELDS), max_part_size=4 * _MAX_FIELD_CHARS
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise InvalidRequest(f"the form cannot be read: {error.message}") from None
    except KeyError:  # python-multipart's word for a content type without a boundary
        raise InvalidRequest("the form has no boundary", field="content-type") from None
    for name, value in form.multi_items():
        wanted = _FILES if isinstance(value, UploadFile) else _FIELDS
        if name not in wanted or len(form.getlist(name)) > 1:
            await form.close()
            raise InvalidRequest(f"{name[:64]!r} is not wanted here, or not twice", field=name[:64])
    return form


def _field(form: FormData, name: str) -> str:
    value = form.get(name)
    if isinstance(value, str) and len(value) > _MAX_FIELD_CHARS:
        raise InvalidRequest(f"{name} has at most {_MAX_FIELD_CHARS} characters", field=name)
    return value if isinstance(value, str) else ""


async def _make(gateway: Gateway, caller: Caller, form: FormData) -> tuple[VoiceRecord, list[schemas.RecordingRemark]]:
    labels = VoiceLabels(_field(form, "name"), _field(form, "description"), _field(form, "language"))
    limit = gateway.settings.server.max_voices_per_key
    if len(gateway.voices.added(caller.tenant)) >= limit:
        raise TooManyVoices(f"this key may have {limit} voices; delete one first")
    files = {name: await file.read() for name in _FILES if isinstance(file := form.get(name), UploadFile)}
    instructions = _field(form, "instructions")
    if not files and instructions.strip():
        recordings = await _design(gateway, caller, instructions)
        return await gateway.voices.add(labels, recordings, caller.tenant, instructions=instructions), []
    if instructions:
        raise InvalidRequest("a voice is made of recordings or of a description, not of both", field="instructions")
    consent = _consent(gateway, caller, form, hashlib.sha256(b"".join(files.values())).hexdigest())
    decoded: dict[str, Recording] = {}
    remarks: list[schemas.RecordingRemark] = []
    for name, data in files.items():
        decoded[name] = await decode_recording(data, RATE_HZ)
        found = check(await report_on(decoded[name].pcm), name)
        remarks += [schemas.RecordingRemark(field=name, code=w.code, message=w.message) for w in found]
    text = _field(form, "prompt_text") or None
    recordings = VoiceRecordings(decoded.get("reference"), decoded.get("prompt"), text)
    return await gateway.voices.add(labels, recordings, caller.tenant, consent=consent), remarks


def _consent(gateway: Gateway, caller: Caller, form: FormData, recording_sha256: str) -> Consent | None:
    """Raises:
    InvalidRequest: the server's policy asks for more than the form says.
    """
    policy = gateway.settings.server.voice_consent
    says_so = _field(form, "consent").lower() in _YES
    given_by, scope = _field(form, "consent_by").strip(), _field(form, "consent_scope").strip()
    if policy != "off" and not says_so:
        raise InvalidRequest("a cloned voice needs its speaker's consent: say so with consent=true", field="consent")
    for name, value in (("consent_by", given_by), ("consent_scope", scope)):
        if policy == "required" and not value:
            raise InvalidRequest(f"this server asks who consents, and to what: {name} is missing", field=name)
    if not says_so:
        return None
    return Consent(given_by or caller.tenant or "the caller", scope, time.time(), recording_sha256)


async def _design(gateway: Gateway, caller: Caller, instructions: str) -> VoiceRecordings:
    """A sentence in the voice that the model makes up: by it the voice stays the same from now on."""
    import numpy as np  # here, since the gateway starts without

    defaults = gateway.catalogue.defaults
    params = SpeechParams(seed=0, instructions=instructions, mode="clause")
    settings = defaults.resolve(Choices(), Choices(ZERO_SHOT_VOICE, params=params), tenant=caller.tenant)
    pcm, rate_hz = await _speak(gateway, settings, caller)
    return VoiceRecordings(reference=(np.frombuffer(pcm, "<i2"), rate_hz))


async def _sample(gateway: Gateway, settings: ContextSettings, caller: Caller) -> bytes:
    """A WAV file."""
    pcm, rate_hz = await _speak(gateway, settings, caller)
    return wav_header(rate_hz, num_samples=len(pcm) // 2) + pcm


async def _speak(gateway: Gateway, settings: ContextSettings, caller: Caller) -> tuple[bytes, int]:
    if (refusal := gateway.context_refusal(caller.tenant)) is not None:
        raise refusal
    return await speak_sample(gateway.engine, gateway.catalogue.defaults, settings, caller.tenant)
