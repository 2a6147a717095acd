"""uvicorn's protocols with additions for real-time sockets: fast closes, small buffers, back-pressure callbacks.

uvicorn's close of a transport waits until the peer has taken all bytes. A peer without a network never does, so each
graceful close here is followed by an abort. The application reaches its socket through the scope's extension
`SOCKET_EXTENSION`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import struct
from asyncio.transports import BaseTransport
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import cast

import h11
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

from realtime_tts.server.http.problems import error_code
from realtime_tts.server.stream.request_parser import MAX_HEAD_BYTES, MAX_HEADERS, BoundedConnection, ParseBudget
from realtime_tts.session.connection import GOING_AWAY

SOCKET_EXTENSION = "realtime_tts.socket"
# Buffers of the kernel and asyncio for a peer that does not read. Small, since a barge-in cannot discard audio in them,
# yet enough for 16 contexts of 48 kHz PCM at 100 ms of latency.
SEND_BUFFER_BYTES = 64 * 1024
WRITE_HIGH_BYTES = 32 * 1024
# asyncio reads 256 KiB at a time; thousands of tiny frames or chunks would be parsed before another connection's turn.
READ_BYTES = 4 * 1024
_INVALID_DATA = 1007
_TEXT, _BINARY = 0x81, 0x82  # first bytes of whole messages, each in one frame
_PONG = b"\x8a"  # first byte of a pong frame


def _read_little(transport: asyncio.Transport) -> None:
    """Limit each read to a few kilobytes, so that other connections have their turn."""
    if hasattr(transport, "max_size"):
        transport.max_size = READ_BYTES


def _keep_little(transport: asyncio.Transport) -> None:
    """Set small send buffers, and disable Nagle's algorithm."""
    transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
    sock: socket.socket = transport.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


