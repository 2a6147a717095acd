"""What the loaded model offers, as the HTTP addresses tell it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from realtime_tts.session.settings import MODES
from realtime_tts.speech.defaults import SpeechDefaults
from realtime_tts.workers import frames
from realtime_tts.workers.policy import MAX_CFG, MAX_INSTRUCTION_CHARS, MAX_SEED, MAX_STEPS, MIN_STEPS, ZERO_SHOT_VOICE


class Catalogue:
    """Built once from a worker's `Ready`; immutable afterwards."""

    def __init__(self, ready: frames.Ready, defaults: SpeechDefaults, max_text_chars: int) -> None:
        self.ready, self.defaults = ready, defaults
        self._max_text_chars = max_text_chars

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
                    "params": self._params(),
                    "text": {"max_chars": self._max_text_chars},
                    "device": ready.device,
                    "dtype": ready.dtype,
                    "attention_backend": ready.backend,
                    "word_timing": ready.text_timing,
                }
            ],
        }

    def _params(self) -> dict[str, Any]:
        """What may be asked for, so that no client has to know the bounds by heart."""
        policy = self.defaults.policy
        return {
            "steps": {"min": MIN_STEPS, "max": MAX_STEPS, "default": policy.default_steps},
            "cfg": {"min": 0.0, "max": MAX_CFG, "default": policy.default_cfg},
            "instructions": {"max_chars": MAX_INSTRUCTION_CHARS},
            "mode": {"choices": list(MODES), "default": self.defaults.default_mode},
            "seed": {"min": 0, "max": MAX_SEED},
        }

    def voices(self, only: Sequence[str] = ()) -> dict[str, Any]:
        """The body of `GET /v1/voices`. `only`: these, the first being the default one; empty: all."""
        default_voice = only[0] if only else self.defaults.default_voice
        voices = [
            {
                "id": voice["id"],
                "description": voice.get("description", ""),
                "language": voice.get("language", ""),
                "default": voice["id"] == default_voice,
            }
            for voice in self.ready.voices
            if not only or voice["id"] in only
        ]
        if not only and self.defaults.default_voice == ZERO_SHOT_VOICE:
            description = "a voice of the model's own choice, fixed by the seed"
            voices.insert(0, {"id": ZERO_SHOT_VOICE, "description": description, "language": "", "default": True})
        return {"voices": voices, "default_voice": default_voice}
