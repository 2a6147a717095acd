"""Command-line flags, made from the table of settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping
from pathlib import Path

import click

from realtime_tts.config import Setting, Settings, settings_table
from realtime_tts.config_loader import KINDS, load_settings
from realtime_tts.contract.location import STARTER_VOICE, check_location
from realtime_tts.contract.policy import ServingPolicy
from realtime_tts.contract.speech_params import SPEECH_PARAMS, SpeechParam
from realtime_tts.errors import ConfigError

Command = Callable[..., object]
Option = Callable[[Command], Command]
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def with_options(*options: Option) -> Option:
    """Return a decorator that adds options, listed in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def setting_options(shown: Container[str]) -> Option:
    """Return a decorator that adds a flag for each setting, ``--config``, and ``--help-all``, which lists every flag;
    ``--help`` lists only the settings in `shown`."""
    config = click.option(
        "--config",
        "config_path",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="REALTIME_TTS_CONFIG",
        show_envvar=True,
        help="TOML file with the tables [engine] and [server].",
    )
    help_all = click.option(
        "--help-all", is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help="Show every setting."
    )
    return with_options(*(_option(row, hidden=row.name not in shown) for row in settings_table()), config, help_all)


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        for other in ctx.command.params:
            if isinstance(other, click.Option):
                other.hidden = False
        click.echo(ctx.get_help())
        ctx.exit()


recording_options = with_options(
    click.option("--reference", type=FILE, help="Recording of the voice to clone."),
    click.option("--prompt", "--prompt-audio", "prompt", type=FILE, help="Recording that the speech continues …"),
    click.option("--prompt-text", help="… and its transcript."),
    click.option("--consent", is_flag=True, help="For a server: the speaker agrees to have the voice cloned."),
    click.option("--consent-by", help="Name of the person that states the consent, if the server requires it."),
    click.option("--consent-scope", help="Permitted use, if the server requires it."),
)


def _option(row: Setting, hidden: bool) -> Option:
    # Flags have no default: missing values come from the environment, the file or the table.
    shown_default = ",".join(row.default) if isinstance(row.default, tuple) else row.default
    text = row.help + (f"  [default: {shown_default}]" if shown_default not in ("", False) else "")
    name = f"{row.flag}/--no-{row.flag[2:]}" if row.type is bool else row.flag
    # The loader parses numbers: it checks the bounds and names the source of a value.
    kind = click.Choice(row.choices) if row.choices else bool if row.type is bool else click.UNPROCESSED
    metavar = None if row.choices else KINDS[row.type].metavar
    return click.option(name, row.name, default=None, type=kind, metavar=metavar, help=text, hidden=hidden)


def _param_option(name: str, param: SpeechParam) -> Option:
    text = _SAY_HELP.get(name, param.help) + ("" if param.default is None else f"  [default: {param.default}]")
    return click.option("--" + name.replace("_", "-"), name, type=_param_type(param), help=text)


_SAY_HELP = {
    "adapter": "LoRA adapter: its directory; with --url, its name on the server.",
    "lexicon": "File of words with their respellings, JSON or PLS; see `realtime-tts lexicon`.",
    "seed": "The same seed gives the same speech.  [default: 0; random with --url]",
}


def _param_type(param: SpeechParam) -> object:
    if param.type is Mapping:
        return FILE
    if param.choices:
        return click.Choice(param.choices)
    ranges: dict[object, Callable[..., object]] = {int: click.IntRange, float: click.FloatRange}
    return ranges[param.type](param.minimum, param.maximum) if param.type in ranges else str


def speech_options(command: Command) -> Command:
    """Add an option for each speech parameter; that of a mapping takes the path of a file."""
    return with_options(*(_param_option(*item) for item in SPEECH_PARAMS.items()))(command)


def voices_of_model(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a voice's name in the shell: a voice of a local checkpoint."""
    directory = check_location(ctx.params.get("model") or STARTER_VOICE)
    known = ServingPolicy.load(directory).voices if directory is not None else ()
    return [voice for voice in known if voice.startswith(incomplete)]


def read_settings(flags: dict[str, object], config_path: Path | None) -> Settings:
    """Return the settings: flags override the environment, which overrides the file.

    Raises:
        ConfigError: the file cannot be read; see also `load_settings`.
    """
    try:
        text = config_path.read_text(encoding="utf-8-sig") if config_path else ""
    except OSError as error:
        raise ConfigError(f"the config file {config_path} cannot be read: {error.strerror}", field="config") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the config file {config_path} is not UTF-8: {error}", field="config") from error
    return load_settings(flags, os.environ, text, f"the config file {config_path}")
