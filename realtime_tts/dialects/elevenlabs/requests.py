"""Fields of ElevenLabs' requests, over WebSockets and plain HTTP."""

from __future__ import annotations

from pydantic import Field

from realtime_tts.dialects.json_input import Body
from realtime_tts.errors import InvalidRequest

MAX_LOCATORS = 3  # the same as ElevenLabs


class VoiceSettings(Body):
    """Settings of a request, of which only `speed` is supported."""

    stability: object = None
    similarity_boost: object = None
    style: object = None
    use_speaker_boost: object = None
    speed: float | None = None

    def ignored(self) -> list[str]:
        """Return the names of the given settings that are ignored."""
        return [name for name in self.given() if name != "speed"]


class Locator(Body):
    """Reference to a stored pronunciation dictionary; its version is ignored."""

    pronunciation_dictionary_id: str


class Request(Body):
    text: str | None = None
    voice_settings: VoiceSettings = Field(default_factory=VoiceSettings)
    pronunciation_dictionary_locators: list[Locator] = Field(default_factory=list)

    def dictionaries(self) -> tuple[str, ...]:
        """Return the ids of the stored pronunciation dictionaries."""
        if len(self.pronunciation_dictionary_locators) > MAX_LOCATORS:
            raise InvalidRequest(
                f"a request names at most {MAX_LOCATORS} dictionaries", field="pronunciation_dictionary_locators"
            )
        return tuple(locator.pronunciation_dictionary_id for locator in self.pronunciation_dictionary_locators)