class StreamProtocol(WebSocketsSansIOProtocol):
    """One WebSocket.

    Attributes:
        on_writable: called when asyncio's write buffer passes `WRITE_HIGH_BYTES` (False) and its low mark (True). It
            begins to fill when the kernel's buffer is full, and both hold many seconds of Opus: False comes long after
            a peer has stopped reading.
        on_failing: called with a close code and a reason before the socket is closed, for a framing error of the peer
                or for a shutdown: the last time that `write_frames` may be called.
    """

    close_timeout_s: float = 2.0

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        _keep_little(self.transport)
        _read_little(self.transport)
        self.on_writable: Callable[[bool], None] = _ignore
        self.on_failing: Callable[[int, str], None] = _ignore
        self._pending_pong = b""
        self._fragments = bytearray()  # of an incomplete fragmented message
        self._abort_timer: asyncio.TimerHandle | None = None
        self._runs_app = False
        self._is_ending = False  # shut down before the handshake had an answer

    @property
    def is_lost(self) -> bool:
        return self.disconnected

    def hand_over(self, give: Callable[[int, bytes], bool]) -> bool:
        """Offer the connection to another process: its descriptor, and the handshake, which has no answer yet.

        Return True if `give` has taken it; it is then closed here without a message to the peer.
        """
        if self.handshake_complete or self.transport.is_closing():
            return False
        if not give(self.transport.get_extra_info("socket").fileno(), self.request.serialize()):
            return False
        self.handshake_complete = True  # else uvicorn reports an application without an answer
        self.transport.abort()  # closes this descriptor; the connection stays open
        return True

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):  # the application starts in the next loop iteration
            _extensions(self.scope)[SOCKET_EXTENSION] = self
            self._runs_app = True

    async def run_asgi(self) -> None:
        try:
            await super().run_asgi()
        finally:
            self._runs_app = False
            self._release()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # refused; else uvicorn reports an application without an answer
        if self._is_ending:
            self.shutdown()

    def eof_received(self) -> None:
        # Without this, asyncio would flush to the disconnected peer before it reports the end.
        if not self.handshake_complete:
            self._end_unanswered()
            return
        self._report_end()
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        self._report_end()
        super().connection_lost(exc)
        self._release()

    def _release(self) -> None:
        """Break reference cycles after the end, so that memory is freed without a garbage collection."""
        if self.disconnected and not self._runs_app:
            self.on_writable = self.on_failing = _ignore
            self.conn.parser.close()
            if hasattr(self, "scope"):
                _extensions(self.scope).pop(SOCKET_EXTENSION, None)

    def handle_close(self, event: Frame) -> None:
        if not self.handshake_complete:
            self._end_unanswered()
            return
        super().handle_close(event)
        self.abort_later()

    def handle_cont(self, event: Frame) -> None:
        # One buffer: empty fragments do not count towards the message size, but a list of them would take memory.
        if self.frames:
            self._fragments = bytearray(self.frames.pop())
        self._fragments += event.data
        if event.fin:
            self.frames, self._fragments = [bytes(self._fragments)], bytearray()
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_utf8(self.frames[0]):
            self.frames = []
            if self.handshake_complete:
                self.conn.send_close(_INVALID_DATA, "invalid_message")
            self.handle_parser_exception()
        else:
            super().send_receive_event_to_app()

    def handle_ping(self) -> None:
        frames = self.conn.data_to_send()
        if not self.writable.is_set():
            # For a peer that does not read, only the last pong is kept, so that pongs cannot fill memory.
            pongs = [frame for frame in frames if frame[:1] == _PONG]
            self._pending_pong = pongs[-1] if pongs else self._pending_pong
            frames = [frame for frame in frames if frame[:1] != _PONG]
        self.transport.write(b"".join(frames))

    def handle_parser_exception(self) -> None:
        if not self.handshake_complete:
            self._end_unanswered()
            return
        close = self.conn.close_sent
        if close is not None and not self.close_sent:
            self.on_failing(close.code, close.reason)
        super().handle_parser_exception()
        self.abort_later()

    def _end_unanswered(self) -> None:
        """End the connection of a peer that leaves, or breaks the protocol, before its handshake has an answer.

        websockets can send neither a close frame nor a refusal then. What the application sends is discarded.
        """
        self.handshake_complete = self.close_sent = self.disconnected = True
        self._report_end()
        self.transport.abort()

    def shutdown(self) -> None:
        if self.handshake_complete and not self.close_sent:
            self.on_failing(GOING_AWAY, "draining")
            self.close(GOING_AWAY, "draining")
        elif self._runs_app and not self.handshake_complete:
            self._is_ending = True  # the application answers; uvicorn's answer of 500 would be in its way
        else:
            super().shutdown()

    def keepalive_timeout(self) -> None:
        self._report_end()
        super().keepalive_timeout()
        self.abort_later()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.on_writable(False)

    def resume_writing(self) -> None:
        super().resume_writing()
        pong, self._pending_pong = self._pending_pong, b""
        self.transport.write(pong)
        self.on_writable(True)

    def write_frames(self, messages: Iterable[str | bytes]) -> None:
        """Write text and binary messages at once, without waiting for buffered data.

        Allowed while the socket is being closed, until its close frame is sent.
        """
        self.transport.write(b"".join(itertools.chain.from_iterable(map(_frame, messages))))

    def close(self, code: int, reason: str) -> None:
        """Send a close frame without waiting for buffered data, and give the peer `close_timeout_s` to answer.

        Unread data of the peer would reset a closed connection, and the peer would not get the last messages.
        """
        if not self.close_sent and self.handshake_complete and not self.transport.is_closing():
            self.conn.send_close(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.stop_keepalive()
            if self.read_paused:
                self.read_paused = False
                self.transport.resume_reading()
            self.close_timer = self.loop.call_later(self.close_timeout_s, self.transport.close)
        self._report_end()
        self.abort_later()

    def abort_later(self) -> None:
        if self._abort_timer is None:
            self._abort_timer = self.loop.call_later(self.close_timeout_s, self.transport.abort)

    def _report_end(self) -> None:
        """Report to the application that the connection has ended. It reads the first such message only."""
        self.queue.put_nowait({"type": "websocket.disconnect", "code": 1006, "reason": "connection lost"})


def _extensions(scope: object) -> dict[str, object]:
    """Return the extensions of an ASGI scope, which may hold any object."""
    return cast(dict[str, dict[str, object]], scope).setdefault("extensions", {})


def _ignore(*news: object) -> None:
    """Do nothing: the default callback."""


def _frame(message: str | bytes) -> tuple[bytes, bytes]:
    """Return header and payload of a message as one unmasked frame."""
    first_byte, payload = (_TEXT, message.encode()) if isinstance(message, str) else (_BINARY, message)
    num_bytes = len(payload)
    if num_bytes < 126:
        return bytes((first_byte, num_bytes)), payload
    if num_bytes < 65_536:
        return struct.pack(">BBH", first_byte, 126, num_bytes), payload
    return struct.pack(">BBQ", first_byte, 127, num_bytes), payload


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class _PacedFlow(FlowControl):
    """uvicorn's flow control for a connection whose reading can also be paused to bound its cost."""

    is_halted = False

    def halt(self) -> None:
        self.is_halted = True
        self._transport.pause_reading()

    def resume(self) -> None:
        self.is_halted = False
        if not self.read_paused:
            self._transport.resume_reading()

    def resume_reading(self) -> None:
        if self.is_halted:
            self.read_paused = False  # `resume` does it
        else:
            super().resume_reading()


class RequestProtocol(H11Protocol):
    """HTTP/1.1 with time limits for receiving a request and for sending an answer, and a limit on parsing cost.

    Attributes:
        halted: all connections of this server whose parsing is paused.
    """

    handshake_timeout_s: float = 10.0
    close_timeout_s: float = 2.0
    halted: set[RequestProtocol]

    conn: BoundedConnection
    flow: _PacedFlow

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _read_little(transport)
        self.conn = BoundedConnection()
        self._budget = ParseBudget(self.loop.time())
        self._halt_timer: asyncio.TimerHandle | None = None
        self.flow = _PacedFlow(transport)
        self._request_timer: asyncio.TimerHandle | None = self.loop.call_later(self.handshake_timeout_s, self._late)
        self._end_timer: asyncio.TimerHandle | None = None
        self._on_writable: Callable[[bool], None] = _ignore
        self._is_waiting = False  # the request waits for an upload slot
        self._write_timeout_s = self.handshake_timeout_s

    @property
    def is_lost(self) -> bool:
        """True if the peer has disconnected before the answer."""
        return self.cycle.disconnected

    def handle_events(self) -> None:
        if self.flow.is_halted:
            return  # `_parse_again` calls this again
        before = self.scope
        super().handle_events()
        # The application of a new request starts in the next loop iteration. A WebSocket has its own protocol.
        if self.scope is not before and self.transport.get_protocol() is self:
            _extensions(self.scope)[SOCKET_EXTENSION] = self
        self._pace()

    def _pace(self) -> None:
        """Pause parsing if its cost is too high, or until other connections had their turn if data is left."""
        is_cut = self.conn.is_cut
        pause_s = self._budget.pause_s(self.conn.take_cost_us(), len(self.halted), self.loop.time())
        if self.transport.get_protocol() is not self or self.transport.is_closing():
            return  # a WebSocket's protocol controls its own reading
        if pause_s > 0 or is_cut:
            self.flow.halt()
            self.halted.add(self)
            self._halt_timer = self.loop.call_later(pause_s, self._parse_again)

    def _parse_again(self) -> None:
        self._halt_timer = None
        self.halted.discard(self)
        self.flow.resume()
        if not self.transport.is_closing():
            self.handle_events()
            self._watch_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_request()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        super().handle_websocket_upgrade(event)
        self._stop_watching()  # the timer would keep this object alive after a short WebSocket

    def on_response_complete(self) -> None:
        _extensions(self.scope).pop(SOCKET_EXTENSION, None)  # no reference cycle is left, as with a WebSocket
        super().on_response_complete()
        self._watch_request()  # the next request may have begun already

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._request_timer, self._end_timer, self._halt_timer):
            if timer is not None:
                timer.cancel()
        self.halted.discard(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._abort_after(self._write_timeout_s)
        self._on_writable(False)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._end_timer is not None and not self.transport.is_closing():
            self._end_timer.cancel()
            self._end_timer = None
        self._on_writable(True)

    @contextlib.contextmanager
    def streaming(self, on_writable: Callable[[bool], None], timeout_s: float) -> Iterator[None]:
        """Context of a streamed answer: `on_writable` is called if the peer falls behind (False) or catches up (True).

        A peer that does not catch up within `timeout_s` is disconnected.
        """
        _keep_little(self.transport)
        self._on_writable, self._write_timeout_s = on_writable, timeout_s
        try:
            yield
        finally:
            self._on_writable = _ignore

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Context in which a request waits before its body is read: its time limit does not run."""
        self._is_waiting = True
        self._stop_watching()
        try:
            yield
        finally:
            self._is_waiting = False
            self._watch_request()

    def flush(self) -> None:
        """Make the next write wait until the peer has taken all data sent before."""
        self.transport.set_write_buffer_limits(high=0)

    def cut_off(self) -> None:
        """Close the connection within an answer, so that the peer detects that it is incomplete."""
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.close()  # data written before is still sent
        self._abort_after(self.close_timeout_s)

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():  # the peer is not idle: it is still reading the answer
            timer = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
            self.timeout_keep_alive_task = timer
            return
        super().timeout_keep_alive_handler()
        self._abort_after(self.close_timeout_s)

    def shutdown(self) -> None:
        super().shutdown()
        if self.transport.is_closing():
            self._abort_after(self.close_timeout_s)

    def send_400_response(self, msg: str) -> None:
        if self.conn.error_status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            msg = f"a request has at most {MAX_HEADERS} headers of {MAX_HEAD_BYTES} bytes in all"
        self._refuse(self.conn.error_status, msg)

    def _watch_request(self) -> None:
        """Start or stop the time limit of a request: it runs from the first byte to the last one."""
        if self.transport.get_protocol() is not self:  # the socket became a WebSocket
            return
        state = self.conn.their_state
        is_arriving = state is h11.SEND_BODY or (state is h11.IDLE and bool(self.conn.trailing_data[0]))
        if is_arriving and self._request_timer is None and not self._is_waiting:
            self._request_timer = self.loop.call_later(self.handshake_timeout_s, self._late)
        elif not is_arriving:
            self._stop_watching()

    def _stop_watching(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _late(self) -> None:
        self._request_timer = None
        if self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the request took too long to arrive")
        else:
            self.transport.abort()

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Answer instead of the application, if it has not begun its answer, and close. Its later output is dropped."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        is_retryable = status is HTTPStatus.REQUEST_TIMEOUT
        body = json.dumps({"code": error_code(status), "message": message, "retryable": is_retryable}).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=status.phrase.encode()),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._abort_after(self.close_timeout_s)

    def _abort_after(self, delay_s: float) -> None:
        if self._end_timer is None:
            self._end_timer = self.loop.call_later(delay_s, self.transport.abort)


def protocol_classes(
    handshake_timeout_s: float, close_timeout_s: float
) -> tuple[type[RequestProtocol], type[StreamProtocol]]:
    """Return the two classes with these times as attributes: uvicorn makes the instances without extra arguments."""
    times = {"handshake_timeout_s": handshake_timeout_s, "close_timeout_s": close_timeout_s}
    http = type("RequestProtocol", (RequestProtocol,), {**times, "halted": set()})
    stream = type("StreamProtocol", (StreamProtocol,), {"close_timeout_s": close_timeout_s})
    return http, stream
