"""``realtime-tts voices``, ``voices add`` and ``voices delete``"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import click

from realtime_tts.cli.options import recording_options
from realtime_tts.cli.remote import api_key_option, ask, refuse_unused, server_options
from realtime_tts.contract.location import check_location
from realtime_tts.contract.policy import ServingPolicy
from realtime_tts.errors import ConfigError

_EPILOG = """\b
Examples:
  realtime-tts voices
  realtime-tts voices --url http://127.0.0.1:8000
  realtime-tts voices add Anna --reference anna.wav --consent
  realtime-tts voices delete Anna
"""


@click.group("voices", epilog=_EPILOG, invoke_without_command=True)
@click.option("--model", default="starter-voice", show_default=True, help="A directory, or 'starter-voice'.")
@click.option("--url", envvar="REALTIME_TTS_URL", show_envvar=True, help="Ask this server instead.")
@api_key_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(context: click.Context, model: str, url: str | None, api_key: str | None, as_json: bool) -> None:
    """List the voices of a model or of a running server; add and delete voices of a server."""
    if context.invoked_subcommand is not None:
        refuse_unused(context)
        return
    voices = ask(url, "/v1/voices", api_key)["voices"] if url else local_voices(model)
    if as_json:
        click.echo(json.dumps(voices, indent=2))
        return
    for voice in voices:
        mark = "*" if voice["default"] else " "
        click.echo(f"{mark} {voice['name']:<12} {voice['language']:<6} {voice['description']}".rstrip())
    if not voices:
        click.echo("This model has no named voices: it finds one by itself, or speaks like a recording (--reference).")
    elif any(voice["default"] for voice in voices):
        click.echo("* is the default", err=True)


@command.command("add")
@click.argument("name")
@recording_options
@click.option("--instructions", help="Description of the voice in place of recordings, for models with voice design.")
@click.option("--description", default="", help="Description shown in lists.")
@click.option("--language", default="", help="Language code, such as en.")
@server_options
def add(name: str, reference: Path | None, prompt: Path | None, url: str, api_key: str | None, **about: object) -> None:
    """Add a voice to a server, from recordings of one speaker (2 to 60 s) or from a description."""
    given = {field: "true" if value is True else str(value) for field, value in about.items() if value}
    files = {part: path for part, path in {"reference": reference, "prompt": prompt}.items() if path is not None}
    voice = ask(url, "/v1/voices", api_key, body={"name": name, **given}, files=files)
    click.echo(voice["id"])
    for warning in voice["warnings"]:
        click.secho(f"Warning: {warning['field']}: {warning['message']}", fg="yellow", err=True)


@command.command("delete")
@click.argument("name")
@server_options
def delete(name: str, url: str, api_key: str | None) -> None:
    """Delete a voice of a server, by its name or id, with all its stored data."""
    ask(url, f"/v1/voices/{quote(name, safe='')}", api_key, method="DELETE")


def local_voices(model: str) -> list[dict[str, object]]:
    """Return the voices of a local checkpoint; only its serving.json is read.

    Raises:
        ConfigError: the checkpoint is not on this machine.
        CheckpointError: the model is unknown, or its serving.json is damaged.
    """
    directory = check_location(model)
    if directory is None:
        raise ConfigError(
            f"{model} is no directory here; models of the hub have no named voices unless a server says so: use --url",
            field="model",
        )
    policy = ServingPolicy.load(directory)
    return [
        {
            "id": name,
            "name": name,
            "language": voice.language,
            "description": voice.description,
            "default": name == policy.default_voice,
        }
        for name, voice in policy.voices.items()
    ]
