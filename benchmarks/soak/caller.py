"""One simulated client: a connection, a text in deltas, and the behaviour of its kind. It records all in a `Record`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from benchmarks.soak.account import History, Outcome, Record
from benchmarks.soak.plan import Kind, Turn
from realtime_tts.bench.native_stream import HEADER, TERMINAL, code_of

LIMIT_S = 120.0  # for one attempt; a longer one counts as hung
OPEN_S = 20.0
COME_BACK_S = 8.0  # until a client that is refused gives up resuming; the server waits 10 s
AFTERMATH_S = 0.2  # nothing may follow a terminal message; checked for this time
SMALL_BUFFER_BYTES = 16 * 1024
_REFUSALS = {(1001, "draining"), (1013, "overloaded")}  # closes of a socket before there is a session
BAD_MESSAGES: tuple[str | bytes, ...] = (
    "{",
    "[]",
    "null",
    b"\xff\xfe",
    '{"type": "sing"}',
    '{"type": "text"}',
    '{"type": "text", "context_id": 7, "text": "no"}',
    '{"type": "text", "context_id": "", "text": "no"}',
    '{"type": "flush", "context_id": "never heard of"}',
    '{"type": "playback", "context_id": "x", "played_ms": -1}',
    '{"type": "playback", "context_id": "x", "played_ms": NaN}',
    '{"type": "session.resume", "session_id": "s_nobody"}',
    '{"type": "text", "context_id": "other", "text": "no", "voice": "nobody"}',
    '{"type": "text", "context_id": "other", "text": "no", "audio": {"codec": "mp7"}}',
    "[" * 50 + "]" * 50,
    '{"type": "ping", "id": ' + "9" * 50 + "}",
    '{"type": "text", "context_id": "other", "text": "' + "long " * 14_000 + '"}',
)
_START_S = time.monotonic()


def clock() -> float:
    """Return the seconds of the campaign, which is the only one of its process."""
    return time.monotonic() - _START_S


class Caller:
    """One attempt at one turn, with the behaviour of the record's kind."""

    def __init__(self, url: str, turn: Turn, record: Record, history: History) -> None:
        self._url, self._turn, self._record, self._history = url, turn, record, history
        self._kind = record.kind
        self._socket: ClientConnection
        self._session_id: str | None = None
        self._is_away = False
        self._writing: asyncio.Task[None] | None = None
        self._unread = asyncio.Event()  # set while a slow reader does not read

    async def call(self) -> None:
        """Run from connecting to the end. Never raises for the server's behaviour, which is in the record."""
        acting: asyncio.Task[None] | None = None
        try:
            self._socket = await self._connect()
            self._record.text_s = clock()
            await self._send("session.start", audio=self._audio())
            self._writing = asyncio.create_task(self._write())
            acting = asyncio.create_task(self._act())
            await asyncio.wait_for(self._listen(), LIMIT_S)
        except TimeoutError:
            self._record.detail = f"no end within {LIMIT_S:.0f} s"
        except InvalidStatus as error:
            self._record.outcome, self._record.code = Outcome.REFUSED, code_of(error)
        except (OSError, InvalidHandshake, EOFError) as error:
            self._record.outcome, self._record.detail = Outcome.UNREACHED, type(error).__name__
        except ConnectionClosed as error:
            self._closed(error)
        except Exception as error:  # an unreadable message violates the protocol
            self._record.broken.append(repr(error))
        finally:
            tasks = [task for task in (self._writing, acting) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if hasattr(self, "_socket"):
                await self._hang_up()
            self._record.ended_s = clock()

    # ---- the connection ------------------------------------------------------------------------------------------

    async def _connect(self) -> ClientConnection:
        options: dict[str, Any] = {}
        if self._kind is Kind.SLOW:
            options = {"sock": await self._small_socket(), "max_queue": 2}
        return await connect(
            self._url,
            subprotocols=["realtime-tts.v1"],  # type: ignore[list-item]
            compression=None,
            proxy=None,
            max_size=None,
            open_timeout=OPEN_S,
            close_timeout=1,
            **options,
        )

    async def _small_socket(self) -> socket.socket:
        """Return a socket with a small buffer, so that unread data soon blocks the server."""
        address = urlsplit(self._url)
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (address.hostname, address.port))
        except OSError:
            sock.close()
            raise
        return sock

    def _audio(self) -> dict[str, Any]:
        if self._kind is Kind.SLOW:
            return {"codec": "pcm_f32le", "sample_rate": 48_000}
        return {"codec": "opus"}

    async def _hang_up(self) -> None:
        with contextlib.suppress(Exception):
            if self._record.outcome is Outcome.LOST:
                self._socket.transport.abort()
            await asyncio.wait_for(self._socket.close(), 3)

    def _closed(self, error: ConnectionClosed) -> None:
        """The connection ended before the context did: find out why."""
        record, now = self._record, clock()
        code, reason = (error.rcvd.code, error.rcvd.reason) if error.rcvd is not None else (1006, "")
        record.detail = f"closed with {code} {reason}".strip()
        if record.is_over:
            return
        if self._history.was_killed(record.asked_s, now):
            record.outcome = Outcome.SERVER_KILLED
        elif (code, reason) in _REFUSALS and record.accepted_s is None:
            record.outcome, record.code = Outcome.REFUSED, reason
        elif self._kind is Kind.SLOW and record.away_s:
            record.outcome = Outcome.CLOSED_SLOW
        elif self._kind is Kind.BAD and reason == "too_many_errors" and record.accepted_s is None:
            record.outcome = Outcome.LEFT

    # ---- what it sends -----------------------------------------------------------------------------------------------

    async def _send(self, type: str, **fields: Any) -> None:  # noqa: A002 - the protocol's own name
        await self._socket.send(json.dumps({"type": type, **fields}))

    async def _write(self) -> None:
        """Send the text at the pace of an LLM."""
        with contextlib.suppress(ConnectionClosed):
            for gap_s, piece in self._turn.deltas():
                await asyncio.sleep(gap_s)
                await self._send("text", context_id=self._record.context_id, text=piece)
            await self._send("end", context_id=self._record.context_id)

    async def _write_rest(self, resumed: dict[str, Any] | None) -> None:
        """Send the text that the server had not received. `resumed`: the server's state of the context."""
        start, ended = 0, False
        if resumed is not None and resumed["state"] != "unknown":
            start, ended = resumed["received_chars"], resumed["ended"] or resumed["state"] != "open"
        if not ended:
            if rest := self._turn.text[start:]:
                await self._send("text", context_id=self._record.context_id, text=rest)
            await self._send("end", context_id=self._record.context_id)

    async def _act(self) -> None:
        """Perform the action of the client's kind, once."""
        if self._kind is Kind.HONEST:
            return
        await asyncio.sleep(self._turn.acts_after_s)
        if self._record.is_over:
            return
        with contextlib.suppress(ConnectionClosed):
            if self._kind is Kind.CANCEL:
                await self._send("cancel", context_id=self._record.context_id)
            elif self._kind is Kind.BAD:
                for index in range(self._turn.num_bad):
                    await self._socket.send(BAD_MESSAGES[(self._turn.seed + index) % len(BAD_MESSAGES)])
            elif self._kind is Kind.SLOW:
                self._unread.set()
            else:
                self._is_away = True
                self._socket.transport.abort()

    # ---- what it receives --------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Receive until the terminal message and a moment after it.

        Raises:
            ConnectionClosed: it ended before.
        """
        while not self._record.is_over and self._record.outcome is Outcome.LOST:
            try:
                self._take(await self._socket.recv())
            except ConnectionClosed:
                if not self._is_away or self._record.is_over:
                    raise
                self._is_away = False
                await self._come_back()
            if self._unread.is_set():
                self._unread.clear()
                self._record.away_s = self._turn.away_s
                await asyncio.sleep(self._turn.away_s)
        if self._record.is_over:
            with contextlib.suppress(TimeoutError, ConnectionClosed):
                await asyncio.wait_for(self._aftermath(), AFTERMATH_S)

    async def _aftermath(self) -> None:
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
        record = self._record
        if self._writing is not None:
            self._writing.cancel()
        if self._kind is Kind.LEAVE or self._session_id is None:
            record.outcome = Outcome.LEFT
            return
        dropped_s = clock()
        await asyncio.sleep(self._turn.away_s)
        while True:
            try:
                self._socket = await self._connect()
                break
            except (OSError, InvalidHandshake, EOFError) as error:
                now = clock()
                if self._history.was_restarted(dropped_s, now):
                    record.outcome = Outcome.SESSION_GONE
                    return
                if now - dropped_s > COME_BACK_S:
                    record.outcome = Outcome.LEFT if code_of(error) == "overloaded" else Outcome.LOST
                    record.detail = f"could not come back: {code_of(error)}"
                    return
                await asyncio.sleep(0.5)
        known = {record.context_id: record.next_sequence - 1}
        await self._send("session.resume", session_id=self._session_id, contexts=known)
        await self._until_resumed(dropped_s)

    async def _until_resumed(self, dropped_s: float) -> None:
        record = self._record
        while True:
            message = json.loads(await self._socket.recv())
            if message["type"] == "session.resumed":
                break
            if message["type"] == "error":
                gone = self._history.was_restarted(dropped_s, clock())
                record.outcome = Outcome.SESSION_GONE if gone else Outcome.LOST
                record.detail = f"resume: {message['code']}"
                return
        states = {context["context_id"]: context for context in message["contexts"]}
        await self._write_rest(states.get(record.context_id))
