"""Phone bot over the media-stream WebSocket of a carrier or a PBX: Twilio, Telnyx, Plivo, Vonage, Asterisk.

    python agents/phone_bot.py --path /a-secret-path

The carrier connects to wss://your-host/a-secret-path/CARRIER (`twilio`, …); a proxy in front of this program has the
certificate. With --public-url, PATH/CARRIER/answer answers the webhook of a call (GET or POST) with the instruction to
do so. The bot stops at the end of its word when the caller makes a sound: what the carrier has buffered is cleared, and
the carrier's marks tell what was heard until then. After a short sound it goes on.
Its answers are scripted; give `Bot` another `answer` to let a language model speak.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # for any way of starting this file

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web
from bots import CallBot, parser, serve
from carriers import CARRIERS, Carrier, Event, Failed, Heard, Played, Started, Stopped
from conversation import Answer, Conversation, Turn
from realtime_tts_client import Packet, ProtocolError, RealtimeTTSError, Session
from realtime_tts_client.decoding import Decoder, to_int16

logger = logging.getLogger("phone_bot")

MARK_EVERY_MS = 200.0
MAX_MESSAGE_BYTES = 1 << 16  # 6 s of audio: carriers send 20 ms at a time
WORD_S = 1.5  # a longer word is cut
START_S = 10.0  # from the connection to the start of the stream
DEFAULT_PATH = "/media"
PATH = re.compile(r"/[A-Za-z0-9._~/-]*")  # characters that need no encoding and are no pattern of aiohttp
MAX_REASON_BYTES = 123  # limit of a close frame
HEARTBEAT_S = 20.0


class Call(Conversation):
    """One call over one WebSocket of the carrier. The carrier's marks report the playback position."""

    def __init__(self, socket: web.WebSocketResponse, carrier: Carrier, session: Session, answer: Answer) -> None:
        super().__init__(session, answer, carrier.audio.sample_rate)
        self._socket = socket
        self._carrier = carrier
        self._has_started = False
        self._stream_id = ""
        self._decoder = Decoder(carrier.audio)
        self._marked_ms = 0.0  # position of the last mark in the turn
        self._marked = asyncio.Event()  # a mark has come back
        self._silencing: Turn | None = None  # the turn whose last word is played
        self._ends_ms: list[float] = []  # ends of words without a mark yet

    async def run(self) -> None:
        """Run the call until the carrier or the caller ends it.

        Raises:
            ValueError: a message is malformed.
            TimeoutError: the carrier has not started the stream in time.
        """
        start_by = asyncio.get_running_loop().time() + START_S
        try:
            while (message := await self._next(start_by)).type in (WSMsgType.TEXT, WSMsgType.BINARY):
                event = self._carrier.read(message.data)
                if isinstance(event, Stopped):
                    break
                if event is not None:
                    self._take(event)
        except ProtocolError as error:
            raise ValueError(error.message) from error
        finally:
            await self._quiet()

    async def _next(self, start_by: float) -> WSMessage:
        """Return the next message. Once the socket is closed, its type is neither text nor binary."""
        if self._has_started:
            return await self._socket.receive()
        remaining_s = start_by - asyncio.get_running_loop().time()
        if remaining_s <= 0:
            raise TimeoutError
        return await self._socket.receive(remaining_s)

    def _take(self, event: Event) -> None:
        match event:
            case Failed(message):
                logger.warning("the carrier reports: %.500r", message)
            case Started(stream_id):
                if self._has_started:
                    raise ValueError("a stream starts once")
                self._has_started, self._stream_id = True, stream_id
                self._begin_turn(asked="")
            case _ if not self._has_started:
                pass  # messages before the start belong to no stream
            case Heard(payload):
                self._hear(to_int16(self._decoder.decode(payload)))
            case Played(mark):
                self._on_mark(mark)

    async def _carry(self, turn: Turn, packet: Packet) -> None:
        """Forward a packet, with a mark at each word end and at intervals."""
        if packet.pts_samples == 0:
            self._marked_ms, self._ends_ms = 0.0, []
        await self._send(self._carrier.to_play(self._stream_id, packet.payload))
        self._ends_ms += [word.end_ms for word in packet.words]
        marked_ms, sent_ms = self._marked_ms, turn.carried_ms
        if sent_ms - marked_ms >= MARK_EVERY_MS or any(marked_ms < end <= sent_ms for end in self._ends_ms):
            await self._send(self._carrier.to_mark(self._stream_id, f"{_mark_prefix(turn)}/{sent_ms:.0f}"))
            self._marked_ms = sent_ms
            self._ends_ms = [end for end in self._ends_ms if end > sent_ms]

    async def _carry_end(self, turn: Turn) -> None:
        mark = f"{_mark_prefix(turn)}/{turn.carried_ms:.0f}/end"
        await self._send(self._carrier.to_mark(self._stream_id, mark))

    async def _cut(self, turn: Turn) -> None:
        if not turn.is_silent:
            await self._send(self._carrier.to_clear(self._stream_id))

    def _reached_ms(self, turn: Turn) -> float:
        return turn.played_ms + 1.0  # behind the last mark, in the word that follows

    async def _silence(self, turn: Turn, held_ms: float) -> None:
        """Wait for the mark at the end of the word, also if the turn is over meanwhile: its history has the word."""
        self._silencing = turn
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WORD_S):
                while turn.played_ms < held_ms - 0.5:  # a mark is rounded
                    self._marked.clear()
                    await self._marked.wait()
        self._silencing = None
        await self._send(self._carrier.to_clear(self._stream_id))

    def _on_released(self, turn: Turn, from_ms: float) -> None:
        super()._on_released(turn, from_ms)
        turn.played_ms = self._marked_ms = from_ms
        self._ends_ms = [word.end_ms for word in turn.context.words if word.end_ms > from_ms]

    def _on_mark(self, name: str) -> None:
        """Handle a mark: the carrier has played up to it, or discarded it because its turn is over."""
        number, position, *end = name.split("/")
        turn, played_ms = self._silencing or self.turn, float(position)
        if turn is None or number != _mark_prefix(turn) or (turn.is_over and turn is not self._silencing):
            return
        if not 0 <= played_ms <= turn.carried_ms + 1:  # a mark is rounded
            raise ValueError("a mark that was not sent")
        self._played(turn, played_ms)
        self._marked.set()
        if end:
            self._heard_out(turn)

    async def _send(self, message: str | bytes) -> None:
        await (self._socket.send_str(message) if isinstance(message, str) else self._socket.send_bytes(message))


