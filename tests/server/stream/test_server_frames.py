"""Our own framing of messages, against that of the websockets library."""

from __future__ import annotations

from typing import Any

import pytest
from websockets.frames import Frame, Opcode

from realtime_tts.server.stream.socket_protocol import StreamProtocol


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


def written(*messages: str | bytes) -> list[bytes]:
    transport: Any = Transport()
    protocol = StreamProtocol.__new__(StreamProtocol)
    protocol.transport = transport
    protocol.write_frames(messages)
    return transport.written


@pytest.mark.parametrize("num_bytes", [0, 1, 125, 126, 127, 65_535, 65_536, 100_000])
def test_every_length_has_its_header(num_bytes: int) -> None:
    data = bytes(num_bytes)
    assert written(data) == [Frame(Opcode.BINARY, data).serialize(mask=False)]


def test_messages_of_both_kinds_are_written_in_one_piece() -> None:
    text = "Grüße 🙂" * 20
    frames = [Frame(Opcode.TEXT, text.encode()), Frame(Opcode.BINARY, b"one"), Frame(Opcode.BINARY, b"")]
    assert written(text, b"one", b"") == [b"".join(frame.serialize(mask=False) for frame in frames)]
