"""Errors in ElevenLabs' format."""

from __future__ import annotations

from typing_extensions import TypedDict

from realtime_tts.errors import RealtimeTTSError, TextTooLong

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
