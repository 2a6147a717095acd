"""The owner of one client's WebSocket, for every dialect.

The endpoint reads; a callback of the event loop writes directly to the transport. The session between them is
synchronous, so messages that the reader or the engine causes are written in the next iteration of the loop.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping

from fastapi import WebSocket

from realtime_tts.dialects.base import Dialect
from realtime_tts.errors import (
    Draining,
    InternalError,
    InvalidMessage,
    InvalidRequest,
    RealtimeTTSError,
    SessionNotFound,
)
from realtime_tts.server.admission.slots import Slot
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.logs import log_crash, log_event
from realtime_tts.server.stream.live_session import LiveSession
from realtime_tts.server.stream.socket_protocol import SOCKET_EXTENSION, StreamProtocol
from realtime_tts.session import messages
from realtime_tts.session.connection import GOING_AWAY, INTERNAL_ERROR, POLICY_VIOLATION, TRY_AGAIN_LATER

# 1005: the peer's close frame had no code, which is how browsers close a socket by default.
_CLEAN_CODES = frozenset({1000, 1001, 1005})
_WRITE_BATCH_BYTES = 48 * 1024  # one write holds the batch of a lead in the largest format
_READ_SLICE_S = 0.002  # time for which a flood of messages may occupy the loop


async def serve_stream(
    websocket: WebSocket,
    gateway: Gateway,
    make_dialect: Callable[[], Dialect],
    *,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Serve one WebSocket, from its handshake to its end.

    Args:
        make_dialect: makes the dialect of this connection, once the client is known. It raises a typed error for an
            invalid request, for example because of its query.
        headers: headers of the answer to an accepted handshake.

    Raises:
        RealtimeTTSError: the handshake is refused. The application answers it in the router's error shape.
    """
    client = gateway.admission.identify(websocket)
    socket: StreamProtocol = websocket.scope["extensions"][SOCKET_EXTENSION]
    resume = websocket.query_params.get("resume", "")
    if socket.hand_over(functools.partial(gateway.peers.give, resume)):
        return  # the gateway that has the session answers
    with gateway.admission.noting_refusals(client):
        dialect = make_dialect()
        subprotocol = choose_subprotocol(websocket.scope.get("subprotocols", []), dialect.subprotocol)
    resumed = gateway.sessions.find(resume, client)
    async with gateway.admission.slot(client, resumed=resumed, replaces=True) as slot:
        answered = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]
        await websocket.accept(subprotocol, answered)
        await Connection(websocket, gateway, slot, dialect).run()


def choose_subprotocol(offered: list[str], spoken: str | None) -> str | None:
    """Return the dialect's subprotocol; None if none is offered or the dialect has none.

    Raises:
        InvalidRequest: the client offers other subprotocols only.
    """
    if not offered or spoken is None:
        return None
    if spoken not in offered:
        raise InvalidRequest(f"the subprotocol of this address is {spoken}", field="sec-websocket-protocol")
    return spoken


