"""Serving policy of a checkpoint: `serving.json` beside its config.json. Free of torch; sent to the gateway."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from realtime_tts.contract.json_fields import typed_fields
from realtime_tts.contract.speech_params import MAX_CFG, MAX_FLOW_STEPS, MIN_FLOW_STEPS
from realtime_tts.errors import CheckpointError

ZERO_SHOT_VOICE = "zero-shot"  # name of the voice that the model makes up
CONTINUITIES = ("continuation", "reference")


@dataclasses.dataclass(frozen=True, slots=True)
class VoicePolicy:
    """Voice built into a checkpoint: trusted text before the user's text, such as a speaker token."""

    text_prefix: str = ""
    description: str = ""
    language: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class TextHead:
    """Attention head of the base LM that shows which character is being spoken.

    lag_ms: time from speaking a character to the end of the patch whose attention shows it; negative: spoken later.
    reach: smallest share of the text that the head has reached when all of it is spoken.
    """

    layer: int
    head: int
    lag_ms: float = 0.0
    reach: float = 0.85

    def __str__(self) -> str:
        """Return a description for people."""
        return f"measured, by head {self.head} of layer {self.layer}"

    @classmethod
    def from_map(cls, raw: object) -> TextHead:
        fields = _fields(cls, raw, "text_head")
        if not {"layer", "head"} <= set(fields) or min(fields["layer"], fields["head"]) < 0:
            raise CheckpointError("text_head: a layer and a head are needed, from 0 on")
        if not math.isfinite(fields.get("lag_ms", 0.0)):
            raise CheckpointError("text_head: lag_ms must be finite")
        if not 0.0 < fields.get("reach", 1.0) <= 1.0:
            raise CheckpointError("text_head: reach must be a share of the text")
        return cls(**fields)


@dataclasses.dataclass(frozen=True, slots=True)
class ServingPolicy:
    """Serving policy; the defaults fit the published VoxCPM checkpoints.

    languages: supported languages; empty if the checkpoint does not list them: then none is refused.
    continuity: how a context keeps its voice between segments: by continuing the last audio, or by using it as an
        isolated reference.
    charset: characters in the tokenizer's vocabulary; None for all.
    max_patches_per_char: a tighter length guard than the model's own.
    max_prompt_patches: the audio that continuity may carry over.
    text_head: None if unknown; then it is searched when the checkpoint is first loaded.
    onset_db: for checkpoints that begin with silence: a context's audio is sent from where it exceeds this level, dB of
        full scale. None: all audio is sent.
    """

    name: str = ""
    languages: tuple[str, ...] = ()
    default_steps: int = 10
    default_cfg: float = 2.0
    continuity: str = "continuation"
    max_segment_chars: int = 200
    charset: str | None = None
    max_patches_per_char: float | None = None
    max_prompt_patches: int = 64
    default_voice: str | None = None
    voices: Mapping[str, VoicePolicy] = dataclasses.field(default_factory=dict)
    text_head: TextHead | None = None
    onset_db: float | None = None

    @classmethod
    def load(cls, directory: str | Path) -> ServingPolicy:
        """Read the policy of a checkpoint directory; without a serving.json, the defaults.

        Raises:
            CheckpointError: not JSON, an unknown key, or a value of the wrong type or range.
        """
        path = Path(directory) / "serving.json"
        if not path.exists():
            return cls()
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"serving.json cannot be read: {error}") from error
        return cls.from_map(raw)

    @classmethod
    def from_map(cls, raw: object) -> ServingPolicy:
        """Make a policy from a parsed serving.json, or from the result of `to_map`."""
        fields = _fields(cls, raw, "serving.json")
        voices = fields.get("voices", {})
        if not isinstance(voices, Mapping):
            raise CheckpointError("serving.json: voices is not an object")
        fields["voices"] = {
            name: VoicePolicy(**_fields(VoicePolicy, voice, "voices")) for name, voice in voices.items()
        }
        if fields.get("text_head") is not None:
            fields["text_head"] = TextHead.from_map(fields["text_head"])
        policy = cls(**fields)
        _check(policy)
        return policy

    def to_map(self) -> dict[str, object]:
        """Return the policy in plain JSON and msgpack types; `from_map` gives an equal one."""
        return {**dataclasses.asdict(self), "languages": list(self.languages)}


def _fields(cls: type, raw: object, where: str) -> dict[str, Any]:
    return typed_fields(cls, raw, lambda key, problem: CheckpointError(f"{where}: {problem}"))


def _check(policy: ServingPolicy) -> None:
    rules = {
        f"default_steps must be {MIN_FLOW_STEPS} to {MAX_FLOW_STEPS}": MIN_FLOW_STEPS
        <= policy.default_steps
        <= MAX_FLOW_STEPS,
        f"default_cfg must be 0 to {MAX_CFG:g}": 0 <= policy.default_cfg <= MAX_CFG,
        f"continuity must be one of {', '.join(CONTINUITIES)}": policy.continuity in CONTINUITIES,
        "max_segment_chars must be positive": policy.max_segment_chars > 0,
        "max_prompt_patches must not be negative": policy.max_prompt_patches >= 0,
        "max_patches_per_char must be positive": policy.max_patches_per_char is None or policy.max_patches_per_char > 0,
        "onset_db must be negative": policy.onset_db is None or policy.onset_db < 0,
        "default_voice must be one of voices": policy.default_voice is None or policy.default_voice in policy.voices,
    }
    for rule, holds in rules.items():
        if not holds:
            raise CheckpointError(f"serving.json: {rule}")
