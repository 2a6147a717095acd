"""``realtime-tts adapters``, ``adapters load`` and ``adapters unload``"""

from __future__ import annotations

import json
from urllib.parse import quote

import click

from realtime_tts.cli.remote import DEFAULT_URL, api_key_option, ask, refuse_unused, server_options

_EPILOG = """\b
Examples:
  realtime-tts serve --model openbmb/VoxCPM2 --adapters-dir ./adapters
  realtime-tts adapters load support-agent
  realtime-tts say --url http://127.0.0.1:8000 --adapter support-agent "Hello there."
  realtime-tts adapters unload support-agent
"""


@click.group("adapters", epilog=_EPILOG, invoke_without_command=True)
@click.option(
    "--url", envvar="REALTIME_TTS_URL", show_envvar=True, default=DEFAULT_URL, show_default=True, help="The server."
)
@api_key_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(context: click.Context, url: str, api_key: str | None, as_json: bool) -> None:
    """List the LoRA adapters of a running server, load more of them, or unload some."""
    if context.invoked_subcommand is not None:
        refuse_unused(context)
        return
    adapters = ask(url, "/v1/adapters", api_key)["adapters"]
    if as_json:
        click.echo(json.dumps(adapters, indent=2))
        return
    for adapter in adapters:
        click.echo(f"{adapter['name']:<24} rank {adapter['rank']:<4} {adapter['digest'][:12]}")
    if not adapters:
        click.echo("No adapter is loaded.")


@command.command("load")
@click.argument("name")
@server_options
def load(name: str, url: str, api_key: str | None) -> None:
    """Load an adapter from the directory that the server was given (--adapters-dir), by the name it has there."""
    adapter = ask(url, "/v1/adapters", api_key, body={"name": name})
    click.echo(f"{adapter['name']} (rank {adapter['rank']}) can be spoken with")


@command.command("unload")
@click.argument("name")
@server_options
def unload(name: str, url: str, api_key: str | None) -> None:
    """Unload an adapter; speech that is running with it ends."""
    ask(url, f"/v1/adapters/{quote(name, safe='')}", api_key, method="DELETE")
