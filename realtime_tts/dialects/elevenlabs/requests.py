"""Fields of ElevenLabs' requests, over WebSockets and plain HTTP, and its errors."""

from __future__ import annotations

from pydantic import Field
from typing_extensions import TypedDict

from realtime_tts.dialects.base import KeyPlaces
from realtime_tts.dialects.json_input import Body
from realtime_tts.errors import InvalidRequest, RealtimeTTSError, TextTooLong

KEYS = KeyPlaces(headers=("xi-api-key",), queries=("xi_api_key", "single_use_token", "authorization"))
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


# ---- errors --------------------------------------------------------------------------------------------------------

_STATUSES = {
    "unauthorized": "invalid_api_key",
    "forbidden": "missing_permissions",
    "limit_exceeded": "too_many_concurrent_requests",
    "too_many_sessions": "too_many_concurrent_requests",
    "too_many_contexts": "max_active_conversations",
    "rate_limited": "quota_exceeded",
    "overloaded": "system_busy",
    "draining": "system_busy",
    "unsupported_audio_format": "invalid_output_format",
    "text_too_long": "max_character_limit_exceeded",
}


def error_status(code: str) -> str:
    """Return ElevenLabs' `status` for a native error code; the code itself if there is none."""
    return _STATUSES.get(code, code)


class ElevenLabsErrorDetail(TypedDict):
    status: str
    message: str


class ElevenLabsError(TypedDict):
    """Body of every error response."""

    detail: ElevenLabsErrorDetail


def elevenlabs_problem(error: RealtimeTTSError, request_id: str = "") -> tuple[int, ElevenLabsError]:
    """Return the status and the body of an HTTP error response."""
    status = 400 if isinstance(error, TextTooLong) else error.http_status
    return status, {"detail": {"status": error_status(error.code), "message": error.message}}
