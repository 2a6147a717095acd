"""Requests of ElevenLabs' clients to add and change voices. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from realtime_tts.dialects.json_input import Fields, load_object
from realtime_tts.dialects.voice_request import YES, VoiceRequest
from realtime_tts.errors import InvalidRequest

FIELDS = ("name", "description", "labels", "remove_background_noise", "consent", "consent_by", "consent_scope")
FILES = ("files", "files[]")  # some clients mark lists with []
MAX_FILES = 8
# Fixed values: a voice depends on its recordings only.
_SETTINGS = {"stability": 0.5, "similarity_boost": 0.75, "style": 0.0, "use_speaker_boost": True, "speed": 1.0}


def parse_voice_request(fields: Mapping[str, str], files: Sequence[bytes]) -> VoiceRequest:
    """Parse the form of `POST /v1/voices/add`. Consent may be given in additional fields or among the labels.

    Raises:
        InvalidRequest, InvalidMessage: the labels are not an object of strings, or there are too many files.
    """
    if len(files) > MAX_FILES:
        raise InvalidRequest(f"a voice is made of at most {MAX_FILES} files, got {len(files)}", field="files")
    labels = parse_labels(fields.get("labels", ""))
    consent = {name: fields.get(name) or labels.get(name, "") for name in ("consent", "consent_by", "consent_scope")}
    return VoiceRequest(
        name=fields.get("name", ""),
        description=fields.get("description", ""),
        language=labels.get("language", ""),
        reference=tuple(files),
        consent=consent["consent"].lower() in YES,
        consent_by=consent["consent_by"],
        consent_scope=consent["consent_scope"],
    )


def parse_labels(text: str) -> dict[str, str]:
    """Parse the labels, a JSON object in a form's field. Raises InvalidMessage if it is malformed."""
    if text in ("", "null"):
        return {}
    labels = load_object(text, len(text.encode()))
    return {name: labels.optional_text(name) or "" for name in labels.names()}


def settings() -> dict[str, Any]:
    """Return the settings, which are the same for every voice."""
    return dict(_SETTINGS)


def check_settings(fields: Fields) -> None:
    """Check new settings of a voice: they are not stored, so a change of the speed is refused.

    Raises:
        InvalidMessage: a field of another type. InvalidRequest: a speed other than 1.
    """
    if fields.optional_number("speed") not in (None, 1.0):
        raise InvalidRequest("a voice keeps no speed of its own here; ask for it with each request", field="speed")
