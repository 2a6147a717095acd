"""ElevenLabs' `voice_settings`, of which only `speed` is supported."""

from __future__ import annotations

from realtime_tts.dialects.json_input import Fields

_IGNORED = ("stability", "similarity_boost", "style", "use_speaker_boost")


def parse_speed(settings: Fields | None) -> float | None:
    """Raises:
    InvalidMessage: the speed is not a number.
    """
    return None if settings is None else settings.optional_number("speed")


def ignored_settings(settings: Fields | None) -> list[str]:
    """Return the names of the given settings that are ignored."""
    if settings is None:
        return []
    settings.expect(*_IGNORED)
    return [name for name in settings.names() if name in _IGNORED]
