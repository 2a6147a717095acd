"""Serving policy of a checkpoint: `serving.json` beside its config.json. Free of torch; sent to the gateway."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, with_config

from realtime_tts.contract.json_fields import STRICT, dataclass_of
from realtime_tts.contract.speech_params import MAX_CFG, MAX_FLOW_STEPS, MIN_FLOW_STEPS
from realtime_tts.errors import CheckpointError

ZERO_SHOT_VOICE = "zero-shot"  # name of the voice that the model makes up


@with_config(STRICT)
@dataclasses.dataclass(frozen=True, slots=True)
class VoicePolicy:
    """Voice built into a checkpoint: trusted text before the user's text, such as a speaker token."""

    text_prefix: str = ""
    description: str = ""
    language: str = ""


@with_config(STRICT)
@dataclasses.dataclass(frozen=True, slots=True)
class TextHead:
    """Attention head of the base LM that shows which character is being spoken.

    lag_ms: time from speaking a character to the end of the patch whose attention shows it; negative: spoken later.
    reach: smallest share of the text that the head has reached when all of it is spoken.
    """

    layer: NonNegativeInt
    head: NonNegativeInt
    lag_ms: float = 0.0
    reach: Annotated[float, Field(gt=0, le=1)] = 0.85

    def __str__(self) -> str:
        """Return a description for people."""
        return f"measured, by head {self.head} of layer {self.layer}"

    @classmethod
    def from_map(cls, raw: object) -> TextHead:
        return dataclass_of(cls, raw, lambda field, problem: CheckpointError(f"text_head: {problem}"))


@with_config(STRICT)
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
    default_steps: Annotated[int, Field(ge=MIN_FLOW_STEPS, le=MAX_FLOW_STEPS)] = 10
    default_cfg: Annotated[float, Field(ge=0, le=MAX_CFG)] = 2.0
    continuity: Literal["continuation", "reference"] = "continuation"
    max_segment_chars: PositiveInt = 200
    charset: str | None = None
    max_patches_per_char: PositiveFloat | None = None
    max_prompt_patches: NonNegativeInt = 64
    default_voice: str | None = None
    voices: Mapping[str, VoicePolicy] = dataclasses.field(default_factory=dict)
    text_head: TextHead | None = None
    onset_db: NegativeFloat | None = None

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
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"serving.json cannot be read: {error}") from error
        return cls.from_map(raw)

    @classmethod
    def from_map(cls, raw: object) -> ServingPolicy:
        """Make a policy from a parsed serving.json, or from the result of `to_map`."""
        policy = dataclass_of(cls, raw, lambda field, problem: CheckpointError(f"serving.json: {problem}"))
        if policy.default_voice is not None and policy.default_voice not in policy.voices:
            raise CheckpointError(f"serving.json: default_voice {policy.default_voice!r} is none of voices")
        return policy

    def to_map(self) -> dict[str, object]:
        """Return the policy in plain JSON and msgpack types; `from_map` gives an equal one."""
        return {**dataclasses.asdict(self), "languages": list(self.languages)}
