"""The options ``--url`` and ``--api-key`` of command groups and their subcommands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

DEFAULT_URL = "http://127.0.0.1:8000"
Command = TypeVar("Command", bound=Callable[..., object])

api_key_option = click.option(
    "--api-key", envvar="REALTIME_TTS_API_KEY", show_envvar=True, help="The server's API key."
)


def server_options(command: Command) -> Command:
    """Add the options to a subcommand. Missing values come from the group, then from its environment variables."""
    url = click.option("--url", callback=_or_of_group, help=f"The server.  [default: {DEFAULT_URL}]")
    api_key = click.option("--api-key", callback=_or_of_group, help="The server's API key.")
    return url(api_key(command))


def refuse_unused(context: click.Context) -> None:
    """Refuse options of the group that its subcommand would ignore.

    Raises:
        click.UsageError: such an option is on the command line.
    """
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name not in ("url", "api_key") and source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option.opts[0]} cannot be used with {context.invoked_subcommand!r}", context)


def _or_of_group(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    given = context.parent.params if context.parent else {}
    return value or given.get(option.name or "") or (DEFAULT_URL if option.name == "url" else None)
