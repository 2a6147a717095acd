"""Voices made of recordings, for as long as a session lasts: sent over HTTP, to the server of the stream."""

from __future__ import annotations

import json
import logging
import secrets
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from realtime_tts_client.errors import ConnectionFailed, InvalidRequest, RealtimeTTSError, error_from_code

logger = logging.getLogger(__name__)

TTL_S = 3600  # beyond its last use; a session that ends deletes it at once
_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class OwnVoice:
    """What a server is to make a voice of: give `reference`, `prompt` with `prompt_text`, or both.

    Attributes:
        reference: a recording to sound like, 2 to 60 s of one speaker: a path, or a file's bytes, of any usual format.
        prompt, prompt_text: a recording to go on from, and what is said in it.
        consent: that the speaker agrees; who says so, and to what use, are `consent_by` and `consent_scope`.
    """

    reference: str | Path | bytes | None = None
    prompt: str | Path | bytes | None = None
    prompt_text: str | None = None
    consent: bool = False
    consent_by: str | None = None
    consent_scope: str | None = None


def lend_voice(stream_url: str, api_key: str | None, voice: OwnVoice) -> str:
    """The id of a voice that the server has made, for a while. Blocks; what will be heard of a recording is logged.

    Raises:
        ServerError: the server refused, e.g. `recording_too_short`. InvalidRequest: a file that cannot be read.
        ConnectionFailed: it cannot be reached.
    """
    fields = {
        "ttl_s": str(TTL_S),
        "consent": "true" if voice.consent else "",
        "prompt_text": voice.prompt_text,
        "consent_by": voice.consent_by,
        "consent_scope": voice.consent_scope,
    }
    files = {"reference": voice.reference, "prompt": voice.prompt}
    parts = [(f'name="{name}"', value.encode()) for name, value in fields.items() if value]
    parts += [(f'name="{name}"; filename="{name}"', _content(file)) for name, file in files.items() if file is not None]
    boundary = secrets.token_hex(16)
    body = b"".join(
        f"--{boundary}\r\nContent-Disposition: form-data; {about}\r\n\r\n".encode() + content + b"\r\n"
        for about, content in parts
    )
    request = urllib.request.Request(_address(stream_url), body + f"--{boundary}--\r\n".encode(), _headers(api_key))
    request.add_header("Content-Type", f"multipart/form-data; boundary={boundary}")
    made = json.loads(_ask(request))
    for remark in made.get("warnings", ()):
        logger.warning("of the %s: %s", remark.get("field"), remark.get("message"))
    return str(made["id"])


def return_voice(stream_url: str, api_key: str | None, voice_id: str) -> None:
    """Have a voice deleted. Blocks; raises as `lend_voice`."""
    address = f"{_address(stream_url)}/{quote(voice_id, safe='')}"
    _ask(urllib.request.Request(address, headers=_headers(api_key), method="DELETE"))


def _address(stream_url: str) -> str:
    """`…/v1/stream` → `…/v1/voices`."""
    parts = urlsplit(stream_url)
    path = parts.path.rsplit("/", 1)[0] + "/voices"
    return urlunsplit((parts.scheme.replace("ws", "http", 1), parts.netloc, path, "", ""))


def _headers(api_key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def _content(file: str | Path | bytes) -> bytes:
    if isinstance(file, bytes):
        return file
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from error


def _ask(request: urllib.request.Request) -> bytes:
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        raise _refusal(error.read(), error.code) from error
    except (OSError, ValueError) as error:
        raise ConnectionFailed(f"no answer from {request.full_url}: {error}") from error


def _refusal(body: bytes, status: int) -> RealtimeTTSError:
    try:
        problem = json.loads(body)
        return error_from_code(
            str(problem["code"]),
            str(problem["message"]),
            retryable=problem.get("retryable") is True,
            field=problem.get("field"),
        )
    except (ValueError, TypeError, KeyError):
        return ConnectionFailed(f"the server answered {status}", retryable=status >= 500)
