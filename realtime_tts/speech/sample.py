"""A short sample sentence in a voice, for previews and for designed voices."""

from __future__ import annotations

import secrets

from realtime_tts.session.settings import ContextSettings
from realtime_tts.speech.defaults import SpeechDefaults
from realtime_tts.speech.speaker import Speaker
from realtime_tts.speech.text_source import TextSource, speak_text, speaking
from realtime_tts.text.language_data import words
from realtime_tts.workers.client import EngineClient

_MAX_S = 20.0


def sentence_of(language: str) -> str:
    """Return the sentence of a language, or the English one where there is none."""
    return " ".join(words("sample_sentence", language) or words("sample_sentence"))


async def speak_sample(
    engine: EngineClient, defaults: SpeechDefaults, settings: ContextSettings, tenant: str = ""
) -> tuple[bytes, int]:
    """Speak the sample sentence of the settings' language; return s16le mono PCM and its rate in Hz.

    Args:
        settings: its voice is the engine's id.

    Raises:
        RealtimeTTSError: what speaking it failed with.
    """
    name = f"sample.{secrets.token_hex(8)}"
    speaker = Speaker(engine, name, settings, tenant=tenant, paced=False, max_length_s=_MAX_S)
    text = sentence_of(settings.params["language"])
    async with speaking(speaker, speak_text(TextSource(text), defaults.make_planner(settings), speaker)):
        return b"".join([piece.pcm async for piece in speaker]), speaker.sample_rate_hz
