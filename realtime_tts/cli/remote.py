"""Speaking through a running server: what `say --url` and `voices --url` need, without any client package."""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from realtime_tts.dialects.native import AUDIO_HEADER, SUBPROTOCOL
from realtime_tts.errors import ConfigError, RealtimeTTSError, error_from_code

SAMPLE_RATE_HZ = 48_000


def server_url(url: str, path: str, scheme: str = "http") -> str:
    """The address of `path` on a server given as ``http://…`` or ``ws://…``, with TLS if it has it.

    Raises:
        ConfigError: not such an address.
    """
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname:
        raise ConfigError("the address of a server looks like http://127.0.0.1:8000", field="url")
    secure = "s" if parts.scheme in ("https", "wss") else ""
    return urlunsplit((scheme + secure, parts.netloc, path, "", ""))


def get_json(url: str, path: str, api_key: str | None) -> dict[str, Any]:
    """Raises:
    RealtimeTTSError: the server cannot be reached, or what it says is wrong.
    """
    request = urllib.request.Request(server_url(url, path), headers=_headers(api_key))
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return dict(json.load(response))
    except urllib.error.HTTPError as error:
        raise _refused(error.read(), error.code) from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"no server answers at {url}: {error}", field="url") from error


async def remote_speech(
    url: str, api_key: str | None, deltas: AsyncIterator[str], voice: str | None, params: dict[str, Any]
) -> AsyncIterator[bytes]:
    """s16le mono PCM at 48 kHz of the text that `deltas` yields, as soon as it arrives.

    Raises:
        RealtimeTTSError: whatever the server answers, and `ConfigError` if there is none.
    """
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed, InvalidStatus

    audio = {"codec": "pcm_s16le", "sample_rate": SAMPLE_RATE_HZ}
    start = {"type": "session.start", "voice": voice, "audio": audio, "params": params}
    options: dict[str, Any] = {"compression": None, "max_size": None, "additional_headers": _headers(api_key)}
    try:
        address = server_url(url, "/v1/stream", "ws")
        async with connect(address, subprotocols=[SUBPROTOCOL], **options) as socket:  # type: ignore[list-item]
            await socket.send(json.dumps(start))
            sender = asyncio.create_task(_send(socket, deltas))
            try:
                async for pcm in _receive(socket):
                    yield pcm
                await sender
            finally:
                sender.cancel()
                await asyncio.gather(sender, return_exceptions=True)
    except InvalidStatus as error:
        raise _refused(bytes(error.response.body or b""), error.response.status_code) from error
    except ConnectionClosed as error:
        raise ConfigError("the server closed the connection in mid-speech", field="url") from error
    except OSError as error:
        raise ConfigError(f"no server answers at {url}: {error}", field="url") from error


async def _send(socket: Any, deltas: AsyncIterator[str]) -> None:
    async for delta in deltas:
        # Well within the size of one message, however its characters are escaped.
        for start in range(0, len(delta), 4000):
            await socket.send(json.dumps({"type": "text", "context_id": "say", "text": delta[start : start + 4000]}))
    await socket.send(json.dumps({"type": "text", "context_id": "say", "text": ""}))
    await socket.send(json.dumps({"type": "end", "context_id": "say"}))


async def _receive(socket: Any) -> AsyncIterator[bytes]:
    num_samples = 0
    async for frame in socket:
        if isinstance(frame, bytes):
            pcm = frame[AUDIO_HEADER.size :]
            num_samples += len(pcm) // 2
            yield pcm
            # We take all there is: the sink holds it, or waits for the speaker by itself.
            played_ms = 1000 * num_samples / SAMPLE_RATE_HZ
            with contextlib.suppress(OSError):
                await socket.send(json.dumps({"type": "playback", "context_id": "say", "played_ms": played_ms}))
            continue
        message = json.loads(frame)
        if message["type"] in ("error", "context.failed"):
            raise error_from_code(message["code"], message["message"])
        if message["type"] == "context.done":
            return


def _headers(api_key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def _refused(body: bytes, status: int) -> RealtimeTTSError:
    try:
        problem = json.loads(body)
        return error_from_code(str(problem["code"]), str(problem["message"]))
    except (ValueError, KeyError, TypeError):
        return ConfigError(f"the server answered with status {status}", field="url")
