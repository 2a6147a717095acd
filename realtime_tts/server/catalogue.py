"""What the loaded model offers, as the HTTP addresses tell it."""

from __future__ import annotations

from typing import Any

from realtime_tts.speech.defaults import SpeechDefaults
from realtime_tts.workers import frames
from realtime_tts.workers.policy import ZERO_SHOT_VOICE


class Catalogue:
    """Built once from a worker's `Ready`; immutable afterwards."""

    def __init__(self, ready: frames.Ready, defaults: SpeechDefaults) -> None:
        self.ready, self.defaults = ready, defaults

    def models(self) -> dict[str, Any]:
        """The body of `GET /v1/models`."""
        ready = self.ready
        return {
            "object": "list",
            "data": [
                {
                    "id": ready.model,
                    "object": "model",
                    "owned_by": "realtime-tts",
                    "sample_rate": ready.sample_rate,
                    "languages": list(self.defaults.policy.languages),
                    "default_voice": self.defaults.default_voice,
                    "default_steps": self.defaults.policy.default_steps,
                    "default_cfg": self.defaults.policy.default_cfg,
                    "device": ready.device,
                    "dtype": ready.dtype,
                    "attention_backend": ready.backend,
                }
            ],
        }

    def voices(self) -> dict[str, Any]:
        """The body of `GET /v1/voices`."""
        voices = [
            {
                "id": voice["id"],
                "description": voice.get("description", ""),
                "language": voice.get("language", ""),
                "default": voice["id"] == self.defaults.default_voice,
            }
            for voice in self.ready.voices
        ]
        if self.defaults.default_voice == ZERO_SHOT_VOICE:
            description = "a voice of the model's own choice, fixed by the seed"
            voices.insert(0, {"id": ZERO_SHOT_VOICE, "description": description, "language": "", "default": True})
        return {"voices": voices, "default_voice": self.defaults.default_voice}
