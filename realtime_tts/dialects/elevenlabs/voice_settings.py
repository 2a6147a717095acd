"""ElevenLabs' `voice_settings`: of these there is a speed."""

from __future__ import annotations

from realtime_tts.dialects.json_input import Fields

_IGNORED = ("stability", "similarity_boost", "style", "use_speaker_boost")


def parse_speed(settings: Fields | None) -> float | None:
    """Raises:
    InvalidMessage: it is no number.
    """
    return None if settings is None else settings.optional_number("speed")


def ignored_settings(settings: Fields | None) -> list[str]:
    """Names of what was set and makes no difference."""
    if settings is None:
        return []
    settings.expect(*_IGNORED)
    return [name for name in settings.names() if name in _IGNORED]
