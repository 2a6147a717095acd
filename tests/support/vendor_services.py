"""Pipecat's services for other services, unmodified, each in a pipeline that runs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pipecat_turns
from pipecat.services.cartesia.tts import CartesiaHttpTTSService, CartesiaTTSService
from pipecat.services.deepgram.flux.tts import DeepgramFluxTTSService
from pipecat.services.deepgram.tts import DeepgramHttpTTSService, DeepgramTTSService
from pipecat.services.elevenlabs.tts import ElevenLabsHttpTTSService, ElevenLabsTTSService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.services.tts_service import TTSService


def _service(name: str, url: str, key: str, session: aiohttp.ClientSession, **options: Any) -> TTSService:
    address = url.replace("http", "ws", 1)
    match name:
        case "cartesia":
            options["settings"] = CartesiaTTSService.Settings(voice="6ccbfb76-1fc6-48f7-b71d-91ac6298247b")
            return CartesiaTTSService(api_key=key, url=address + "/tts/websocket", **options)
        case "cartesia over http":
            options["settings"] = CartesiaHttpTTSService.Settings(voice="katie")
            return CartesiaHttpTTSService(api_key=key, base_url=url, **options)
        case "deepgram":
            return DeepgramTTSService(api_key=key, base_url=address, **options)
        case "deepgram over http":
            return DeepgramHttpTTSService(api_key=key, base_url=url, aiohttp_session=session, **options)
        case "flux":
            options["settings"] = DeepgramFluxTTSService.Settings(voice="flux-haley-en")
            return DeepgramFluxTTSService(api_key=key, url=address + "/v2/speak", **options)
        case "elevenlabs":
            options["settings"] = ElevenLabsTTSService.Settings(
                voice="21m00Tcm4TlvDq8ikWAM", stability=0.5, similarity_boost=0.7
            )
            return ElevenLabsTTSService(api_key=key, url=address, **options)
        case "elevenlabs over http":
            options["settings"] = ElevenLabsHttpTTSService.Settings(voice="21m00Tcm4TlvDq8ikWAM", stability=0.5)
            return ElevenLabsHttpTTSService(api_key=key, base_url=url, aiohttp_session=session, **options)
        case "openai":
            return OpenAITTSService(api_key=key, base_url=f"{url}/v1", **options)
    raise ValueError(name)


@contextlib.asynccontextmanager
async def talking(name: str, url: str, key: str = "any", **options: Any) -> AsyncIterator[pipecat_turns.Talk]:
    async with aiohttp.ClientSession() as session:
        service = _service(name, url, key, session, **options)
        try:
            async with pipecat_turns.talking(service) as talk:
                yield talk
        finally:
            if isinstance(service, OpenAITTSService):
                await service._client.close()  # which the service itself leaves open
