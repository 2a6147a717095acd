"""A dialect without clients: no ids on the wire but a state, several messages in a frame, several frames for one.

A client sends lines: ``.`` ends the turn, ``!`` interrupts it, ``bye`` leaves, anything else is text of the turn. It
gets a frame for each word, bare packets, and learns nothing of starts and keep-alives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastapi import WebSocket

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.dialects.base import Dialect, Habits, KeyPlaces
from realtime_tts.errors import InvalidMessage, RealtimeTTSError
from realtime_tts.server.http.routes import AnyGateway
from realtime_tts.server.stream.websocket import serve_stream
from realtime_tts.server.vendors.router import DialectRouter
from realtime_tts.session.messages import (
    AudioPackets,
    CancelRequest,
    ClientMessage,
    ContextCancelled,
    ContextDone,
    ContextFailed,
    End,
    ErrorMessage,
    Leave,
    ServerMessage,
    Text,
    Words,
)


class ToyDialect(Dialect):
    habits = Habits()
    welcome = ("hello",)

    def __init__(self, voice: str | None) -> None:
        if voice == "":
            raise InvalidMessage("an empty voice")
        self._voice = voice
        self._num_turns = 0

    def parse(self, frame: str | bytes, max_bytes: int) -> list[ClientMessage]:
        if isinstance(frame, bytes) or len(frame) > max_bytes:
            raise InvalidMessage("a frame is some lines of text")
        return list(self._read(frame.splitlines()))

    def _read(self, lines: list[str]) -> Iterator[ClientMessage]:
        for line in lines:
            context_id = str(self._num_turns)
            if line in (".", "!"):
                self._num_turns += 1
                yield End(context_id) if line == "." else CancelRequest(context_id)
            elif line == "bye":
                yield Leave()
            else:
                yield Text(context_id, line + " ", self._voice, AudioFormat("pcm_s16le", 16_000))

    def serialize(self, message: ServerMessage) -> Sequence[str | bytes]:
        if isinstance(message, AudioPackets):
            return message.packets.payloads
        if isinstance(message, Words):
            return [f"word {word.text}" for word in message.words]
        if isinstance(message, ContextDone):
            return ["done"]
        if isinstance(message, ContextCancelled):
            return [f"heard {message.spoken_chars}"]
        return [f"error {message.code}"] if isinstance(message, ContextFailed | ErrorMessage) else []


def toy_problem(error: RealtimeTTSError, request_id: str) -> tuple[int, dict[str, object]]:
    return error.http_status, {"no": error.message}


router = DialectRouter(toy_problem, KeyPlaces(headers=("x-toy-key",)))


@router.websocket("/toy")
async def toy(websocket: WebSocket, gateway: AnyGateway, voice: str | None = None) -> None:
    await serve_stream(websocket, gateway, lambda: ToyDialect(voice), headers={"x-toy": "yes"})