class Connection:
    """One accepted WebSocket. Its session is opened or resumed when the first frame arrives."""

    def __init__(self, websocket: WebSocket, gateway: Gateway, slot: Slot, dialect: Dialect) -> None:
        self._websocket, self._gateway, self._slot, self._dialect = websocket, gateway, slot, dialect
        self._socket: StreamProtocol = websocket.scope["extensions"][SOCKET_EXTENSION]
        self._live: LiveSession | None = None
        self._is_woken = False  # `_write` will run
        self._over = False

    async def run(self) -> None:
        self._socket.on_writable = self._on_writable
        self._socket.on_failing = self._on_failing
        self._slot.go_away = self._go_away
        self._socket.write_frames(self._dialect.welcome)
        idle_s, code = self._gateway.sessions.idle_timeout_s(self._dialect.habits), 1006
        idle = asyncio.get_running_loop().call_later(idle_s, self._end_idle)
        try:
            code = await self._read()
        except Exception as error:
            log_crash("socket_crashed", error)
            self._close(INTERNAL_ERROR, InternalError.code)
        finally:
            self._over = True
            idle.cancel()
            self._slot.go_away = None  # no reference cycle is left
            if self._live is not None:
                self._live.detach(self, clean=code in _CLEAN_CODES)

    # ---- for the session --------------------------------------------------------------------------------------------

    def wake(self) -> bool:
        """Call `take_messages` soon: messages may be due, or the session is closed.

        Return False if the peer has to take earlier data first; True also while the socket ends, which detaches the
        session.
        """
        if self._over:
            return True
        if self._socket.writable.is_set():
            self._write_soon()
            return True
        if self._live is not None and self._live.session.closing is not None:
            self._follow_close(*self._live.session.closing)  # the socket may never take messages again
        return False

    def supersede(self) -> None:
        """Close: another socket has resumed the session."""
        self._live = None
        self._close(POLICY_VIOLATION, "resumed_elsewhere")

    def _end_idle(self) -> None:
        """Close a socket without a session, which would apply the idle timeout itself."""
        if self._live is None:
            self._close(1000, "idle_timeout")

    def _go_away(self) -> None:
        self._close(GOING_AWAY, "draining")

    # ---- reading -------------------------------------------------------------------------------------------------

    async def _read(self) -> int:
        """Pass every frame to the session; return the close code."""
        slice_end = time.monotonic() + _READ_SLICE_S
        while True:
            frame = await self._websocket.receive()
            if frame["type"] == "websocket.disconnect":
                return int(frame.get("code") or 1005)
            if not self._over:
                try:
                    await self._take(frame["text"] if frame.get("text") is not None else frame["bytes"])
                except Draining:  # the frame needed a new session
                    self._go_away()
                except RealtimeTTSError as error:  # the session was refused
                    self._close(TRY_AGAIN_LATER, error.code)
            if time.monotonic() > slice_end:
                await asyncio.sleep(0)
                slice_end = time.monotonic() + _READ_SLICE_S

    async def _take(self, frame: str | bytes) -> None:
        try:
            parsed = self._dialect.parse(frame, self._gateway.settings.server.limits.max_message_bytes)
        except RealtimeTTSError as error:
            self._session().reject(error)
            return
        except Exception as error:
            log_crash("parser_crashed", error)
            self._session().reject(InternalError("the message cannot be read"))
            return
        for message in parsed:
            if isinstance(message, messages.Resume) and self._live is None:
                self._resume(message)
            else:
                await self._receive(message)

    async def _receive(self, message: messages.ClientMessage) -> None:
        """Pass a message to the session, with what it names: a voice of another process, stored dictionaries."""
        refusal: RealtimeTTSError | None = None
        if isinstance(message, messages.StartSession | messages.Text) and message.voice is not None:
            await self._gateway.voices.look_up(message.voice, self._slot.client.tenant)
        if isinstance(message, messages.Text) and message.dictionaries:
            find, client = self._gateway.with_dictionaries, self._slot.client
            try:
                params, _ = await find(client, message.params, message.dictionaries)
                message = dataclasses.replace(message, params=params, dictionaries=())
            except RealtimeTTSError as error:
                error.context_id = message.context_id
                refusal = error
        if self._over:  # closed meanwhile, perhaps without its session, which another socket has: open no other
            return
        if refusal is None:
            self._session().receive(message)
        else:
            self._session().reject(refusal)

    def _session(self) -> LiveSession:
        return self._live or self._attach(self._gateway.sessions.open(self._slot, self._dialect.habits, self))

    def _attach(self, live: LiveSession) -> LiveSession:
        """Serve a session. The socket may be full already, with answers to pings."""
        self._live = live
        live.writable(self._socket.writable.is_set())
        return live

    def _resume(self, message: messages.Resume) -> None:
        try:
            self._attach(self._gateway.sessions.resume(self._slot, message, self))
        except SessionNotFound as error:
            # An error instead of a close: the client can start a new session on this socket.
            self._session().reject(error)
        else:
            self.wake()

    # ---- writing -------------------------------------------------------------------------------------------------

    def _write_soon(self) -> None:
        """Write in the next iteration of the loop, so that messages of this one are sent together."""
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        """Write the messages that may be sent now, and close the socket if the session is closed."""
        self._is_woken = False
        live = self._live
        if self._over or live is None:
            return
        try:
            while self._write_batch(live) and (live.is_due or live.session.closing is not None):
                pass
            if live.session.closing is not None and self._takes_frames:  # else once the peer has taken earlier data
                self._follow_close(*live.session.closing)
        except Exception as error:
            log_crash("socket_crashed", error)
            self._close(INTERNAL_ERROR, InternalError.code)

    def _write_batch(self, live: LiveSession) -> bool:
        """Write a batch. Return False if there was nothing to write, or if nothing can be written."""
        if not self._takes_frames or not (taken := live.take_messages(_WRITE_BATCH_BYTES)):
            return False
        self._socket.write_frames(self._render(live, taken))
        return True

    @property
    def _takes_frames(self) -> bool:
        """True if frames can be written. False also after the socket's end, before it is reported."""
        return self._socket.writable.is_set() and not self._socket.transport.is_closing()

    def _render(self, live: LiveSession, taken: list[messages.ServerMessage]) -> list[str | bytes]:
        frames: list[str | bytes] = []
        crashed: set[str] = set()  # contexts without further messages in this batch
        for message in taken:
            if crashed and isinstance(message, messages.ContextMessage) and message.context_id in crashed:
                continue
            try:
                frames += self._dialect.serialize(message)
            except Exception as error:
                live.unsendable(message, error)
                if isinstance(message, messages.ContextMessage):
                    crashed.add(message.context_id)
        return frames

    def _on_failing(self, code: int, reason: str) -> None:
        """End the contexts, and report it while frames can still be written: the socket is about to close."""
        self._over = True
        log_event("socket_closed", code=code)
        if self._live is None:
            return
        # A shutdown is not the client's fault.
        error = (
            None if code == GOING_AWAY else InvalidMessage("the client sent data that is not a valid WebSocket message")
        )
        self._live.close(code, reason, error)
        while self._write_batch(self._live):
            pass

    def _follow_close(self, code: int, reason: str) -> None:
        """Close the socket of a session that is closed."""
        log_event("socket_closed", code=code, reason=reason)
        if reason == "slow_consumer":
            self._gateway.metrics.slow_consumers.inc()
        self._close(code, reason)

    def _close(self, code: int, reason: str) -> None:
        self._over = True
        self._socket.close(code, reason)

    def _on_writable(self, writable: bool) -> None:
        """Report to the session whether the socket takes data. See `StreamProtocol`: False comes many seconds late."""
        if self._live is not None:
            self._live.writable(writable)
        if writable:
            self._write_soon()
