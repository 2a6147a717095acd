"""One spoken context over the native protocol, with the arrival time of everything. No client library in between, so
that nothing but the server and the socket is measured."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

HEADER = struct.Struct(">BBHIIQ")  # version, kind, flags, context number, sequence, pts in samples
TERMINAL = {"context.done", "context.cancelled", "context.failed"}


@dataclass
class Packet:
    arrived_s: float  # since the text was sent
    pts_s: float
    sequence: int


@dataclass
class Spoken:
    """What came back for one context. Times in seconds since the scheduled send of the text."""

    packets: list[Packet] = field(default_factory=list)
    terminal: dict[str, Any] = field(default_factory=dict)
    finished_s: float = 0.0
    cancelled_at_s: float | None = None

    @property
    def first_packet_ms(self) -> float:
        return self.packets[0].arrived_s * 1000

    @property
    def audio_s(self) -> float:
        return float(self.terminal.get("audio_ms", 0.0)) / 1000

    @property
    def packets_after_cancel_ms(self) -> float:
        """Last packet's arrival after the cancel was sent, ms; 0 if none came after it."""
        assert self.cancelled_at_s is not None
        return max(0.0, (self.packets[-1].arrived_s - self.cancelled_at_s) * 1000)

    def stalls(self, pre_buffer_s: float) -> tuple[int, float]:
        """Play it with a player that starts `pre_buffer_s` after the first packet: stalls, and the longest in s."""
        play_at = self.packets[0].arrived_s + pre_buffer_s  # when pts 0 is played
        count, longest = 0, 0.0
        for packet in self.packets:
            late = packet.arrived_s - (play_at + packet.pts_s)
            if late > 1e-3:
                count, longest = count + 1, max(longest, late)
                play_at += late
        return count, longest


async def open_stream(url: str, **start: Any) -> ClientConnection:
    """Connect and start a session; `start` are fields of `session.start`."""
    socket = await connect(url, subprotocols=["realtime-tts.v1"], compression=None, max_size=None)  # type: ignore[list-item]
    await socket.send(json.dumps({"type": "session.start", **start}))
    while json.loads(await socket.recv())["type"] != "session.started":
        pass
    return socket


async def speak(socket: ClientConnection, context_id: str, text: str, *, cancel_after_s: float | None = None) -> Spoken:
    """Send one whole text, collect until its terminal message. `cancel_after_s`: barge in, seconds after the send."""
    spoken = Spoken()
    sent = time.perf_counter()
    await socket.send(json.dumps({"type": "text", "context_id": context_id, "text": text}))
    await socket.send(json.dumps({"type": "end", "context_id": context_id}))

    async def barge_in() -> None:
        assert cancel_after_s is not None
        await asyncio.sleep(cancel_after_s)
        spoken.cancelled_at_s = time.perf_counter() - sent
        await socket.send(json.dumps({"type": "cancel", "context_id": context_id}))

    task = asyncio.create_task(barge_in()) if cancel_after_s is not None else None
    while not spoken.terminal:
        frame = await socket.recv()
        now = time.perf_counter() - sent
        if isinstance(frame, bytes):
            _, _, _, _, sequence, pts = HEADER.unpack_from(frame)
            spoken.packets.append(Packet(now, pts / 48_000, sequence))
        else:
            message = json.loads(frame)
            if message["type"] in TERMINAL and message["context_id"] == context_id:
                spoken.terminal, spoken.finished_s = message, now
    if task is not None:
        await task
    return spoken
