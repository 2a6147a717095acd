"""A client of `/v1/stream` that checks the protocol's promises on everything it receives."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import websockets
from websockets.asyncio.client import ClientConnection, connect

from realtime_tts.dialects.native import AUDIO_HEADER

SUBPROTOCOL = "realtime-tts.v1"
TERMINAL = frozenset({"context.done", "context.cancelled", "context.failed"})


@dataclass
class ContextLog:
    """What one context has received."""

    number: int
    packets: list[bytes] = field(default_factory=list)
    words: list[dict[str, Any]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    next_sequence: int = 1
    terminal: dict[str, Any] | None = None

    @property
    def audio(self) -> bytes:
        return b"".join(self.packets)


class StreamClient:
    """Wraps one connection. Every frame goes through `_check`, whichever method reads it."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.messages: list[dict[str, Any]] = []
        self.contexts: dict[str, ContextLog] = {}

    async def send(self, type: str, **fields: Any) -> None:  # noqa: A002 - the protocol's own name
        await self.socket.send(json.dumps({"type": type, **fields}))

    async def speak(self, context_id: str, text: str, **fields: Any) -> None:
        await self.send("text", context_id=context_id, text=text, **fields)
        await self.send("end", context_id=context_id)

    async def receive(self, timeout_s: float = 20.0) -> dict[str, Any]:
        """The next message; an audio packet comes as type "audio"."""
        frame = await asyncio.wait_for(self.socket.recv(), timeout_s)
        message = self._parse(frame)
        self.messages.append(message)
        self._check(message)
        return message

    async def until(self, wanted: str | Callable[[dict[str, Any]], bool], timeout_s: float = 20.0) -> dict[str, Any]:
        """Read until a message of this type, or one that satisfies the condition."""
        matches = (lambda message: message["type"] == wanted) if isinstance(wanted, str) else wanted
        async with asyncio.timeout(timeout_s):
            while True:
                message = await self.receive(timeout_s)
                if matches(message):
                    return message

    async def until_terminal(self, context_id: str, timeout_s: float = 20.0) -> dict[str, Any]:
        log = self.contexts.get(context_id)
        if log is not None and log.terminal is not None:
            return log.terminal
        return await self.until(lambda m: m["type"] in TERMINAL and m["context_id"] == context_id, timeout_s)

    async def until_closed(self, timeout_s: float = 20.0) -> tuple[int, str]:
        """Read to the end; the close code and reason."""
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                await self.receive(timeout_s)
        return self.socket.close_code or 0, self.socket.close_reason or ""

    def _parse(self, frame: str | bytes) -> dict[str, Any]:
        if isinstance(frame, str):
            return dict(json.loads(frame))
        version, kind, flags, number, sequence, pts = AUDIO_HEADER.unpack_from(frame)
        assert (version, kind, flags) == (1, 1, 0)
        context_id = next(key for key, log in self.contexts.items() if log.number == number)
        payload = frame[AUDIO_HEADER.size :]
        return {"type": "audio", "context_id": context_id, "sequence": sequence, "pts": pts, "payload": payload}

    def _check(self, message: dict[str, Any]) -> None:
        context_id = message.get("context_id")
        if message["type"] == "context.started":
            assert context_id not in self.contexts
            self.contexts[context_id] = ContextLog(message["number"])
            return
        if message["type"] in ("error", "warning", "cancel.acknowledged", "context.held") or context_id is None:
            return
        log = self.contexts[context_id]
        assert log.terminal is None, f"{message['type']} after {log.terminal}"
        assert message["sequence"] == log.next_sequence, "sequences have no gap"
        log.next_sequence += 1
        log.messages.append(message["type"])
        if message["type"] == "audio":
            log.packets.append(message["payload"])
        elif message["type"] == "words":
            log.words.extend(message["words"])
        elif message["type"] in TERMINAL:
            log.terminal = message


@contextlib.asynccontextmanager
async def open_stream(url: str, **options: Any) -> AsyncIterator[StreamClient]:
    """A connected client; closes cleanly."""
    options.setdefault("subprotocols", [SUBPROTOCOL])
    async with connect(url, compression=None, proxy=None, max_size=None, **options) as socket:
        yield StreamClient(socket)


async def native_pcm(url: str, text: str, audio: dict[str, Any], **params: Any) -> bytes:
    """The samples of a text, by a connection of its own."""
    async with open_stream(url) as stream:
        await stream.speak("n", text, audio=audio, params=params)
        await stream.until_terminal("n")
        return stream.contexts["n"].audio
