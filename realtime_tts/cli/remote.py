"""HTTP requests to a running server."""

from __future__ import annotations

import json
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import click

from realtime_tts.errors import ConfigError, RealtimeTTSError, error_from_code

DEFAULT_URL = "http://127.0.0.1:8000"
Command = TypeVar("Command", bound=Callable[..., object])


def server_url(url: str, path: str, scheme: str = "http") -> str:
    """Return the URL of `path` on a server given as ``http://…`` or ``ws://…``; TLS is kept.

    Raises:
        ConfigError: the URL is malformed.
    """
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        is_valid = parts.scheme in ("http", "https", "ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the brackets of an IPv6 address, or of the port
        is_valid = False
    if not is_valid:
        raise ConfigError(f"the address of a server looks like http://127.0.0.1:8000, got {url!r}", field="url")
    secure = "s" if parts.scheme in ("https", "wss") else ""
    return urlunsplit((scheme + secure, parts.netloc, path, "", ""))


def ask(
    url: str,
    path: str,
    api_key: str | None,
    *,
    method: str | None = None,
    body: Mapping[str, str] | None = None,
    files: Mapping[str, Path] | None = None,
) -> dict[str, Any]:
    """Send a request and return the JSON answer, {} for an empty one.

    Args:
        method: by default GET, with a body POST.
        body: sent as JSON, with `files` as a form.

    Raises:
        RealtimeTTSError: the server cannot be reached, answers with an error, or is another program's.
    """
    key = clean_key(api_key)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    data = None
    if files is not None:
        boundary = secrets.token_hex(16)
        parts = [(f'name="{name}"', value.encode()) for name, value in (body or {}).items()]
        parts += [(f'name="{name}"; filename="{name}{file.suffix}"', file.read_bytes()) for name, file in files.items()]
        data = b"".join(
            f"--{boundary}\r\nContent-Disposition: form-data; {about}\r\n\r\n".encode() + content + b"\r\n"
            for about, content in parts
        )
        data += f"--{boundary}--\r\n".encode()
        headers["Content-Type"] = f"multipart/form-data; boundary={boundary}"
    elif body is not None:
        data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
    request = urllib.request.Request(server_url(url, path), data, headers, method=method)
    try:
        with urllib.request.build_opener(_SameHost).open(request, timeout=120 if data else 10) as response:
            answer = response.read()
    except urllib.error.HTTPError as error:
        raise _refused(error.read(), error.code) from error
    except (OSError, ValueError, HTTPException) as error:
        raise ConfigError(f"no server answers at {url}: {error}", field="url") from error
    try:
        return dict(json.loads(answer or b"{}"))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"no realtime-tts answers at {url}, but another program", field="url") from error


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to the same host, and never from TLS to plain HTTP, to protect the key."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if before.hostname != after.hostname or (before.scheme == "https" and after.scheme != "https"):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def clean_key(api_key: str | None) -> str:
    """Return a key without surrounding blanks, such as the line break of a file.

    Raises:
        ConfigError: the key is not valid in a header. The message does not repeat it.
    """
    key = (api_key or "").strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError("--api-key must be printable ASCII characters without blanks", field="api_key")
    return key


def server_error(code: str, message: str, field: str | None) -> RealtimeTTSError:
    """Return the server's error, with the option of the running command that caused it."""
    option = _option("api_key" if code == "unauthorized" else (field or "").rpartition(".")[2])
    return error_from_code(code, f"{message}; here: {option}" if option else message)


def _option(name: str) -> str | None:
    context = click.get_current_context(silent=True)
    options = () if context is None else (each for each in context.command.params if isinstance(each, click.Option))
    return next((option.opts[0] for option in options if option.name == name), None)


def _refused(body: bytes, status: int) -> RealtimeTTSError:
    try:
        problem = json.loads(body)
        return server_error(str(problem["code"]), str(problem["message"]), problem.get("field"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ConfigError(f"the server answered with status {status}", field="url")


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
