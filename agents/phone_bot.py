"""A bot on the phone, over the media-stream WebSocket that carriers offer (the messages of Twilio Media Streams).

    python agents/phone_bot.py --path /a-path-that-nobody-guesses

The carrier connects to wss://your-host/a-path-that-nobody-guesses; a proxy in front of this program has the
certificate. With --public-url, GET /twiml answers a call with the instruction to do so. The bot speaks, and stops when
the caller speaks: what the carrier has buffered is cleared, and the carrier's marks tell what was heard until then.
Its answers are scripted; give `Bot` another `answer` to let a language model speak.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

sys.path.insert(0, str(Path(__file__).parent))  # however this file was started

import websockets
from conversation import Answer, Conversation, Turn, scripted_answer
from realtime_tts_client import AudioFormat, Packet, RealtimeTTSError, Session, connect
from realtime_tts_client.decoding import Decoder, to_int16
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

logger = logging.getLogger("phone_bot")

RATE_HZ = 8_000
PHONE_AUDIO = AudioFormat("mulaw", sample_rate=RATE_HZ, frame_ms=20)
MARK_EVERY_MS = 200.0
MAX_MESSAGE_BYTES = 1 << 20


class Call(Conversation):
    """One call, one WebSocket of the carrier's. The carrier's marks tell what was played."""

    def __init__(self, socket: ServerConnection, session: Session, answer: Answer) -> None:
        super().__init__(session, answer, RATE_HZ)
        self._socket = socket
        self._stream_sid = ""
        self._decoder = Decoder(PHONE_AUDIO)
        self._marked_ms = 0.0  # of the turn
        self._ends_ms: list[float] = []  # of words that have no mark yet

    async def run(self) -> None:
        """Until the carrier or the caller ends it.

        Raises:
            ValueError: a message is malformed.
        """
        try:
            async for message in self._socket:
                fields = json.loads(message)
                if fields["event"] == "stop":
                    break
                self._take(fields)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a message of a media stream: {error!r}") from error
        finally:
            await self._quiet()

    def _take(self, fields: dict[str, Any]) -> None:
        event = fields["event"]
        if event == "start":
            self._stream_sid = fields["start"]["streamSid"]
            self._begin_turn(asked="")
        elif event == "media" and fields["media"].get("track", "inbound") == "inbound":
            payload = base64.b64decode(fields["media"]["payload"], validate=True)
            self._hear(to_int16(self._decoder.decode(payload)))
        elif event == "mark":
            self._on_mark(str(fields["mark"]["name"]))

    async def _carry(self, turn: Turn, packet: Packet) -> None:
        """Forwards a packet, with a mark wherever a word ends and every now and then."""
        if packet.pts_samples == 0:
            self._marked_ms, self._ends_ms = 0.0, []
        await self._send("media", media={"payload": base64.b64encode(packet.payload).decode()})
        self._ends_ms += [word.end_ms for word in packet.words]
        marked_ms, sent_ms = self._marked_ms, turn.carried_ms
        if sent_ms - marked_ms >= MARK_EVERY_MS or any(marked_ms < end <= sent_ms for end in self._ends_ms):
            await self._send("mark", mark={"name": f"{turn.number}/{sent_ms:.0f}"})
            self._marked_ms = sent_ms
            self._ends_ms = [end for end in self._ends_ms if end > sent_ms]

    async def _carry_end(self, turn: Turn) -> None:
        await self._send("mark", mark={"name": f"{turn.number}/{turn.carried_ms:.0f}/end"})

    async def _cut(self, turn: Turn) -> None:
        await self._send("clear")

    def _on_mark(self, name: str) -> None:
        """The carrier has played up to there, or has thrown it away for a turn that is over."""
        number, played_ms, *end = name.split("/")
        turn = self.turn
        if turn is None or turn.is_over or int(number) != turn.number:
            return
        self._played(turn, float(played_ms))
        if end:
            self._heard_out(turn)

    async def _send(self, event: str, **fields: Any) -> None:
        try:
            await self._socket.send(json.dumps({"event": event, "streamSid": self._stream_sid, **fields}))
        except websockets.ConnectionClosed as error:
            raise ConnectionResetError("the carrier has hung up") from error


class Bot:
    """Answers every call that a carrier connects to `path`.

    Args:
        tts_url: of the realtime-tts server.
        answer: what to say next, given what was said so far; read as it is spoken.
        public_url: under which the carrier reaches us, for GET /twiml.
    """

    def __init__(
        self,
        tts_url: str,
        *,
        path: str = "/media",
        answer: Answer = scripted_answer,
        api_key: str | None = None,
        voice: str | None = None,
        public_url: str | None = None,
    ) -> None:
        self.calls: set[Call] = set()
        self._tts_url, self._api_key, self._voice = tts_url, api_key, voice
        self._path = path
        self._answer = answer
        self._public_url = public_url

    def listening(self, host: str, port: int) -> Any:
        """An asynchronous context manager: the server while it listens."""
        return serve(
            self._on_socket,
            host,
            port,
            origins=[None],  # carriers name none; a page that somebody looks at on this machine does
            process_request=self._on_request,
            max_size=MAX_MESSAGE_BYTES,
            compression=None,
        )

    def _on_request(self, socket: ServerConnection, request: Request) -> Response | None:
        if request.path == self._path:
            return None
        if request.path == "/twiml" and self._public_url is not None:
            stream = quoteattr(self._public_url.rstrip("/") + self._path)
            response = socket.respond(200, f"<Response><Connect><Stream url={stream}/></Connect></Response>\n")
            del response.headers["Content-Type"]
            response.headers["Content-Type"] = "application/xml"
            return response
        return socket.respond(404, "no such path\n")

    async def _on_socket(self, socket: ServerConnection) -> None:
        session = connect(self._tts_url, api_key=self._api_key, voice=self._voice, audio=PHONE_AUDIO)
        try:
            async with session:
                call = Call(socket, session, self._answer)
                self.calls.add(call)
                try:
                    await call.run()
                finally:
                    self.calls.discard(call)
        except websockets.ConnectionClosed as error:
            logger.info("the line broke: %s", error)
        except ValueError as error:
            await socket.close(1003, str(error)[:100])
        except RealtimeTTSError as error:
            logger.error("no speech: %s: %s", error.code, error.message)
            await socket.close(1013, error.code)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--tts-url", default=os.environ.get("REALTIME_TTS_URL", "ws://localhost:8000"))
    made.add_argument("--voice", help="name of a voice")
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=int, default=8090)
    made.add_argument("--path", default="/media", help="where the carrier connects; whoever knows it can talk")
    made.add_argument("--public-url", help="wss://…, under which the carrier reaches this program")
    return made


async def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    options = parser().parse_args()
    bot = Bot(
        options.tts_url,
        path=options.path,
        api_key=os.environ.get("REALTIME_TTS_API_KEY"),
        voice=options.voice,
        public_url=options.public_url,
    )
    server: Server
    async with contextlib.AsyncExitStack() as stack:
        try:
            server = await stack.enter_async_context(bot.listening(options.host, options.port))
        except OSError as error:
            sys.exit(f"cannot listen on {options.host}:{options.port}: {error.strerror}; choose another --port")
        logger.info("waiting for calls at ws://%s:%d%s", options.host, options.port, options.path)
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
