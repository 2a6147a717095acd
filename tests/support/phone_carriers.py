"""Carriers as their documentation describes them: each buffers audio, plays it in real time, and confirms marks."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

PACKET_MS = 20
Sent = tuple[Literal["audio", "mark", "clear"], Any]


class Carrier(ABC):
    """One call, of 8 kHz μ-law if the carrier does not say otherwise.

    Attributes:
        events: kinds of the bot's messages, as they came.
        played_packets: audio of the bot that the caller has heard.
        microphone: packet that the caller says again and again. sounds: packets said before those.
    """

    silence = b"\xff" * 160
    loud = bytes(np.random.default_rng(3).choice(np.frombuffer(b"\x00\x80\x10\x90", np.uint8), 160))
    subprotocol: str | None = None
    returns_cleared_marks = False
    stop: ClassVar[dict[str, Any] | None] = None
    bad_starts: ClassVar[list[dict[str, Any]]]
    bad_media: ClassVar[list[dict[str, Any] | bytes]]

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self._buffer: list[tuple[str, Any]] = []
        self.events: list[str] = []
        self.played_packets: list[bytes] = []
        self.num_played_at_clear = 0
        self.microphone = self.silence
        self.sounds: list[bytes] = []

    @staticmethod
    @abstractmethod
    def start() -> list[dict[str, Any]]:
        """Return the messages that begin a stream."""

    @staticmethod
    def media(payload: bytes) -> dict[str, Any] | bytes:
        """Return the message with audio of the caller."""
        return payload

    @staticmethod
    @abstractmethod
    def played(mark: str) -> dict[str, Any]:
        """Return the message for a mark that was reached."""

    @abstractmethod
    def understand(self, fields: dict[str, Any]) -> Sent:
        """Return what a JSON message of the bot asks for. It must be complete."""

    async def say(self, message: dict[str, Any] | bytes) -> None:
        await self.socket.send(message if isinstance(message, bytes) else json.dumps(message))

    async def hang_up(self) -> None:
        """End the call. The carrier closes the socket itself only if it has no message for the end."""
        if self.stop is not None:
            await self.say(self.stop)
        else:
            await self.socket.close()

    async def receive(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for message in self.socket:
                kind, value = ("audio", message) if isinstance(message, bytes) else self.understand(json.loads(message))
                self.events.append(kind)
                if kind != "clear":
                    assert kind == "mark" or len(value) == len(self.silence)
                    self._buffer.append((kind, value))
                    continue
                self.num_played_at_clear = len(self.played_packets)
                marks, self._buffer = [name for kind, name in self._buffer if kind == "mark"], []
                for name in marks if self.returns_cleared_marks else []:
                    await self.say(self.played(name))

    async def play(self) -> None:
        """Play a packet each 20 ms, and send what the caller says."""
        with contextlib.suppress(ConnectionClosed):
            next_at = time.monotonic()
            while True:
                await self.say(self.media(self.sounds.pop() if self.sounds else self.microphone))
                await self._play_one()
                next_at += PACKET_MS / 1000
                await asyncio.sleep(max(0.0, next_at - time.monotonic()))

    async def _play_one(self) -> None:
        while self._buffer and self._buffer[0][0] == "mark":
            await self.say(self.played(self._buffer.pop(0)[1]))
        if self._buffer:
            self.played_packets.append(self._buffer.pop(0)[1])

    @property
    def played_ms(self) -> float:
        return len(self.played_packets) * PACKET_MS


def _audio(media: dict[str, Any]) -> bytes:
    return base64.b64decode(media["payload"], validate=True)


def _base64(payload: bytes) -> str:
    return base64.b64encode(payload).decode()


_BAD_MEDIA: list[dict[str, Any] | bytes] = [
    {"event": "media"},
    {"event": "media", "media": []},
    {"event": "media", "media": {"payload": 7}},
    {"event": "media", "media": {"payload": "?"}},
    b"\xff\x00",
]


class Twilio(Carrier):
    bad_media: ClassVar[list[dict[str, Any] | bytes]] = _BAD_MEDIA
    returns_cleared_marks = True
    stop: ClassVar[dict[str, Any] | None] = {
        "event": "stop",
        "streamSid": "MZ1",
        "stop": {"accountSid": "AC1", "callSid": "CA1"},
    }

    @staticmethod
    def start() -> list[dict[str, Any]]:
        form = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
        start = {"streamSid": "MZ1", "callSid": "CA1", "tracks": ["inbound"], "mediaFormat": form}
        connected = {"event": "connected", "protocol": "Call", "version": "1.0.0"}
        return [connected, {"event": "start", "sequenceNumber": "1", "streamSid": "MZ1", "start": start}]

    @staticmethod
    def media(payload: bytes) -> dict[str, Any]:
        media = {"track": "inbound", "chunk": "1", "timestamp": "5", "payload": _base64(payload)}
        return {"event": "media", "sequenceNumber": "2", "streamSid": "MZ1", "media": media}

    @staticmethod
    def played(mark: str) -> dict[str, Any]:
        return {"event": "mark", "sequenceNumber": "3", "streamSid": "MZ1", "mark": {"name": mark}}

    def understand(self, fields: dict[str, Any]) -> Sent:
        match fields:
            case {"event": "media", "streamSid": "MZ1", "media": media}:
                return "audio", _audio(media)
            case {"event": "mark", "streamSid": "MZ1", "mark": {"name": str(name)}}:
                return "mark", name
            case {"event": "clear", "streamSid": "MZ1"}:
                return "clear", None
        raise AssertionError(fields)

    bad_starts: ClassVar[list[dict[str, Any]]] = [
        {"event": "start"},
        {"event": "start", "start": {"streamSid": []}},
        {"event": "start", "start": {"streamSid": "MZ1", "mediaFormat": {"encoding": "audio/x-alaw"}}},
    ]


class Telnyx(Carrier):
    bad_media: ClassVar[list[dict[str, Any] | bytes]] = _BAD_MEDIA
    returns_cleared_marks = True
    stop: ClassVar[dict[str, Any] | None] = {
        "event": "stop",
        "stream_id": "32DE",
        "sequence_number": "9",
        "stop": {"user_id": "3E6F"},
    }

    @staticmethod
    def start() -> list[dict[str, Any]]:
        form = {"encoding": "PCMU", "sample_rate": 8000, "channels": 1}
        start = {"user_id": "3E6F", "call_control_id": "v2:T02l", "from": "+13122010094", "media_format": form}
        return [
            {"event": "connected", "version": "1.0.0"},
            {"event": "start", "sequence_number": "1", "stream_id": "32DE", "start": start},
        ]

    @staticmethod
    def media(payload: bytes) -> dict[str, Any]:
        media = {"track": "inbound", "chunk": "1", "timestamp": "5", "payload": _base64(payload)}
        return {"event": "media", "sequence_number": "4", "stream_id": "32DE", "media": media}

    @staticmethod
    def played(mark: str) -> dict[str, Any]:
        return {"event": "mark", "sequence_number": "5", "stream_id": "32DE", "mark": {"name": mark}}

    def understand(self, fields: dict[str, Any]) -> Sent:
        match fields:
            case {"event": "media", "media": media}:
                return "audio", _audio(media)
            case {"event": "mark", "mark": {"name": str(name)}}:
                return "mark", name
            case {"event": "clear"}:
                return "clear", None
        raise AssertionError(fields)

    bad_starts: ClassVar[list[dict[str, Any]]] = [
        {"event": "start", "start": {}},
        {"event": "start", "stream_id": "", "start": {}},
        {"event": "start", "stream_id": "1", "start": {"media_format": {"encoding": "G722", "sample_rate": 8000}}},
    ]


class Plivo(Carrier):
    bad_media: ClassVar[list[dict[str, Any] | bytes]] = _BAD_MEDIA

    @staticmethod
    def start() -> list[dict[str, Any]]:
        form = {"encoding": "audio/x-mulaw", "sampleRate": 8000}
        start = {"callId": "1234", "streamId": "8765", "accountId": "MA1", "tracks": ["inbound"], "mediaFormat": form}
        return [{"event": "start", "sequenceNumber": 1, "start": start, "extra_headers": ""}]

    @staticmethod
    def media(payload: bytes) -> dict[str, Any]:
        media = {"track": "inbound", "timestamp": "1705312200000", "chunk": 41, "payload": _base64(payload)}
        return {"event": "media", "sequenceNumber": 42, "streamId": "8765", "media": media, "extra_headers": ""}

    @staticmethod
    def played(mark: str) -> dict[str, Any]:
        return {"event": "playedStream", "sequenceNumber": 75, "streamId": "8765", "name": mark}

    def understand(self, fields: dict[str, Any]) -> Sent:
        match fields:
            case {"event": "playAudio", "media": {"contentType": "audio/x-mulaw", "sampleRate": 8000} as media}:
                return "audio", _audio(media)
            case {"event": "checkpoint", "streamId": "8765", "name": str(name)}:
                return "mark", name
            case {"event": "clearAudio", "streamId": "8765"}:
                return "clear", None
        raise AssertionError(fields)

    bad_starts: ClassVar[list[dict[str, Any]]] = [
        {"event": "start", "start": {"callId": "1"}},
        {"event": "start", "start": {"streamId": 1}},
        {"event": "start", "start": {"streamId": "1", "mediaFormat": {"encoding": "audio/x-l16", "sampleRate": 8000}}},
    ]


class Vonage(Carrier):
    """Linear PCM at 16 kHz in binary messages."""

    bad_media: ClassVar[list[dict[str, Any] | bytes]] = [b"\0"]  # half a sample

    silence = bytes(640)
    loud = np.random.default_rng(3).integers(-20_000, 20_000, 320).astype("<i2").tobytes()

    @staticmethod
    def start() -> list[dict[str, Any]]:
        return [{"event": "websocket:connected", "content-type": "audio/l16;rate=16000", "caller": "447700900123"}]

    @staticmethod
    def played(mark: str) -> dict[str, Any]:
        return {"event": "websocket:notify", "payload": {"name": mark}}

    def understand(self, fields: dict[str, Any]) -> Sent:
        match fields:
            case {"action": "notify", "payload": {"name": str(name)}}:
                return "mark", name
            case {"action": "clear"}:
                return "clear", None
        raise AssertionError(fields)

    bad_starts: ClassVar[list[dict[str, Any]]] = [
        {"event": "websocket:connected", "content-type": "audio/l16;rate=8000"}
    ]


class Asterisk(Carrier):
    subprotocol = "media"
    bad_media: ClassVar[list[dict[str, Any] | bytes]] = []  # each byte is a sample

    @staticmethod
    def start() -> list[dict[str, Any]]:
        sizes = {
            "optimal_frame_size": 160,
            "ptime": 20,
            "channel_variables": {"DIALEDPEERNUMBER": "bot/c(ulaw)f(json)"},
        }
        names = {"connection_id": "bot", "channel": "WebSocket/bot/0x5140001a0040", "channel_id": "1761245643.1"}
        return [{"event": "MEDIA_START", **names, "format": "ulaw", **sizes}]

    @staticmethod
    def played(mark: str) -> dict[str, Any]:
        return {"event": "MEDIA_MARK_PROCESSED", "channel_id": "1761245643.1", "correlation_id": mark}

    def understand(self, fields: dict[str, Any]) -> Sent:
        assert len(json.dumps(fields)) <= 128, "Asterisk ignores longer commands"
        match fields:
            case {"command": "MARK_MEDIA", "correlation_id": str(name)}:
                return "mark", name
            case {"command": "FLUSH_MEDIA"}:
                return "clear", None
        raise AssertionError(fields)

    bad_starts: ClassVar[list[dict[str, Any]]] = [{"event": "MEDIA_START", "connection_id": "bot", "format": "slin16"}]


CARRIERS: dict[str, type[Carrier]] = {
    "twilio": Twilio,
    "telnyx": Telnyx,
    "plivo": Plivo,
    "vonage": Vonage,
    "asterisk": Asterisk,
}
