"""One simulated client: a connection, a text in deltas, and the behaviour of its kind. It records all in a `Record`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from benchmarks.soak.account import History, Outcome, Record
from benchmarks.soak.plan import Kind, Turn
from realtime_tts.bench.native_stream import HEADER, TERMINAL, code_of, connect_stream
from realtime_tts.bench.texts import tokens
from realtime_tts.contract.watch import end_tasks

LIMIT_S = 120.0  # for one attempt; a longer one counts as hung
OPEN_S, CLOSE_S = 20.0, 1.0
COME_BACK_S = 8.0  # until a client that is refused gives up resuming; the server waits 10 s
AFTERMATH_S = 0.2  # nothing may follow a terminal message; checked for this time
TOKEN_GAP_S = 0.01  # an LLM of a hundred tokens a second
OPUS = {"codec": "opus"}
UNREAD = {"codec": "pcm_f32le", "sample_rate": 48_000}  # for slow readers: fills buffers soonest
SMALL_BUFFER_BYTES = 16 * 1024
# One for each way of being refused; tests/server/test_server_bad_input.py has all of them.
BAD_MESSAGES: tuple[str | bytes, ...] = (
    "{",
    b"\xff\xfe",
    '{"type": "sing"}',
    '{"type": "text"}',
    '{"type": "flush", "context_id": "never heard of"}',
    '{"type": "playback", "context_id": "x", "played_ms": NaN}',
    '{"type": "session.resume", "session_id": "s_nobody"}',
    '{"type": "text", "context_id": "other", "text": "no", "voice": "nobody"}',
    '{"type": "text", "context_id": "other", "text": "' + "long " * 14_000 + '"}',
)
_START_S = time.monotonic()


def clock() -> float:
    """Return the seconds of the campaign, which is the only one of its process."""
    return time.monotonic() - _START_S


class SoakClient:
    """One attempt at one turn, with the behaviour of the record's kind."""

    def __init__(self, url: str, turn: Turn, record: Record, history: History) -> None:
        self._url, self._turn, self._record, self._history = url, turn, record, history
        self._kind = record.kind
        self._socket: ClientConnection
        self._session_id: str | None = None
        self._is_away = False

    async def run(self) -> None:
        """Run from connecting to the end. Never raises for the server's behaviour, which is in the record."""
        record = self._record
        try:
            await self._connect()
            try:
                await asyncio.wait_for(self._converse(), LIMIT_S)
            finally:
                await self._socket.close()
        except TimeoutError:
            record.detail = f"no end within {LIMIT_S:.0f} s"
        except InvalidStatus as error:
            record.outcome, record.code = Outcome.REFUSED, code_of(error)
        except (OSError, InvalidHandshake, EOFError) as error:
            record.outcome, record.detail = Outcome.UNREACHED, code_of(error)
        except ConnectionClosed as error:
            self._closed(code_of(error))
        except Exception as error:  # an unreadable message violates the protocol
            record.broken.append(repr(error))
        finally:
            record.ended_s = clock()

    async def _connect(self) -> None:
        """Connect; a slow reader gets small buffers, so that unread data soon blocks the server."""
        options: dict[str, Any] = {"max_queue": 2} if self._kind is Kind.SLOW else {}
        self._socket = await connect_stream(
            self._url, proxy=None, open_timeout=OPEN_S, close_timeout=CLOSE_S, **options
        )
        if self._kind is Kind.SLOW:
            raw: socket.socket = self._socket.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)

    async def _converse(self) -> None:
        self._record.text_s = clock()
        await self._send("session.start", audio=UNREAD if self._kind is Kind.SLOW else OPUS)
        tasks = [asyncio.create_task(self._write(self._turn.text)), asyncio.create_task(self._act())]
        try:
            await self._listen()
        finally:
            await end_tasks(*tasks)

    def _closed(self, code: str) -> None:
        """Record why the connection ended before the context did."""
        record = self._record
        record.detail = f"closed: {code}"
        if record.is_over:
            return
        if self._history.was_killed(record.asked_s, clock()):
            record.outcome = Outcome.SERVER_KILLED
        elif code in ("draining", "overloaded") and record.accepted_s is None:
            record.outcome, record.code = Outcome.REFUSED, code
        elif self._kind is Kind.SLOW and record.away_s:
            record.outcome = Outcome.CLOSED_SLOW
        elif self._kind is Kind.BAD and code == "too_many_errors" and record.accepted_s is None:
            record.outcome = Outcome.LEFT

    # ---- what it sends -----------------------------------------------------------------------------------------------

    async def _send(self, type: str, **fields: Any) -> None:  # noqa: A002 - the protocol's own name
        await self._socket.send(json.dumps({"type": type, **fields}))

    async def _write(self, text: str) -> None:
        """Send a text at the pace of an LLM, until its end or that of the connection."""
        with contextlib.suppress(ConnectionClosed):
            for token in tokens(text):
                await self._send("text", context_id=self._record.context_id, text=token)
                await asyncio.sleep(TOKEN_GAP_S)
            await self._send("end", context_id=self._record.context_id)

    async def _act(self) -> None:
        """Perform the action of the client's kind, once."""
        await asyncio.sleep(self._turn.acts_after_s)
        if self._record.is_over:
            return
        with contextlib.suppress(ConnectionClosed):
            if self._kind is Kind.CANCEL:
                await self._send("cancel", context_id=self._record.context_id)
            elif self._kind is Kind.BAD:
                for index in range(self._turn.num_bad):
                    await self._socket.send(BAD_MESSAGES[(self._turn.index + index) % len(BAD_MESSAGES)])
            elif self._kind is not Kind.HONEST:
                self._is_away = True  # see `_listen`
                if self._kind is not Kind.SLOW:
                    self._socket.transport.abort()

    # ---- what it receives --------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Receive until the terminal message and a moment after it.

        Raises:
            ConnectionClosed: it ended before.
        """
        record = self._record
        while not record.is_over and record.outcome is Outcome.LOST:
            try:
                self._take(await self._socket.recv())
            except ConnectionClosed:
                if not self._is_away or record.is_over:
                    raise
                self._is_away = False
                await self._come_back()
            if self._is_away and self._kind is Kind.SLOW:
                self._is_away, record.away_s = False, self._turn.away_s
                await asyncio.sleep(self._turn.away_s)
        if record.is_over:
            with contextlib.suppress(TimeoutError, ConnectionClosed):
                async with asyncio.timeout(AFTERMATH_S):
                    while True:
                        self._take(await self._socket.recv())

    def _take(self, frame: str | bytes) -> None:
        now, record = clock(), self._record
        if isinstance(frame, bytes):
            _, _, _, number, sequence, _ = HEADER.unpack_from(frame)
            record.take({"type": "audio", "number": number, "sequence": sequence}, now)
            return
        message = json.loads(frame)
        if message["type"] == "session.started":
            self._session_id = message["session_id"]
        elif message["type"] == "error":
            self._told_error(message)
        elif message.get("context_id") == record.context_id and "sequence" in message:
            record.take(message, now)
        elif message["type"] in TERMINAL:
            record.broken.append(f"{message['type']} of {message['context_id']}, which is not ours")

    def _told_error(self, message: dict[str, Any]) -> None:
        record = self._record
        is_ours = message.get("context_id") == record.context_id
        if is_ours and record.accepted_s is None and not record.is_over:
            record.outcome, record.code = Outcome.REFUSED, message["code"]
        elif message["code"] != "context_closed" and self._kind is not Kind.BAD:
            record.broken.append(f"error {message['code']}")

    # ---- coming back ---------------------------------------------------------------------------------------------

    async def _come_back(self) -> None:
        """Resume after dropping the connection, unless the client is of the kind that stays away."""
        record, dropped_s = self._record, clock()
        if self._kind is Kind.LEAVE or self._session_id is None:
            record.outcome = Outcome.LEFT
            return
        await asyncio.sleep(self._turn.away_s)  # meanwhile `_write` has found the connection closed
        while True:
            try:
                await self._connect()
                break
            except (OSError, InvalidHandshake, EOFError) as error:
                if self._history.was_restarted(dropped_s, clock()):
                    record.outcome = Outcome.SESSION_GONE
                    return
                if clock() - dropped_s > COME_BACK_S:
                    record.outcome = Outcome.LEFT if code_of(error) == "overloaded" else Outcome.LOST
                    record.detail = f"could not come back: {code_of(error)}"
                    return
                await asyncio.sleep(0.5)
        known = {record.context_id: record.next_sequence - 1}
        await self._send("session.resume", session_id=self._session_id, contexts=known)
        message: dict[str, Any] = {"type": ""}
        while message["type"] not in ("session.resumed", "error"):
            message = json.loads(await self._socket.recv())
        if message["type"] == "error":
            gone = self._history.was_restarted(dropped_s, clock())
            record.outcome = Outcome.SESSION_GONE if gone else Outcome.LOST
            record.detail = f"resume: {message['code']}"
            return
        state = {context["context_id"]: context for context in message["contexts"]}[record.context_id]
        if state["state"] == "unknown":
            await self._write(self._turn.text)
        elif state["state"] == "open" and not state["ended"]:
            await self._write(self._turn.text[state["received_chars"] :])
