"""One spoken context over the native protocol, with the arrival time of everything. No client library in between, so
that nothing but the server and the socket is measured."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import time
from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from realtime_tts.bench.streams import Heard
from realtime_tts.bench.texts import tokens
from realtime_tts.contract.watch import end_tasks
from realtime_tts.errors import ConfigError

HEADER = struct.Struct(">BBHIIQ")  # version, kind, flags, context number, sequence, pts in samples
TERMINAL = {"context.done", "context.cancelled", "context.failed"}
CUT_OFF = "cut_off"  # error of a context that the server cancelled by itself
_PTS_RATE_HZ = 48_000


async def connect_stream(url: str, **options: Any) -> ClientConnection:
    """Connect; `options`: further arguments of websockets' `connect`."""
    return await connect(url, subprotocols=[Subprotocol("realtime-tts.v1")], compression=None, max_size=None, **options)


async def open_stream(url: str, *, api_key: str | None = None, **start: object) -> ClientConnection:
    """Connect and start a session; `start`: fields of `session.start`. Raises ConfigError: the server refuses them."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    socket = await connect_stream(url, additional_headers=headers)
    await socket.send(json.dumps({"type": "session.start", **start}))
    while (message := json.loads(await socket.recv()))["type"] != "session.started":
        if message["type"] == "error":
            await socket.close()
            raise ConfigError(f"the server refuses the session: {message['message']}", field=message.get("field"))
    return socket


def code_of(error: Exception) -> str:
    """Return the code of a refused handshake or a closed connection, or the kind of error."""
    if isinstance(error, InvalidStatus):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return str(json.loads(error.response.body or b"")["code"])
        return f"status_{error.response.status_code}"
    if isinstance(error, ConnectionClosed):
        if error.rcvd is None:
            return "connection_lost"
        return error.rcvd.reason or f"closed_{error.rcvd.code}"
    return type(error).__name__


async def speak(
    socket: ClientConnection,
    context_id: str,
    text: str,
    *,
    scheduled: float | None = None,
    token_gap_s: float = 0.0,
    cancel_after_s: float | None = None,
    into: Heard | None = None,
    note_late: Callable[[float], None] = lambda late_s: None,
    **fields: object,
) -> Heard:
    """Send one text and collect messages until the terminal one.

    Args:
        scheduled: when its first token should have been sent (`time.monotonic`), from where its times count; None: now.
        token_gap_s: between two tokens, as an LLM writes them; 0: the whole text at once.
        cancel_after_s: barge in so long after the first packet; 0: at that packet.
        into: fill this one, which can be looked at meanwhile.
        note_late: called for each token with its delay, seconds.
        fields: further ones of the text's messages, such as `params`.

    Raises:
        ConnectionClosed: the connection ended before the context.
    """
    spoken = Heard() if into is None else into
    due_s = time.monotonic() if scheduled is None else scheduled

    def note_written(num_chars: int) -> None:
        spoken.written.append((time.monotonic() - due_s, num_chars))

    async def write() -> None:
        pieces, sent = tokens(text) if token_gap_s else [text], ""
        for number, piece in enumerate(pieces):
            at_s = due_s + number * token_gap_s
            if (early_s := at_s - time.monotonic()) > 0:
                await asyncio.sleep(early_s)
            note_late(time.monotonic() - at_s)
            await socket.send(json.dumps({"type": "text", "context_id": context_id, "text": piece, **fields}))
            sent += piece
            if sent.count(" ") > 1:  # the last word may go on
                note_written(sent.rindex(" "))
        await socket.send(json.dumps({"type": "end", "context_id": context_id}))
        note_written(len(text))

    async def barge_in(after_s: float) -> None:
        await asyncio.sleep(after_s)
        tasks[0].cancel()
        spoken.cancelled_at_s = time.monotonic() - due_s
        await socket.send(json.dumps({"type": "cancel", "context_id": context_id}))

    tasks = [asyncio.create_task(write())]
    try:
        while not spoken.terminal:
            frame = await socket.recv()
            now = time.monotonic() - due_s
            if isinstance(frame, bytes):
                *_, pts = HEADER.unpack_from(frame)
                spoken.hear(now, pts / _PTS_RATE_HZ)
                if cancel_after_s is not None and len(tasks) == 1:
                    tasks.append(asyncio.create_task(barge_in(cancel_after_s)))
            else:
                message = json.loads(frame)
                if message.get("context_id") == context_id:
                    _take(message, now, spoken)
    finally:
        await end_tasks(*tasks)
    return spoken


def _take(message: dict[str, Any], now_s: float, spoken: Heard) -> None:
    if message["type"] == "words":
        spoken.words += [(word["start_ms"] / 1000, word["start"]) for word in message["words"]]
    # An error of this context means that its text was refused: there is no context, nothing will end it.
    elif message["type"] in (*TERMINAL, "error"):
        spoken.terminal, spoken.ended_s = message, now_s
        spoken.audio_s = float(message.get("audio_ms", 0.0)) / 1000
        is_cut_off = message["type"] == "context.cancelled" and spoken.cancelled_at_s is None
        spoken.error = CUT_OFF if is_cut_off else str(message.get("code", ""))
