"""Description of the loaded model and its voices for the HTTP interface."""

from __future__ import annotations

import time
from collections.abc import Sequence

from realtime_tts.contract import frames
from realtime_tts.contract.policy import ZERO_SHOT_VOICE
from realtime_tts.server.http import schemas
from realtime_tts.speech.defaults import SpeechDefaults
from realtime_tts.speech.voice_store import VoiceRecord

_AS_READY = ("sample_rate", "device", "dtype", "fp8")


class Catalogue:
    """Built once from a worker's `Ready`; immutable afterwards."""

    def __init__(self, ready: frames.Ready, defaults: SpeechDefaults, max_text_chars: int, consent: str) -> None:
        self.ready, self.defaults = ready, defaults
        self.created = int(time.time())  # Unix time in seconds at which the model was loaded
        self._max_text_chars, self._consent = max_text_chars, consent

    def models(self) -> dict[str, object]:
        """Return the body of `GET /v1/models`."""
        ready = self.ready
        params = {name: param.bounds() for name, param in self.defaults.params.items()}
        params["adapter"]["choices"] = list(self.defaults.adapters)
        return {
            "object": "list",
            "data": [
                {
                    "id": ready.model,
                    "object": "model",
                    "created": self.created,
                    "owned_by": "realtime-tts",
                    "languages": list(self.defaults.policy.languages),
                    "default_voice": self.defaults.default_voice,
                    "default_steps": self.defaults.policy.default_steps,
                    "default_cfg": self.defaults.policy.default_cfg,
                    "params": params,
                    "text": {"max_chars": self._max_text_chars, "letters": self.defaults.letters},
                    "voice_making": {"instructions": ready.takes_instructions, "consent": self._consent},
                    "attention_backend": ready.backend,
                    **{name: getattr(ready, name) for name in _AS_READY},
                    "word_timing": "measured" if self.defaults.policy.text_head else "estimated",
                }
            ],
        }

    def voices(self, only: Sequence[str] = (), added: Sequence[VoiceRecord] = ()) -> schemas.VoiceList:
        """Return the body of `GET /v1/voices`.

        Args:
            only: names of the voices to list, the first being the default; empty: all.
            added: voices that were added to the model's own.
        """
        default_voice = only[0] if only else self.defaults.default_voice
        of_model = self.defaults.policy.voices.items()
        listed = [(name, voice.description, voice.language) for name, voice in of_model]
        if not only and self.defaults.default_voice == ZERO_SHOT_VOICE:
            listed.insert(0, (ZERO_SHOT_VOICE, "a voice of the model's own choice, fixed by the seed", ""))
        voices = [
            schemas.Voice(
                id=name,
                name=name,
                kind="model",
                description=description,
                language=language,
                default=name == default_voice,
            )
            for name, description, language in listed
            if not only or name in only
        ]
        voices += [added_voice(record, default_voice) for record in added if not only or record.name in only]
        return schemas.VoiceList(voices=voices, default_voice=default_voice)


def added_voice(record: VoiceRecord, default_voice: str = "") -> schemas.Voice:
    """Return the entry of an added voice: that of a model's voice, with more fields. Times are Unix times in s."""
    consent = record.consent
    entry = schemas.Voice(
        id=record.voice_id,
        name=record.name,
        kind="cloned" if record.instructions is None else "designed",
        description=record.description,
        language=record.language,
        default=record.name == default_voice,
        created_at=round(record.created_at, 3),
        instructions=record.instructions,
        consent=None
        if consent is None
        else schemas.VoiceConsent(given_by=consent.given_by, scope=consent.scope, at=round(consent.at, 3)),
    )
    if record.expires_at is not None:
        entry.expires_at = round(record.expires_at, 3)
    return entry
