"""Voices made from recordings for the duration of a session: sent over HTTP to the server of the stream."""

from __future__ import annotations

import http.client
import logging
import secrets
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from realtime_tts_client.errors import (
    ConnectionFailed,
    InvalidRequest,
    ProtocolError,
    error_from_answer,
)
from realtime_tts_client.wire import Fields

logger = logging.getLogger(__name__)

TTL_S = 3600  # after its last use; the end of a session deletes it at once
MAX_ANSWER_BYTES = 1 << 20
_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class OwnVoice:
    """Recordings for a voice: give `reference`, `prompt` with `prompt_text`, or both.

    Attributes:
        reference: recording of the voice, 2 to 60 s of one speaker: a path, or a file's bytes, of any usual format.
        prompt, prompt_text: recording that the speech continues, and its text.
        consent: whether the speaker agrees. `consent_by`: the person that states this; `consent_scope`: the agreed use.
    """

    reference: str | Path | bytes | None = None
    prompt: str | Path | bytes | None = None
    prompt_text: str | None = None
    consent: bool = False
    consent_by: str | None = None
    consent_scope: str | None = None


def lend_voice(stream_url: str, api_key: str | None, voice: OwnVoice) -> str:
    """Make a temporary voice and return its id. Blocks. Logs the server's warnings about the recording.

    Raises:
        ServerError: the server refused, e.g. `recording_too_short`. InvalidRequest: a file cannot be read.
        ConnectionFailed: it cannot be reached. ProtocolError: the answer is not a realtime-tts server's.
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
    request = urllib.request.Request(voices_url(stream_url), body + f"--{boundary}--\r\n".encode(), _headers(api_key))
    request.add_header("Content-Type", f"multipart/form-data; boundary={boundary}")
    made = Fields.parse(_ask(request).decode("utf-8", "replace"))
    for remark in made.objects("warnings") if "warnings" in made.as_map() else ():
        logger.warning("of the %s: %s", remark.optional_text("field"), remark.optional_text("message"))
    return made.text("id")


def return_voice(stream_url: str, api_key: str | None, voice_id: str) -> None:
    """Delete a voice. Blocks; raises as `lend_voice`."""
    address = f"{voices_url(stream_url)}/{quote(voice_id, safe='')}"
    _ask(urllib.request.Request(address, headers=_headers(api_key), method="DELETE"))


def voices_url(stream_url: str) -> str:
    """Return the address `https://…/v1/voices` for `wss://…/v1/stream`."""
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


class _EachStatus(urllib.request.HTTPErrorProcessor):
    """Processor that returns each answer, so that no redirect is followed: only the named server gets the recordings
    and the key."""

    def http_response(self, request: urllib.request.Request, response: Any) -> Any:
        return response

    https_response = http_response


def _ask(request: urllib.request.Request) -> bytes:
    try:
        with urllib.request.build_opener(_EachStatus).open(request, timeout=_TIMEOUT_S) as response:
            body = bytes(response.read(MAX_ANSWER_BYTES + 1))
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ConnectionFailed(f"no answer from {request.full_url}: {error!r}") from error
    if response.status >= 300:
        raise error_from_answer(response.status, body)
    if len(body) > MAX_ANSWER_BYTES:
        raise ProtocolError(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
    return body