def _mark_prefix(turn: Turn) -> str:
    """Return the beginning of the names of a turn's marks; another one after each hold, which discards marks."""
    return f"{turn.number}.{turn.num_holds}"


class Bot(CallBot):
    """Bot that answers each call that a carrier connects to `path`, followed by the carrier's name.

    Args:
        public_url: address at which the carrier reaches this bot, used in the answer to its webhook.
        options: as `CallBot`'s.

    Raises:
        ValueError: a path or an address is malformed.
    """

    def __init__(
        self, tts_url: str, *, path: str = DEFAULT_PATH, public_url: str | None = None, **options: Any
    ) -> None:
        super().__init__(tts_url, **options)
        if not PATH.fullmatch(path):
            raise ValueError(f"path must begin with / and have letters, digits, - . _ ~ and / only, got {path!r}")
        if public_url is not None and not public_url.startswith(("wss://", "ws://")):
            raise ValueError(f"public_url must be like wss://bot.example.org, got {public_url!r}")
        self.calls: set[Call] = set()
        self._sockets: set[web.WebSocketResponse] = set()
        self._path = path.rstrip("/")
        self._public_url = public_url

    def application(self) -> web.Application:
        made = web.Application()
        for name, carrier in CARRIERS.items():
            made.router.add_get(f"{self._path}/{name}", partial(self._on_call, carrier))
            if self._public_url is not None and carrier.answer is not None:
                made.router.add_route("*", f"{self._path}/{name}/answer", partial(self._on_webhook, name))
        made.on_shutdown.append(self._end_calls)
        return made

    async def _end_calls(self, application: web.Application) -> None:
        await asyncio.gather(*(socket.close(code=WSCloseCode.GOING_AWAY) for socket in self._sockets))

    async def _on_webhook(self, name: str, request: web.Request) -> web.Response:
        """Return the instruction to connect the call to this bot."""
        content_type, body = CARRIERS[name].to_answer(f"{str(self._public_url).rstrip('/')}{self._path}/{name}")
        return web.Response(text=body, content_type=content_type)

    async def _on_call(self, carrier: Carrier, request: web.Request) -> web.WebSocketResponse:
        if "origin" in request.headers:  # carriers send none; a web page in a browser does
            raise web.HTTPForbidden(text="pages may not connect\n")
        if len(self._sockets) >= self._max_calls:
            raise web.HTTPServiceUnavailable(text="all lines are busy\n")
        socket = web.WebSocketResponse(
            heartbeat=HEARTBEAT_S, max_msg_size=MAX_MESSAGE_BYTES, compress=False, protocols=carrier.protocols
        )
        self._sockets.add(socket)
        try:
            await socket.prepare(request)
            await self._on_socket(socket, carrier)
        finally:
            self._sockets.discard(socket)
        return socket

    async def _on_socket(self, socket: web.WebSocketResponse, carrier: Carrier) -> None:
        try:
            async with self._session(carrier.audio) as session:
                call = Call(socket, carrier, session, self._answer)
                self.calls.add(call)
                try:
                    await call.run()
                finally:
                    self.calls.discard(call)
        except ConnectionResetError as error:
            logger.info("the line broke: %s", error)
        except TimeoutError:
            await socket.close(code=1008, message=b"the stream was not started")
        except ValueError as error:
            await socket.close(code=1003, message=str(error).encode("ascii", "replace")[:MAX_REASON_BYTES])
        except RealtimeTTSError as error:
            logger.error("no speech: %s: %s", error.code, error.message)
            await socket.close(code=1013, message=error.code.encode())


if __name__ == "__main__":
    options = parser(__doc__, 8090)
    options.add_argument(
        "--path", default=DEFAULT_PATH, help="carriers connect to PATH/NAME; keep it secret, it is the only check"
    )
    options.add_argument("--public-url", help="wss://…, under which the carrier reaches this program")
    serve(options, Bot)
