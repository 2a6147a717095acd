"""Request for a new voice, independent of the dialect. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import model_validator

from realtime_tts.dialects.json_input import Body
from realtime_tts.errors import InvalidMessage, InvalidRequest

YES = frozenset({"true", "yes", "1", "on"})


@dataclass(frozen=True, slots=True)
class VoiceRequest:
    """Recordings (complete files of any usual format) or a description, with labels and consent.

    Attributes:
        name: "" for a temporary voice.
        reference: recording of the voice; several files count as one recording.
        prompt: recording to continue from; `prompt_text` is its transcript.
        instructions: description of a voice that the model designs.
        consent: whether the speaker agrees; `consent_by`: the person that states it; `consent_scope`: to which use.
        ttl_s: a temporary voice is removed this many seconds after its last use; None: the voice is kept.
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

    @classmethod
    def of_form(
        cls, fields: Mapping[str, str], reference: Sequence[bytes] = (), prompt: bytes = b"", ttl_s: float | None = None
    ) -> VoiceRequest:
        """Return the request in the fields of a form and its recordings."""
        names = ("name", "description", "language", "instructions", "consent_by", "consent_scope")
        return cls(
            **{name: fields.get(name, "") for name in names},
            prompt_text=fields.get("prompt_text") or None,
            consent=fields.get("consent", "").lower() in YES,
            reference=tuple(reference),
            prompt=prompt,
            ttl_s=ttl_s,
        )

    @property
    def has_recordings(self) -> bool:
        return bool(self.reference or self.prompt)


class VoiceName(Body):
    """Voice that a request names: a string, or an object with an `id`."""

    id: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_string(cls, value: object) -> object:
        return {"id": value} if isinstance(value, str) else value


class InlineVoice(VoiceName):
    """Voice that a request names, or the recordings of `POST /v1/voices` in base64."""

    reference: str = ""
    prompt: str = ""
    prompt_text: str | None = None
    consent: bool = False
    consent_by: str = ""
    consent_scope: str = ""

    def own_voice(self, ttl_s: float) -> VoiceRequest:
        """Return the voice to make of the recordings.

        Raises:
            InvalidMessage: no recording. InvalidRequest: malformed base64.
        """
        wanted = VoiceRequest(
            reference=(reference,) if (reference := _recording("reference", self.reference)) else (),
            prompt=_recording("prompt", self.prompt),
            prompt_text=self.prompt_text,
            consent=self.consent,
            consent_by=self.consent_by,
            consent_scope=self.consent_scope,
            ttl_s=ttl_s,
        )
        if not wanted.has_recordings:
            raise InvalidMessage(
                "voice.id is missing, or a recording: reference, or prompt and prompt_text", field="voice.id"
            )
        return wanted


def _recording(name: str, encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"voice.{name} is no base64", field=f"voice.{name}") from None
