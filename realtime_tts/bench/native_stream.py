"""One spoken context over the native protocol, with the arrival time of everything. No client library in between, so
that nothing but the server and the socket is measured."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import struct
import time
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from realtime_tts.bench.streams import Heard

HEADER = struct.Struct(">BBHIIQ")  # version, kind, flags, context number, sequence, pts in samples
TERMINAL = {"context.done", "context.cancelled", "context.failed"}
_PTS_RATE_HZ = 48_000


@dataclasses.dataclass(slots=True)
class Spoken(Heard):
    """What came back for one context: `Heard`, whose chunks are packets, and how it ended."""

    terminal: dict[str, Any] = dataclasses.field(default_factory=dict)
    cancelled_at_s: float | None = None

    @property
    def packets_after_cancel_ms(self) -> float:
        """Last packet's arrival after the cancel was sent, ms; 0 if none came after it."""
        assert self.cancelled_at_s is not None
        return max(0.0, (self.chunks[-1][0] - self.cancelled_at_s) * 1000)


async def open_stream(url: str, *, api_key: str | None = None, **start: Any) -> ClientConnection:
    """Connect and start a session; `start` are fields of `session.start`."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    protocols = [Subprotocol("realtime-tts.v1")]
    socket = await connect(url, subprotocols=protocols, additional_headers=headers, compression=None, max_size=None)
    await socket.send(json.dumps({"type": "session.start", **start}))
    while json.loads(await socket.recv())["type"] != "session.started":
        pass
    return socket


async def speak(
    socket: ClientConnection,
    context_id: str,
    text: str,
    *,
    scheduled: float | None = None,
    cancel_after_s: float | None = None,
    cancel_at_first: bool = False,
    into: Spoken | None = None,
) -> Spoken:
    """Send one whole text, collect until its terminal message.

    Args:
        scheduled: when it should have been sent (`time.monotonic`), from where its times count; None: now.
        cancel_after_s: barge in, seconds after the send. cancel_at_first: or at the first packet.
        into: fill this one, which can be looked at meanwhile.
    """
    spoken = Spoken() if into is None else into
    sent = time.monotonic() if scheduled is None else scheduled
    await socket.send(json.dumps({"type": "text", "context_id": context_id, "text": text}))
    await socket.send(json.dumps({"type": "end", "context_id": context_id}))

    async def barge_in() -> None:
        assert cancel_after_s is not None
        await asyncio.sleep(cancel_after_s)
        spoken.cancelled_at_s = time.monotonic() - sent
        await socket.send(json.dumps({"type": "cancel", "context_id": context_id}))

    task = asyncio.create_task(barge_in()) if cancel_after_s is not None else None
    while not spoken.terminal:
        frame = await socket.recv()
        now = time.monotonic() - sent
        if isinstance(frame, bytes):
            *_, pts = HEADER.unpack_from(frame)
            spoken.chunks.append((now, pts / _PTS_RATE_HZ))
            if cancel_at_first and len(spoken.chunks) == 1:
                await socket.send(json.dumps({"type": "cancel", "context_id": context_id}))
        else:
            message = json.loads(frame)
            # An error of this context means that its text was refused: there is no context, and nothing will end it.
            if message["type"] in (*TERMINAL, "error") and message.get("context_id") == context_id:
                spoken.terminal, spoken.ended_s = message, now
                spoken.error = message.get("code", "")
    spoken.audio_s = float(spoken.terminal.get("audio_ms", 0.0)) / 1000
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return spoken
