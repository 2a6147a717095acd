"""Bot for direct WebRTC calls from a browser, without account or media server.

    python agents/webrtc_bot.py            then open http://localhost:8070

The page sends its offer to POST /offer and has the answer; sound goes both ways, and over a data channel the page tells
how far it has played, so that an interrupted turn leaves in the history what was heard. The bot stops when the caller
speaks or presses Interrupt. Browsers give their microphone to https pages and localhost only: elsewhere put a proxy
with a certificate in front and name its address (--allowed-origin https://bot.example.org). Its answers are scripted;
give `Bot` another `answer` to let a language model speak.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # for any way of starting this file

import av
import numpy as np
from aiohttp import web
from aiortc import (
    InvalidStateError,
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError
from aiortc.rtcicetransport import parse_stun_turn_uri
from bots import END_S, CallBot, parser, serve
from conversation import Answer, Conversation, Turn
from page_origins import CONTENT_POLICY, PageOrigins
from peer import CONNECT_S, MAX_OFFER_BYTES, answer_offer, check_size
from realtime_tts_client import AudioFormat, Packet, RealtimeTTSError, Session
from speech_track import RATE_HZ, SpeechTrack

logger = logging.getLogger("webrtc_bot")

PAGE = Path(__file__).parent / "webrtc"
OPUS = AudioFormat("opus", sample_rate=RATE_HZ, frame_ms=20)
GRACE_S = 2.0  # for an offer to become a call before a new one may replace it
CUT_ANSWER_S = 0.3  # for the page to report where it stopped
MAX_BUFFERED_BYTES = 1 << 20  # for a page that sends and does not read


class Call(Conversation):
    """One caller, one peer connection.

    To the page go, as JSON: `run` (speech begins at that RTP timestamp, so far into the turn), `words`, `cut` (be
    silent until that RTP timestamp, and answer from where), `heard` (the turn is over, that much of it was heard),
    `hearing` (the caller speaks, or no longer), `asked`, `failed`. From it come `played` and `cut`, each with the RTP
    timestamp that it has played, and `interrupt`.
    """

    def __init__(self, session: Session, answer: Answer, ice_servers: list[RTCIceServer]) -> None:
        super().__init__(session, answer, RATE_HZ)
        self._connection = RTCPeerConnection(RTCConfiguration(iceServers=ice_servers))
        self._track = SpeechTrack(self._on_run)
        self._channel: RTCDataChannel | None = None
        self._began = asyncio.Event()
        self._over = asyncio.Event()
        self._cut_answered = asyncio.Event()
        self._cut_answered.set()  # no cut is pending
        self._num_words_told = 0
        self._is_carried = False  # whether all of the turn was sent
        self._hearing: asyncio.Task[None] | None = None
        self._connection.on("connectionstatechange", self._on_state)
        self._connection.on("datachannel", self._on_channel)
        self._connection.on("track", self._on_track)

    async def answer(self, offer: RTCSessionDescription) -> RTCSessionDescription:
        """
        Raises:
            ValueError: the offer is not of Opus in both directions.
        """
        return await answer_offer(self._connection, self._track, offer)

    @property
    def has_begun(self) -> bool:
        """True once the caller has connected, so that the offer has become a call."""
        return self._began.is_set()

    async def run(self) -> None:
        """Run the call until the caller or the bot hangs up.

        Raises:
            TimeoutError: no connection to the caller could be made.
        """
        await asyncio.wait_for(self._began.wait(), CONNECT_S)
        await self._over.wait()

    def end(self) -> None:
        """Let `run` return."""
        self._began.set()
        self._over.set()

    async def hang_up(self) -> None:
        if self._hearing is not None:
            self._hearing.cancel()
        await self._quiet()
        await self._connection.close()

    # ---- the connection ------------------------------------------------------------------------------------------

    def _on_state(self) -> None:
        if self._connection.connectionState in ("failed", "closed"):
            self.end()

    def _on_channel(self, channel: RTCDataChannel) -> None:
        if self._channel is not None:
            return
        self._channel = channel
        channel.on("message", self._on_message)
        channel.on("close", self.end)
        self._began.set()
        with self._ending():
            self._begin_turn(asked="")

    def _on_track(self, track: MediaStreamTrack) -> None:
        self._hearing = asyncio.get_running_loop().create_task(self._listen(track), name="hearing")

    async def _listen(self, track: MediaStreamTrack) -> None:
        with self._ending():
            while True:
                frame = await track.recv()
                if isinstance(frame, av.AudioFrame):
                    self._hear(np.ascontiguousarray(frame.to_ndarray()[0, :: frame.layout.nb_channels]))

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        """End the call if the caller has gone or the session was lost."""
        try:
            yield
        except MediaStreamError:
            self.end()
        except RealtimeTTSError as error:
            self._tell("failed", code=error.code, message=error.message)
            self.end()

    def _on_message(self, message: str | bytes) -> None:
        try:
            fields = json.loads(message)
            kind, turn = fields["type"], self.turn
            if kind == "interrupt":
                if turn is None or turn.is_over:  # too late, but the page stays silent until it gets an answer
                    self._tell("cut", turn=0, rtp=self._track.drop())
                self.interrupt()
            elif turn is not None and kind == "played" and not turn.is_over:
                self._played(turn, self._track.heard_ms(int(fields["rtp"])))
                self._end_if_heard(turn)
            elif turn is not None and kind == "cut" and fields["turn"] == turn.number:
                if not self._cut_answered.is_set():
                    self._played(turn, self._track.heard_ms(int(fields["rtp"])))
                self._cut_answered.set()
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            logger.warning("not a message of our page: %r", error)
            self.end()

    def _tell(self, kind: str, **fields: Any) -> None:
        if self._channel is None:
            return
        if self._channel.bufferedAmount > MAX_BUFFERED_BYTES:
            logger.warning("the page does not read what it is told")
            self.end()
            return
        with contextlib.suppress(InvalidStateError, ConnectionError):  # it is being closed
            self._channel.send(json.dumps({"type": kind, **fields}))

    # ---- speaking ------------------------------------------------------------------------------------------------

    def _begin_turn(self, asked: str) -> None:
        self._is_carried, self._num_words_told = False, 0
        self._track.begin()
        super()._begin_turn(asked)
        if asked:
            self._tell("asked", text=asked)

    def _hear(self, samples: np.ndarray[Any, np.dtype[np.int16]]) -> None:
        was_speaking = self._detector.speaking
        super()._hear(samples)
        if self._detector.speaking != was_speaking:
            self._tell("hearing", speaking=self._detector.speaking)

    async def _carry(self, turn: Turn, packet: Packet) -> None:
        self._track.put(packet)
        if len(turn.context.words) > self._num_words_told:
            self._tell_words(turn)

    async def _carry_end(self, turn: Turn) -> None:
        self._tell_words(turn)
        self._is_carried = True
        self._end_if_heard(turn)

    async def _cut(self, turn: Turn) -> None:
        """Ask the page, which has the exact playback position, to stop; it answers once it is silent."""
        silent_from = self._track.drop()
        self._cut_answered.clear()
        self._tell("cut", turn=turn.number, rtp=silent_from)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._cut_answered.wait(), CUT_ANSWER_S)

    def _reached_ms(self, turn: Turn) -> float:
        return self._track.sent_ms

    async def _silence(self, turn: Turn, held_ms: float) -> None:
        self._track.drop_from(held_ms)

    def _on_released(self, turn: Turn, from_ms: float) -> None:
        super()._on_released(turn, from_ms)
        self._is_carried = False

    def _end_if_heard(self, turn: Turn) -> None:
        if self._is_carried and turn.played_ms >= turn.carried_ms:
            self._heard_out(turn)

    def _on_run(self, rtp_timestamp: int, start_ms: float) -> None:
        if self.turn is not None:
            self._tell("run", turn=self.turn.number, rtp=rtp_timestamp, start_ms=start_ms)

    def _tell_words(self, turn: Turn) -> None:
        """Send words, each with the text before it, so that joined they are the text."""
        words, text = turn.context.words, turn.context.text
        told = [
            {"text": text[begin : word.end], "start_ms": word.start_ms, "end_ms": word.end_ms}
            for begin, word in zip([0, *(word.end for word in words)], words, strict=False)
        ]
        self._tell("words", turn=turn.number, words=told[self._num_words_told :])
        self._num_words_told = len(words)

    def _on_heard(self, turn: Turn, text: str) -> None:
        super()._on_heard(turn, text)
        self._tell("heard", turn=turn.number, text=text)

    def _on_failed(self, turn: Turn, error: Exception) -> None:
        super()._on_failed(turn, error)
        code = error.code if isinstance(error, RealtimeTTSError) else "answer_failed"
        self._tell("failed", code=code, message=str(error))


def check_ice_url(url: str) -> None:
    """Check a STUN or TURN address at the start, before any offer fails. Raises ValueError: it is malformed."""
    try:
        parse_stun_turn_uri(url)
    except ValueError as error:
        raise ValueError(f"an ICE server must be like stun:host:port or turn:host:port, got {url!r}") from error


@dataclass(eq=False)
class _Offer:
    """An offer and its outcome."""

    description: RTCSessionDescription
    made_at: float
    answered: asyncio.Future[RTCSessionDescription]
    call: Call | None = None

    @property
    def is_waiting(self) -> bool:
        return self.call is None or not self.call.has_begun


class Bot(CallBot):
    """Bot that serves the page and answers the calls made from it.

    Args:
        ice_servers: STUN and TURN servers, for browsers that cannot reach this machine directly.
        allowed_origins: origins of the page, if it is not opened under a name of this machine.
        options: as `CallBot`'s.

    Raises:
        ValueError: an allowed origin is not like https://bot.example.org, or an ICE server not like stun:host:port.
    """

    def __init__(
        self,
        tts_url: str,
        *,
        ice_servers: Sequence[RTCIceServer] = (),
        allowed_origins: Iterable[str] = (),
        **options: Any,
    ) -> None:
        super().__init__(tts_url, **options)
        for server in ice_servers:
            for url in [server.urls] if isinstance(server.urls, str) else server.urls:
                check_ice_url(url)
        self.calls: set[Call] = set()
        self._origins = PageOrigins(allowed_origins)
        self._ice_servers = list(ice_servers)
        self._tasks: dict[asyncio.Task[None], _Offer] = {}  # the oldest first
        self._ending: set[asyncio.Task[None]] = set()  # tasks of abandoned offers

    def application(self) -> web.Application:
        made = web.Application(client_max_size=MAX_OFFER_BYTES, middlewares=[self._check_origin])
        made.router.add_post("/offer", self._on_offer)
        made.router.add_get("/ice", self._on_ice)
        made.router.add_get("/{name:(index.html|call.js|page.js|page.css|)}", _on_file)
        made.on_shutdown.append(self._end_calls)
        return made

    @web.middleware
    async def _check_origin(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if (why := self._origins.refusal(request.headers)) is not None:
            return _refusal(403, "forbidden", why)
        return await handler(request)

    async def _on_ice(self, request: web.Request) -> web.Response:
        servers = []
        for server in self._ice_servers:
            fields = {"urls": server.urls, "username": server.username, "credential": server.credential}
            servers.append({name: value for name, value in fields.items() if value is not None})
        return web.json_response(servers)

    async def _on_offer(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":  # which another site's page cannot send without a CORS preflight
            return _refusal(415, "invalid_request", "an offer is JSON")
        try:
            fields = await request.json()
            description = RTCSessionDescription(sdp=str(fields["sdp"]), type=str(fields["type"]))
            check_size(description.sdp)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            return _refusal(400, "invalid_request", f"an offer has sdp and type: {error!r}")
        if not self._make_room():
            return _refusal(503, "busy", "all calls are taken; try again in a moment")
        loop = asyncio.get_running_loop()
        offer = _Offer(description, loop.time(), loop.create_future())
        task = loop.create_task(self._call(offer), name="call")
        self._tasks[task] = offer
        task.add_done_callback(lambda _: self._tasks.pop(task, None))
        try:
            await asyncio.wait([offer.answered])
            answer = offer.answered.result()
        except asyncio.CancelledError:
            if not offer.answered.cancelled():
                raise
            return _refusal(503, "busy", "another caller took the place of this offer; try again in a moment")
        except ValueError as error:
            return _refusal(400, "invalid_request", str(error))
        except RealtimeTTSError as error:
            return _refusal(503, error.code, error.message)
        return web.json_response({"sdp": answer.sdp, "type": answer.type})

    def _make_room(self) -> bool:
        """Return whether one more call may begin. If all slots are taken, abandon the oldest offer that has not
        connected: holding a slot requires a connection, not only a request."""
        if len(self._tasks) < self._max_calls:
            return True
        now = asyncio.get_running_loop().time()
        for task, offer in self._tasks.items():
            if offer.is_waiting and now >= offer.made_at + GRACE_S and len(self._ending) < self._max_calls:
                del self._tasks[task]
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)
                task.cancel()
                return True
        return False

    async def _call(self, offer: _Offer) -> None:
        answered = offer.answered
        try:
            async with self._session(OPUS) as session:
                offer.call = call = Call(session, self._answer, self._ice_servers)
                self.calls.add(call)
                try:
                    answered.set_result(await call.answer(offer.description))
                    await call.run()
                finally:
                    self.calls.discard(call)
                    await call.hang_up()
        except Exception as error:
            if answered.done():
                logger.warning("a call ended: %r", error)
            else:
                answered.set_exception(error)
        finally:
            answered.cancel()  # no effect if it was set

    async def _end_calls(self, application: web.Application) -> None:
        for call in self.calls:
            call.end()
        tasks = [*self._tasks, *self._ending]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=END_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


async def _on_file(request: web.Request) -> web.FileResponse:
    headers = {"Content-Security-Policy": CONTENT_POLICY, "Cache-Control": "no-cache"}
    return web.FileResponse(PAGE / (request.match_info["name"] or "index.html"), headers=headers)


def _refusal(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"code": code, "message": message}, status=status)


def _make(ice_server: list[str], ice_username: str | None, allowed_origin: list[str], **options: Any) -> Bot:
    credential = os.environ.get("ICE_CREDENTIAL")
    ice_servers = [RTCIceServer(url, ice_username, credential) for url in ice_server]
    return Bot(ice_servers=ice_servers, allowed_origins=allowed_origin, **options)


if __name__ == "__main__":
    options = parser(__doc__, 8070)
    options.add_argument("--ice-server", action="append", default=[], help="stun:… or turn:…; may be repeated")
    options.add_argument("--ice-username", help="for TURN servers")
    options.add_argument(
        "--allowed-origin",
        action="append",
        default=[],
        metavar="https://bot.example.org",
        help="address of the page, if that is not a name of this machine; may be repeated",
    )
    serve(options, _make)
