"""How a checkpoint wants to be served: `serving.json` beside its config.json. Free of torch; travels to the gateway."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from realtime_tts.errors import CheckpointError

ZERO_SHOT_VOICE = "zero-shot"  # the name by which callers ask for a voice that the model makes up
CONTINUITIES = ("continuation", "reference")

# What a caller may ask for, at every door and at the engine's own.
MIN_STEPS, MAX_STEPS = 2, 64  # of the flow; more would only hold up the others
MAX_CFG = 10.0
MAX_SEED = 2**53 - 1  # the largest integer that every JSON reader keeps exact
MAX_INSTRUCTION_CHARS = 500
MIN_SPEED, MAX_SPEED = 0.25, 4.0  # of what is heard, against what the model speaks
MAX_VOLUME = 2.0  # the same: a sample of 1 is 1 or softer


@dataclasses.dataclass(frozen=True, slots=True)
class VoicePolicy:
    """A voice built into a checkpoint: trusted text before the user's, such as a speaker token."""

    text_prefix: str = ""
    description: str = ""
    language: str = ""

    @classmethod
    def from_map(cls, raw: Any) -> VoicePolicy:
        return cls(**_checked(cls, raw, "voices"))


@dataclasses.dataclass(frozen=True, slots=True)
class TextHead:
    """The attention head of the base LM that tells which character is being spoken.

    lag_ms: how long before the end of a patch the character is spoken that it reads there; negative: after it.
    reach: the share of its text that it has come to, at least, when all of it is spoken.
    """

    layer: int
    head: int
    lag_ms: float = 0.0
    reach: float = 0.85

    def __str__(self) -> str:
        """For a person."""
        return f"measured, by head {self.head} of layer {self.layer}"

    @classmethod
    def from_map(cls, raw: Any) -> TextHead:
        fields = _checked(cls, raw, "text_head")
        if not {"layer", "head"} <= set(fields) or min(fields["layer"], fields["head"]) < 0:
            raise CheckpointError("text_head: a layer and a head are needed, from 0 on")
        if not math.isfinite(fields.get("lag_ms", 0.0)):
            raise CheckpointError("text_head: lag_ms must be finite")
        if not 0.0 < fields.get("reach", 1.0) <= 1.0:
            raise CheckpointError("text_head: reach must be a share of the text")
        return cls(**fields)


@dataclasses.dataclass(frozen=True, slots=True)
class ServingPolicy:
    """Defaults fit the published VoxCPM checkpoints.

    languages: those it speaks; empty if the checkpoint does not say, and none is refused then.
    continuity: how a context keeps its voice from segment to segment: by continuing the last audio, or by using it
        as an isolated reference.
    charset: characters the tokenizer knows, None for all.
    max_patches_per_char: a tighter length guard than the model's own.
    max_prompt_patches: the audio that continuity may carry over.
    text_head: None if it is not known; it is looked for then when the checkpoint is first loaded.
    onset_db: where the checkpoint begins with silence: a context's speech is sent from where it is louder than that, dB
        of full scale. None: as it was made.
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
        """Of a checkpoint directory; without a serving.json, the defaults.

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
    def from_map(cls, raw: Any) -> ServingPolicy:
        """From a parsed serving.json, or from `to_map`'s result."""
        fields = _checked(cls, raw, "serving.json")
        if not isinstance(fields.get("voices", {}), Mapping):
            raise CheckpointError("serving.json: voices is not an object")
        fields["voices"] = {name: VoicePolicy.from_map(voice) for name, voice in fields.get("voices", {}).items()}
        if "languages" in fields:
            fields["languages"] = _strings(fields["languages"], "languages")
        if fields.get("text_head") is not None:
            fields["text_head"] = TextHead.from_map(fields["text_head"])
        policy = cls(**fields)
        _check(policy)
        return policy

    def to_map(self) -> dict[str, Any]:
        """Plain JSON and msgpack types; `from_map` gives an equal policy back."""
        raw = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        voices = {name: dataclasses.asdict(voice) for name, voice in self.voices.items()}
        text_head = dataclasses.asdict(self.text_head) if self.text_head else None
        return {**raw, "languages": list(self.languages), "voices": voices, "text_head": text_head}


_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "str | None": (str, type(None)),
    "float | None": (int, float, type(None)),
}


def _checked(cls: type, raw: Any, where: str) -> dict[str, Any]:
    """A copy of `raw` with only known keys and scalars of their declared type."""
    if not isinstance(raw, Mapping):
        raise CheckpointError(f"{where} is not an object")
    declared = {field.name: str(field.type) for field in dataclasses.fields(cls)}
    for key, value in raw.items():
        if key not in declared:
            raise CheckpointError(f"{where}: unknown key {key!r}")
        types = _TYPES.get(declared[key])
        if types and (not isinstance(value, types) or isinstance(value, bool)):
            raise CheckpointError(f"{where}: {key} must be {declared[key]}, not {type(value).__name__}")
    return dict(raw)


def _strings(values: Any, key: str) -> tuple[str, ...]:
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) for value in values):
        raise CheckpointError(f"serving.json: {key} must be a list of strings")
    return tuple(values)


def _check(policy: ServingPolicy) -> None:
    rules = {
        f"default_steps must be {MIN_STEPS} to {MAX_STEPS}": MIN_STEPS <= policy.default_steps <= MAX_STEPS,
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
