"""``realtime-tts voices``"""

from __future__ import annotations

import json
from typing import Any

import click

_EPILOG = """\b
Examples:
  realtime-tts voices
  realtime-tts voices --url http://127.0.0.1:8000
"""


@click.command("voices", epilog=_EPILOG)
@click.option("--model", default="starter-voice", show_default=True, help="A directory, or 'starter-voice'.")
@click.option("--url", envvar="REALTIME_TTS_URL", help="Ask this server instead.")
@click.option("--api-key", envvar="REALTIME_TTS_API_KEY", help="The server's API key.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(model: str, url: str | None, api_key: str | None, as_json: bool) -> None:
    """List the voices of a model or of a running server."""
    if url:
        from realtime_tts.cli.remote import get_json

        voices = get_json(url, "/v1/voices", api_key)["voices"]
    else:
        voices = local_voices(model)
    if as_json:
        click.echo(json.dumps(voices, indent=2))
        return
    for voice in voices:
        mark = "*" if voice["default"] else " "
        click.echo(f"{mark} {voice['id']:<12} {voice['language']:<6} {voice['description']}".rstrip())
    if not voices:
        click.echo("This model has no named voices: it finds one by itself, or speaks like a recording (--reference).")
    elif any(voice["default"] for voice in voices):
        click.echo("* is the default", err=True)


def local_voices(model: str) -> list[dict[str, Any]]:
    """Voices of a checkpoint on this machine; loads nothing but its serving.json.

    Raises:
        ConfigError: it is not on this machine.
        CheckpointError: its serving.json is damaged.
    """
    from realtime_tts.errors import ConfigError
    from realtime_tts.workers.location import local_directory
    from realtime_tts.workers.policy import ServingPolicy

    directory = local_directory(model)
    if directory is None:
        raise ConfigError(
            f"{model} is no directory here; models of the hub have no named voices unless a server says so: use --url",
            field="model",
        )
    policy = ServingPolicy.load(directory)
    return [
        {
            "id": name,
            "language": voice.language,
            "description": voice.description,
            "default": name == policy.default_voice,
        }
        for name, voice in policy.voices.items()
    ]
