"""Speech of a sample sentence, under the limits of speech over plain HTTP."""

from __future__ import annotations

import asyncio

from realtime_tts.errors import Draining, RealtimeTTSError, VoiceNotFound
from realtime_tts.server.admission.client import Client
from realtime_tts.server.gateway import Gateway
from realtime_tts.session.settings import ContextSettings
from realtime_tts.speech.sample import sentence_of, speak_sample


class SampleSpeech:
    """Speech of one sentence: a `SlotOwner` of a slot, charged to its client.

    Args:
        settings: context settings, with the engine's id as the voice.
    """

    lost_at = None
    num_speaking = 1

    def __init__(self, gateway: Gateway, client: Client, settings: ContextSettings) -> None:
        self.tenant, self.token, self.voices = client.tenant, client.token, (settings.voice,)
        self._gateway, self._client, self._settings = gateway, client, settings
        self._speaking: asyncio.Task[tuple[bytes, int]] | None = None
        self._error: RealtimeTTSError | None = None

    async def speak(self) -> tuple[bytes, int]:
        """Return s16le mono PCM and its rate in Hz.

        Raises:
            Draining, EngineLost, Overloaded, TooManySessions, RateLimited: no slot is free, or the client has too few
                    characters left for the sentence.
            RealtimeTTSError: the speech failed.
        """
        gateway, settings = self._gateway, self._settings
        async with gateway.admission.speech(self._client, len(sentence_of(settings.params["language"])), self):
            sample = speak_sample(gateway.engine, gateway.catalogue.defaults, settings, self.tenant)
            self._speaking = asyncio.create_task(sample, name="speak sample")
            try:
                return await self._speaking
            except asyncio.CancelledError:
                if self._error is not None:
                    raise self._error from None
                raise

    def voice_removed(self, voice_id: str) -> None:
        if voice_id in self.voices:
            self._fail(VoiceNotFound("the voice was removed", field="voice"))

    def drain(self) -> None:
        """Do nothing: the sentence ends by itself."""

    def close(self, code: int, reason: str) -> None:
        self._fail(Draining("the server is shutting down"))

    def _fail(self, error: RealtimeTTSError) -> None:
        self._error = self._error or error
        if self._speaking is not None:
            self._speaking.cancel()
