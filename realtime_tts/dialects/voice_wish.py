"""What a client hands over to have a voice made of it, in this server's terms. Pure."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from realtime_tts.dialects.json_input import Fields
from realtime_tts.errors import InvalidMessage, InvalidRequest

YES = frozenset({"true", "yes", "1", "on"})


@dataclass(frozen=True, slots=True)
class VoiceWish:
    """Recordings (files of any usual format, whole), or a description; and what is said of them.

    Attributes:
        name: "" for a voice without one, which goes `ttl_s` after its last use.
        reference: speech to sound like; several files count as one recording.
        prompt: speech to continue from, in which `prompt_text` is said.
        instructions: for a voice that the model makes up.
        consent: whether the speaker agrees; `consent_by` says so, and to what: `consent_scope`.
    """

    name: str = ""
    description: str = ""
    language: str = ""
    reference: tuple[bytes, ...] = ()
    prompt: bytes = b""
    prompt_text: str | None = None
    instructions: str = ""
    consent: bool = False
    consent_by: str = ""
    consent_scope: str = ""
    ttl_s: float | None = None

    @property
    def has_recordings(self) -> bool:
        return bool(self.reference or self.prompt)


def parse_inline_voice(fields: Fields, ttl_s: float) -> VoiceWish:
    """The object in the place of a voice's name, its recordings in base64: what `POST /v1/voices` takes as a form.

    Raises:
        InvalidMessage: a field of another type, or no recording. InvalidRequest: no base64.
    """
    wish = VoiceWish(
        reference=(reference,) if (reference := _recording(fields, "reference")) else (),
        prompt=_recording(fields, "prompt"),
        prompt_text=fields.optional_text("prompt_text"),
        consent=bool(fields.optional_boolean("consent")),
        consent_by=fields.optional_text("consent_by") or "",
        consent_scope=fields.optional_text("consent_scope") or "",
        ttl_s=ttl_s,
    )
    if not wish.has_recordings:
        raise InvalidMessage(
            "voice.id is missing, or a recording: reference, or prompt and prompt_text", field="voice.id"
        )
    return wish


def _recording(fields: Fields, name: str) -> bytes:
    encoded = fields.optional_plain_text(name)
    try:
        return base64.b64decode(encoded or "", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"voice.{name} is no base64", field=f"voice.{name}") from None
