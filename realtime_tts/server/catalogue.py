"""What the loaded model offers: voices, languages, and how text is prepared for it."""

from __future__ import annotations

from typing import Any

from realtime_tts.config import ServerConfig
from realtime_tts.errors import UnsupportedLanguage, VoiceNotFound
from realtime_tts.session.settings import ContextSettings
from realtime_tts.text.planner import PlannerFactory, SpeechPlanner
from realtime_tts.workers import frames
from realtime_tts.workers.policy import ZERO_SHOT_VOICE, ServingPolicy


class Catalogue:
    """Built once from a worker's `Ready`; immutable afterwards."""

    def __init__(self, ready: frames.Ready, config: ServerConfig) -> None:
        self.ready = ready
        self.policy = ServingPolicy.from_map(ready.policy)
        self._config = config
        self._planners = PlannerFactory(
            self.policy.charset, self.policy.max_segment_chars, config.stall_flush_s or None
        )
        self._voice_ids = {ZERO_SHOT_VOICE, *(voice["id"] for voice in ready.voices)}
        self.default_voice: str = ready.default_voice or ZERO_SHOT_VOICE

    def resolve_voice(self, name: str | None) -> str:
        """The id of a voice. Names of other services' voices get the default one, so that stock clients work.

        Raises:
            VoiceNotFound: an unknown name under `strict_ids`.
        """
        if name is None or name == self.default_voice:
            return self.default_voice
        if name in self._voice_ids:
            return name
        if self._config.strict_ids:
            raise VoiceNotFound("there is no voice of this name; GET /v1/voices lists them", field="voice")
        return self.default_voice

    def make_planner(self, settings: ContextSettings) -> SpeechPlanner:
        """A planner for one context.

        Raises:
            UnsupportedLanguage: asked for by name, and not one of the model's.
        """
        language = settings.language or self._config.language
        base = language.lower().replace("_", "-").split("-")[0]
        if settings.language is not None and self.policy.languages and base not in self.policy.languages:
            known = ", ".join(self.policy.languages)
            raise UnsupportedLanguage(f"the model speaks {known}", field="params.language")
        return self._planners.make(base)

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
                    "languages": list(self.policy.languages),
                    "default_voice": self.default_voice,
                    "default_steps": self.policy.default_steps,
                    "default_cfg": self.policy.default_cfg,
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
                "default": voice["id"] == self.default_voice,
            }
            for voice in self.ready.voices
        ]
        if self.default_voice == ZERO_SHOT_VOICE:
            description = "a voice of the model's own choice, fixed by the seed"
            voices.insert(0, {"id": ZERO_SHOT_VOICE, "description": description, "language": "", "default": True})
        return {"voices": voices, "default_voice": self.default_voice}
