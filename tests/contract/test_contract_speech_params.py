"""The table of speech parameters: a new entry is parsed, checked, described and offered everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from realtime_tts.api.request import SpeechArguments
from realtime_tts.cli.options import speech_options
from realtime_tts.contract import frames
from realtime_tts.contract.speech_params import SPEECH_PARAMS, SpeechParam, given, with_defaults
from realtime_tts.dialects.json_input import read_params
from realtime_tts.errors import InvalidMessage, InvalidRequest
from realtime_tts.server.http.catalogue import Catalogue
from realtime_tts.session.settings import Choices
from realtime_tts.speech.defaults import SpeechDefaults

SPEAKING = Path(__file__).resolve().parents[2] / "docs/guides/speaking.md"


@pytest.fixture
def breath(monkeypatch: pytest.MonkeyPatch) -> SpeechParam:
    param = SpeechParam("Loudness of breaths.", default=0.5, minimum=0.0, maximum=2.0, type=float)
    monkeypatch.setitem(SPEECH_PARAMS, "breath", param)
    return param


READY = frames.Ready("m", "cpu", "float32", "eager", 16_000, 2560)


def make_defaults() -> SpeechDefaults:
    return SpeechDefaults(READY, voices=lambda tenant: ["a"], language="en", stall_flush_s=None, draw_seed=lambda: 1)


@pytest.mark.usefixtures("breath")
def test_a_new_parameter_is_one_entry() -> None:
    read: Any = read_params({"breath": 1, "speed": 2})
    assert read == {"breath": 1.0, "speed": 2.0}
    with pytest.raises(InvalidMessage, match="breath must be a valid number"):
        read_params({"breath": "much"})

    defaults = make_defaults()
    params: Any = defaults.resolve(Choices(params=read), Choices()).params
    assert (params["breath"], params["speed"]) == (1.0, 2.0)
    assert defaults.resolve(Choices(), Choices()).params.items() >= {"breath": 0.5}.items()
    with pytest.raises(InvalidRequest, match="breath must be between 0 and 2, got 3") as caught:
        defaults.resolve(Choices(), Choices(params=given(breath=3.0)))
    assert caught.value.field == "params.breath"

    listed: Any = Catalogue(READY, defaults, 100, "off").models()
    assert listed["data"][0]["params"]["breath"] == {"min": 0.0, "max": 2.0, "default": 0.5}
    arguments: Any = {"breath": 2.0}
    assert SpeechArguments("Hi.", **arguments).params == {"seed": 0, "breath": 2.0}

    @click.command()
    @speech_options
    def say(**options: Any) -> None:
        click.echo(f"breath {options['breath']}")

    assert CliRunner().invoke(say, ["--breath", "1"]).output == "breath 1.0\n"
    assert "Loudness of breaths." in CliRunner().invoke(say, ["--help"]).output


def test_a_schema_has_the_bounds_of_the_table(breath: SpeechParam) -> None:
    schema = {"type": "number", "minimum": 0.0, "maximum": 2.0, "default": 0.5}
    assert breath.json_schema() == schema | {"description": "Loudness of breaths."}
    assert SPEECH_PARAMS["lexicon"].json_schema()["additionalProperties"] == {"type": "string"}
    assert SPEECH_PARAMS["mode"].json_schema()["enum"] == ["live", "clause"]


def test_unset_values_are_left_out_and_unknown_names_refused() -> None:
    assert given(speed=None, seed=0) == {"seed": 0}
    assert with_defaults(given(speed=2.0)) == {"speed": 2.0, "volume": 1.0, "text_type": "auto"}
    with pytest.raises(TypeError, match="pitch"):
        SpeechArguments("Hi.", pitch=2)  # type: ignore[call-arg]


def test_the_documentation_has_the_table() -> None:
    rows = ["| parameter | `say` | values | default | |", "|---|---|---|---|---|"]
    for name, param in SPEECH_PARAMS.items():
        bounds = f"{param.minimum:.16g} to {param.maximum:.16g}" if param.minimum is not None else ""
        values = bounds or ", ".join(f"`{each}`" for each in param.choices)
        values = values or (f"{param.max_chars} characters" if param.max_chars else "")
        default = "" if param.default is None else f"{param.default}"
        rows.append(f"| `{name}` | `--{name.replace('_', '-')}` | {values} | {default} | {param.help} |")
    table = "\n".join(rows)
    assert table in SPEAKING.read_text(encoding="utf-8"), f"the table of {SPEAKING.name} must be:\n{table}"
