"""Speech parameters, each defined once: type, bounds, choices, default and help.

The table gives the parsers of the native protocol and of OpenAI's, the checks, `GET /v1/models`, OpenAPI, the options
of `realtime-tts say`, the arguments of `TTS.generate` and the table in the documentation. There a new parameter is one
key of `SpeechParams` and the code that obeys it. The other dialects map their own fields: they offer it only once their
parsers do. The voice and the audio format are no parameters: each has its own place in every protocol.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict, cast

from realtime_tts.errors import InvalidRequest

MIN_FLOW_STEPS, MAX_FLOW_STEPS = 2, 64  # more would only delay other streams
MAX_CFG = 10.0
MAX_SEED = 2**53 - 1  # the largest integer that every JSON reader keeps exact
MAX_INSTRUCTION_CHARS = 500
MIN_SPEED, MAX_SPEED = 0.25, 4.0
MAX_VOLUME = 2.0
MAX_SENTENCE_PAUSE_MS = 3000.0
MODES = ("live", "clause")
SWITCH = ("on", "off")
TEXT_TYPES = ("auto", "text", "ssml")


@dataclasses.dataclass(frozen=True, slots=True)
class SpeechParam:
    """Definition of one parameter.

    Attributes:
        default: value where a request sets none; None: the model's or the server's value, or none, as `help` says.
        minimum, maximum: inclusive bounds of a number.
        max_chars: largest length of a string.
        type: int, float, str or Mapping (of strings).
    """

    help: str
    default: Any = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    max_chars: int | None = None
    type: Any = str

    def check(self, name: str, value: Any) -> None:
        """Raises:
        InvalidRequest: the value is out of bounds; its `field` is `params.<name>`.
        """
        problem = None
        if self.minimum is not None and self.maximum is not None and not self.minimum <= value <= self.maximum:
            problem = f"must be between {_plain(self.minimum)} and {_plain(self.maximum)}, got {_plain(value)}"
        elif self.choices and value not in self.choices:
            problem = f"must be one of {', '.join(self.choices)}, got {value[:64]!r}"
        elif self.max_chars is not None and len(value) > self.max_chars:
            problem = f"must have at most {self.max_chars} characters, got {len(value)}"
        if problem is not None:
            raise InvalidRequest(f"{name} {problem}", field=f"params.{name}")

    def bounds(self) -> dict[str, Any]:
        """Return the bounds, choices and default that are set, as `GET /v1/models` has them."""
        named = {"min": self.minimum, "max": self.maximum, "choices": list(self.choices) or None}
        named |= {"max_chars": self.max_chars, "default": self.default}
        return {name: value for name, value in named.items() if value is not None}

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of a value."""
        types: dict[Any, dict[str, Any]] = {
            int: {"type": "integer"},
            float: {"type": "number"},
            str: {"type": "string"},
            Mapping: {"type": "object", "additionalProperties": {"type": "string"}},
        }
        names = {"min": "minimum", "max": "maximum", "choices": "enum", "max_chars": "maxLength", "default": "default"}
        bounds = {names[name]: value for name, value in self.bounds().items()}
        return {**types[self.type], **bounds, "description": self.help}


class SpeechParams(TypedDict, total=False):
    """Values of speech parameters by their names on the wire. A missing one is left to the session, then to the server,
    then to the model."""

    speed: Annotated[
        float, SpeechParam("Tempo factor; the pitch is kept.", default=1.0, minimum=MIN_SPEED, maximum=MAX_SPEED)
    ]
    volume: Annotated[float, SpeechParam("Level factor; nothing clips.", default=1.0, minimum=0.0, maximum=MAX_VOLUME)]
    sentence_pause_ms: Annotated[
        float,
        SpeechParam(
            "Silence added between sentences, ms. Default: the server's.", minimum=0.0, maximum=MAX_SENTENCE_PAUSE_MS
        ),
    ]
    language: Annotated[
        str,
        SpeechParam("BCP 47 tag of the language in which numbers, dates and the like are read. Default: the server's."),
    ]
    text_type: Annotated[
        str,
        SpeechParam(
            "Plain text or SSML; auto: SSML if the text begins with `<speak`.", default="auto", choices=TEXT_TYPES
        ),
    ]
    lexicon: Annotated[
        Mapping[str, str], SpeechParam('Up to 100 words and phrases with their respellings: `{"nginx": "engine x"}`.')
    ]
    mode: Annotated[
        str,
        SpeechParam(
            "Speak text that is still being written from its first words on, or clause by clause. Default: live if the "
            "model measures which word it speaks.",
            choices=MODES,
        ),
    ]
    adapter: Annotated[str, SpeechParam("Name of a loaded LoRA adapter; empty: none.")]
    instructions: Annotated[
        str,
        SpeechParam(
            "Description of the voice and the style, for models with voice design.", max_chars=MAX_INSTRUCTION_CHARS
        ),
    ]
    seed: Annotated[
        int,
        SpeechParam(
            "Seed of the noise: the same seed gives the same speech. Default: random; 0 with `openings`.",
            minimum=0,
            maximum=MAX_SEED,
        ),
    ]
    openings: Annotated[
        str,
        SpeechParam(
            "Begin with speech from memory if another context began alike. Default: on with the server's `--openings`.",
            choices=SWITCH,
        ),
    ]
    cfg: Annotated[
        float,
        SpeechParam("Guidance: how closely to keep to the text. Default: the model's.", minimum=0.0, maximum=MAX_CFG),
    ]
    steps: Annotated[
        int,
        SpeechParam(
            "Number of flow steps: more is better and slower. Default: the model's.",
            minimum=MIN_FLOW_STEPS,
            maximum=MAX_FLOW_STEPS,
        ),
    ]


def _table() -> dict[str, SpeechParam]:
    hints = typing.get_type_hints(SpeechParams, include_extras=True)
    definitions = {name: (hint.__origin__, hint.__metadata__[0]) for name, hint in hints.items()}
    return {
        name: dataclasses.replace(definition, type=typing.get_origin(kind) or kind)
        for name, (kind, definition) in definitions.items()
    }


SPEECH_PARAMS = _table()


def given(**values: Any) -> SpeechParams:
    """Return parameters of those values that are not None.

    Raises:
        TypeError: an unknown name.
    """
    if unknown := values.keys() - SPEECH_PARAMS.keys():
        raise TypeError(f"unknown speech parameters: {', '.join(sorted(unknown))}")
    return cast(SpeechParams, {name: value for name, value in values.items() if value is not None})


def with_defaults(params: SpeechParams, table: Mapping[str, SpeechParam] = SPEECH_PARAMS) -> SpeechParams:
    """Return the parameters with the defaults of those that are missing and have one."""
    return given(**{name: each.default for name, each in table.items()}) | params


def _plain(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"
