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
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

sys.path.insert(0, str(Path(__file__).parent))  # however this file was started

import websockets
from realtime_tts_client import AudioFormat, Context, RealtimeTTSError, Session, connect
from realtime_tts_client.decoding import Decoder, to_int16
from script import ANSWERS, TOKENS_PER_SECOND, tokens
from speech_detector import SpeechDetector
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

logger = logging.getLogger("phone_bot")

RATE_HZ = 8_000
PHONE_AUDIO = AudioFormat("mulaw", sample_rate=RATE_HZ, frame_ms=20)
MARK_EVERY_MS = 200.0
MAX_MESSAGE_BYTES = 1 << 20

History = list[dict[str, str]]
Answer = Callable[[History], AsyncIterator[str]]


async def scripted_answer(history: History) -> AsyncIterator[str]:
    """The answers of the script in turn, as fast as a language model writes."""
    num_given = sum(line["role"] == "assistant" for line in history)
    for token in tokens(ANSWERS[num_given % len(ANSWERS)]):
        yield token
        await asyncio.sleep(1 / TOKENS_PER_SECOND)


@dataclass
class Turn:
    """What the bot says at one time.

    Attributes:
        played_ms: what the carrier's marks have confirmed.
        is_over: it was heard to its end, or interrupted.
    """

    number: int
    context: Context
    played_ms: float = 0.0
    is_over: bool = False


class Call:
    """One call, one WebSocket of the carrier's.

    Attributes:
        history: who said what; of a turn that was interrupted what was heard.
    """

    def __init__(self, socket: ServerConnection, session: Session, answer: Answer) -> None:
        self.history: History = []
        self.turn: Turn | None = None
        self._socket = socket
        self._session = session
        self._answer = answer
        self._stream_sid = ""
        self._num_turns = 0
        self._decoder = Decoder(PHONE_AUDIO)
        self._detector = SpeechDetector(RATE_HZ)
        self._speaking: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None

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
                await self._take(fields)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a message of a media stream: {error!r}") from error
        finally:
            await self._quiet()

    async def _take(self, fields: dict[str, Any]) -> None:
        event = fields["event"]
        if event == "start":
            self._stream_sid = fields["start"]["streamSid"]
            self._begin_turn(asked="")
        elif event == "media" and fields["media"].get("track", "inbound") == "inbound":
            await self._hear(base64.b64decode(fields["media"]["payload"], validate=True))
        elif event == "mark":
            self._on_mark(str(fields["mark"]["name"]))

    async def _hear(self, payload: bytes) -> None:
        for change in self._detector.feed(to_int16(self._decoder.decode(payload))):
            if change == "started":
                await self._interrupt()
            else:
                self._begin_turn(asked="(somebody spoke)")

    # ---- speaking ------------------------------------------------------------------------------------------------

    def _begin_turn(self, asked: str) -> None:
        self._num_turns += 1
        context = self._session.speak(self._words(asked), playback="manual")
        self.turn = Turn(self._num_turns, context)
        self._speaking = asyncio.get_running_loop().create_task(self._speak(self.turn), name="speaking")

    async def _words(self, asked: str) -> AsyncIterator[str]:
        """The answer, once the history knows what was heard of the last one."""
        if self._settling is not None:
            await self._settling
        if asked:
            self.history.append({"role": "user", "content": asked})
        async for delta in self._answer(list(self.history)):
            yield delta

    async def _speak(self, turn: Turn) -> None:
        """Forwards the packets, with a mark wherever a word ends and every now and then."""
        sent_ms = marked_ms = 0.0
        ends_ms: list[float] = []
        try:
            async for packet in turn.context:
                await self._send("media", media={"payload": base64.b64encode(packet.payload).decode()})
                sent_ms = packet.start_ms + packet.duration_ms
                ends_ms += [word.end_ms for word in packet.words]
                if sent_ms - marked_ms >= MARK_EVERY_MS or any(marked_ms < end <= sent_ms for end in ends_ms):
                    await self._send("mark", mark={"name": f"{turn.number}/{sent_ms:.0f}"})
                    marked_ms = sent_ms
                    ends_ms = [end for end in ends_ms if end > sent_ms]
            await self._send("mark", mark={"name": f"{turn.number}/{sent_ms:.0f}/end"})
        except websockets.ConnectionClosed:
            turn.context.cancel_nowait()
        except Exception as error:  # the server's, or the answer's own
            logger.warning("the turn ended early", exc_info=error)
            await self._send("mark", mark={"name": f"{turn.number}/{sent_ms:.0f}/end"})

    def _on_mark(self, name: str) -> None:
        """The carrier has played up to there, or has thrown it away for a turn that is over."""
        number, played_ms, *end = name.split("/")
        turn = self.turn
        if turn is None or turn.is_over or int(number) != turn.number:
            return
        turn.played_ms = float(played_ms)
        self._session.played(turn.context, turn.played_ms)
        if end:
            self._end_turn(turn, turn.context.text if turn.context.done is not None else _spoken_of(turn.context))

    async def _interrupt(self) -> None:
        """The caller speaks: silence, and then the account of what was heard."""
        turn = self.turn
        if turn is None or turn.is_over:
            return
        turn.is_over = True  # marks that come back now are of audio that was thrown away
        if self._speaking is not None:
            self._speaking.cancel()
        turn.context.cancel_nowait()
        self._settling = asyncio.get_running_loop().create_task(self._settle(turn), name="settling")
        await self._send("clear")

    async def _settle(self, turn: Turn) -> None:
        spoken = await turn.context.cancel()
        self._end_turn(turn, spoken.text)

    def _end_turn(self, turn: Turn, heard: str) -> None:
        turn.is_over = True
        if heard.strip():
            self.history.append({"role": "assistant", "content": heard})
        logger.info("heard: %r", heard)

    async def _quiet(self) -> None:
        """Nobody listens any more."""
        for task in (self._speaking, self._settling):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self.turn is not None and not self.turn.is_over:
            self.turn.context.cancel_nowait()

    async def _send(self, event: str, **fields: Any) -> None:
        await self._socket.send(json.dumps({"event": event, "streamSid": self._stream_sid, **fields}))


def _spoken_of(context: Context) -> str:
    return context.spoken.text if context.spoken is not None else ""


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
            self._on_socket, host, port, process_request=self._on_request, max_size=MAX_MESSAGE_BYTES, compression=None
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
    async with bot.listening(options.host, options.port) as server:
        logger.info("waiting for calls at ws://%s:%d%s", options.host, options.port, options.path)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
