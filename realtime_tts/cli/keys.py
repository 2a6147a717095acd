"""``realtime-tts keys``"""

from __future__ import annotations

from typing import BinaryIO

import click

_EPILOG = """\b
Example:
  realtime-tts keys create --name "phone app"
Give the key to the client, which sends it as `Authorization: Bearer <key>`. For the users of a browser's page, your own
backend makes short-lived tokens with it: `POST /v1/tokens`, see docs/operate/operation.md. Append
the hash to a file and start the server with `--api-key-file FILE`. A file may hold many hashes, one a line; to replace
a key, add the new hash, move the client over, then take the old hash out.
"""


@click.group("keys")
def command() -> None:
    """Create API keys for the server. The server stores only their hashes."""


@command.command("create", epilog=_EPILOG)
@click.option("--name", default="", help="Purpose of the key; written after its hash as a comment.")
@click.option("--append", type=click.File("ab+"), help="Also append the hash to this file.")
def create(name: str, append: BinaryIO | None) -> None:
    """Create a key. It is shown only once."""
    from realtime_tts.server.admission.auth import create_key

    if "\n" in name or "\r" in name:
        raise click.BadParameter("must be one line", param_hint="--name")
    key, key_hash = create_key()
    line = f"{key_hash}  # {name}" if name else key_hash
    if append is not None:
        append.seek(0)
        ends_in_line = append.read()[-1:] not in (b"", b"\n")  # as an editor may leave it
        append.write(b"\n" * ends_in_line + f"{line}\n".encode())
    click.echo(f"key:  {key}")
    click.echo(f"hash: {line}")


@command.command("hash")
@click.argument("key", required=False)
def hash_(key: str | None) -> None:
    """Print the hash of an existing KEY. Without KEY, prompt for it, so that it is not in the shell's history."""
    from realtime_tts.server.admission.auth import hash_key

    click.echo(hash_key(key or click.prompt("key", hide_input=True)))
