"""Which voices exist, and for whom: the model's own for everybody, added ones for the tenant that added them.

A name is a tenant's label. The engine knows an added voice by an id that is drawn at random, so that two tenants can
use one name, and nobody can hear or replace the other's voice. The latents are held by `EngineClient`, which gives them
to every worker; here is held what they are called.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator

from realtime_tts.errors import EngineStartError, InvalidRequest, VoiceExists, VoiceNotFound
from realtime_tts.speech.recordings import VoiceRecordings, encoding_request
from realtime_tts.workers import frames
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.policy import ZERO_SHOT_VOICE

MAX_NAME_CHARS = 128


class VoiceRegistry:
    """The voices of one engine. Every door asks here; belongs to the event loop.

    What is in `_adding` has a name but cannot be spoken with yet.
    """

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine
        self._added: dict[tuple[str, str], str] = {}  # (tenant, name) → engine id
        self._adding: dict[tuple[str, str], str] = {}

    def names(self, tenant: str = "") -> list[str]:
        """What a tenant can speak with: the model's voices, its own, and ``zero-shot``, which is always one.

        Raises:
            EngineStartError: before the engine has started.
        """
        own = [name for owner, name in self._added if owner == tenant]
        return [*self._model_voices(), *own, ZERO_SHOT_VOICE]

    def engine_id(self, name: str, tenant: str = "") -> str:
        """What the engine calls a voice. Ask once per context: a name can be given to another voice.

        Raises:
            VoiceNotFound: unknown, still being added, or another tenant's.
        """
        if self._is_common(name):
            return name
        voice_id = self._added.get((tenant, name))
        if voice_id is None:
            raise VoiceNotFound(f"there is no voice {name!r}", field="voice")
        return voice_id

    async def add(self, name: str, recordings: VoiceRecordings, tenant: str = "") -> None:
        """Make a voice of recordings and keep it until `remove`. Cancelled, it leaves nothing behind.

        Raises:
            VoiceExists: the name is taken by a voice of the model or of this tenant, if only by one being added.
            InvalidRequest: a name that is empty or too long, or recordings that this model cannot use.
            AudioDecodeError: a recording that cannot be read. VoiceNotFound: removed before it was made.
            EngineLost, Draining: no worker could encode it.
        """
        if not name.strip() or len(name) > MAX_NAME_CHARS:
            raise InvalidRequest(f"a voice's name must have 1 to {MAX_NAME_CHARS} characters", field="name")
        key = (tenant, name)
        if self._is_common(name) or key in self._added or key in self._adding:
            raise VoiceExists(f"there is a voice {name!r} already", field="name")
        voice_id = self._adding[key] = _new_id()
        try:
            voice = await self._encode(voice_id, recordings, tenant)
            if self._adding.get(key) != voice_id:
                raise VoiceNotFound(f"the voice {name!r} was removed while it was being added", field="name")
            self._engine.add_voice(voice)  # no await from here on: it is added altogether or not at all
            self._added[key] = voice_id
        finally:
            if self._adding.get(key) == voice_id:
                del self._adding[key]

    def remove(self, name: str, tenant: str = "") -> None:
        """Forget an added voice and all that is cached of it, or stop adding it. Unknown names are ignored."""
        for voices in (self._added, self._adding):
            if voice_id := voices.pop((tenant, name), None):
                self._engine.remove_voice(voice_id)

    @contextlib.asynccontextmanager
    async def lend(self, recordings: VoiceRecordings, tenant: str = "") -> AsyncIterator[str]:
        """A voice without a name, by its engine id, until the block is left. Raises as `add`."""
        voice = await self._encode(_new_id(), recordings, tenant)
        self._engine.add_voice(voice)
        try:
            yield voice.voice_id
        finally:
            self._engine.remove_voice(voice.voice_id)

    async def _encode(self, voice_id: str, recordings: VoiceRecordings, tenant: str) -> frames.AddVoice:
        encoded = await self._engine.encode_voice(await encoding_request(voice_id, recordings))
        return frames.AddVoice(
            voice_id,
            encoded.num_reference_patches,
            encoded.num_prompt_patches,
            encoded.patch_size,
            encoded.latent_dim,
            prompt_text=recordings.prompt_text,
            tenant=tenant,
            payload=encoded.payload,
        )

    def _is_common(self, name: str) -> bool:
        return name == ZERO_SHOT_VOICE or name in self._model_voices()

    def _model_voices(self) -> list[str]:
        ready = self._engine.ready
        if ready is None:
            raise EngineStartError("the model is not loaded; start the engine first")
        return [voice["id"] for voice in ready.voices]


def _new_id() -> str:
    return "voice-" + secrets.token_hex(16)
