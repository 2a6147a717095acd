"""A scripted stand-in for the gateway: the native protocol and the page's files on one port, sine tones for speech.

Each context sounds as one steady tone (`tone_hz`), `MS_PER_CHAR` a character, so a test can tell contexts apart and
knows how long each must be. Text without a letter has no sound at all; emoji are reported as left out. Words in square
brackets in the text are stage directions:

    [fail]       the context fails with `engine_lost` after one second of audio
    [refuse]     the opening is refused with `overloaded`
    [malformed]  three frames that break the protocol come before the speech
    [drop]       the TCP connection is cut after one second of audio, once
    [forget]     as [drop], and the session cannot be resumed
    [stall]      half a second of nothing in mid-speech (the listener runs dry)
"""

from __future__ import annotations

import asyncio
import io
import json
import mimetypes
import re
import struct
import threading
import wave
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import av
import numpy as np
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.protocol import State

PAGE = Path(__file__).parents[2] / "clients" / "browser"
MS_PER_CHAR = 40
FRAME_MS = 20
MAX_LEAD_S = 1.0
# The page needs nothing from elsewhere, nothing inline.
CONTENT_POLICY = "default-src 'self'; connect-src 'self' http: https: ws:; media-src 'self' blob:"
# A browser opens connections to have them. They must not be open for longer than other tests wait for sockets to close.
OPEN_TIMEOUT_S = 2.0
HEADER = struct.Struct(">BBHIIQ")
VOICES = [
    {"id": "high", "name": "high", "description": "US English, higher pitch", "language": "en", "default": True},
    {"id": "low", "name": "low", "description": "Scottish English, lower pitch", "language": "en", "default": False},
]
DEFAULT_VOICE = VOICES[0]["id"]
PARAMS = {
    "steps": {"min": 2, "max": 64, "default": 10},
    "cfg": {"min": 0.0, "max": 10.0, "default": 2.0},
    "speed": {"min": 0.25, "max": 4.0, "default": 1.0},
    "seed": {"min": 0, "max": 99},
    "volume": {"min": 0.0, "max": 2.0, "default": 1.0},
    "sentence_pause_ms": {"min": 0.0, "max": 3000.0, "default": 0.0},
}
EMOJI = re.compile(r"[\U0001F300-\U0001FAFF]+")


def tone_hz(number: int) -> float:
    """The pitch of a context."""
    return 300.0 + 150.0 * (number % 8)


class Tone:
    """A context's tone as packets in its session's format, frame after frame without a seam."""

    def __init__(self, number: int, audio: dict[str, Any]) -> None:
        self.hz, self.rate, self.pts = tone_hz(number), audio["sample_rate"], 0
        self.encoder = None
        if audio["codec"] == "opus":
            self.encoder = av.CodecContext.create("libopus", "w")
            self.encoder.sample_rate, self.encoder.layout, self.encoder.format = self.rate, "mono", "s16"
            self.encoder.options = {"frame_duration": str(FRAME_MS)}

    @property
    def made_ms(self) -> int:
        return self.pts * 1000 // self.rate

    def next_packet(self) -> tuple[bytes, int]:
        """`(payload, pts in samples)` of the next frame."""
        pts, size = self.pts, self.rate * FRAME_MS // 1000
        self.pts += size
        pcm = (12_000 * np.sin(2 * np.pi * self.hz * np.arange(pts, self.pts) / self.rate)).astype("<i2")
        if self.encoder is None:
            return pcm.tobytes(), pts
        frame = av.AudioFrame.from_ndarray(pcm[None, :], format="s16", layout="mono")
        frame.sample_rate = self.rate
        [packet] = self.encoder.encode(frame)
        return bytes(packet), pts


@dataclass
class FakeContext:
    """One utterance; `log` holds every frame of it by sequence, for a client that resumes."""

    context_id: str
    number: int
    settings: dict[str, Any]
    text: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    num_timed: int = 0
    log: list[str | bytes] = field(default_factory=list)
    played_ms: float = 0.0
    held_ms: float = 0.0
    audio_ms: float = 0.0
    task: asyncio.Task[None] | None = None
    terminal: bool = False

    def num_speakable(self) -> int:
        """Characters that can be spoken: whole words, and the rest once the text has ended."""
        if not re.search(r"\w", self.text):
            return 0
        return len(self.text) if self.ended.is_set() else self.text.rfind(" ") + 1

    def new_words(self) -> list[dict[str, Any]]:
        """The words that have become speakable since the last call, with their times."""
        found, limit = [], self.num_speakable()
        for match in re.finditer(r"\S+", self.text[self.num_timed : limit]):
            start, end = self.num_timed + match.start(), self.num_timed + match.end()
            times = {"start_ms": start * MS_PER_CHAR, "end_ms": end * MS_PER_CHAR}
            found.append({"text": match.group(), "start": start, "end": end, **times})
        self.num_timed = limit
        return found


@dataclass
class FakeSession:
    session_id: str
    audio: dict[str, Any]
    voice: str
    socket: ServerConnection | None = None
    contexts: dict[str, FakeContext] = field(default_factory=dict)
    num_drops: int = 0
    forgotten: bool = False


class FakeGateway:
    """Runs in a thread of its own: `with FakeGateway() as gateway: gateway.url`. `received` logs client messages.

    One gateway serves many tests, with `reset` after each: a browser keeps the page's files of one address.
    """

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.port = 0  # the same one after a restart
        self._forget()

    def _forget(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.requests: list[str] = []  # addresses asked for, as a proxy would log them
        self.sessions: dict[str, FakeSession] = {}
        self.down = False  # while True, no server is behind the proxy
        self.full = False  # while True, the server answers but takes no more connections
        self.key: str | None = None  # the key it wants
        self.params: dict[str, Any] | None = PARAMS
        self.more_voices: list[dict[str, Any]] = []  # that can only be looked at
        self.makes_voices = True  # an older server does not
        self.report: dict[str, Any] = {}  # how speech was made, in each `context.done`
        self.warns = True  # an older server says nothing of what it leaves out
        self.pages: dict[str, bytes] = {}  # further pages to serve, by path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> FakeGateway:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def reset(self) -> None:
        """Close what is open, and be as new, at the same address."""
        asyncio.run_coroutine_threadsafe(self._end_all(), self.loop).result(10)
        self._forget()

    def start(self) -> None:
        self.ready.clear()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.thread.start()
        assert self.ready.wait(10)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.stopping.set)
        self.thread.join(10)
        self.sessions.clear()

    def messages(self, kind: str) -> list[dict[str, Any]]:
        """Client messages of one type, in order."""
        return [message for message in self.received if message["type"] == kind]

    def cut(self) -> None:
        """Cut every connection, as a cable does."""
        for session in self.sessions.values():
            if session.socket is not None:
                self.loop.call_soon_threadsafe(session.socket.transport.abort)

    async def _run(self) -> None:
        self.loop, self.stopping = asyncio.get_running_loop(), asyncio.Event()
        self.taken = taken = set[ServerConnection]()

        class Taken(ServerConnection):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                taken.add(self)

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                taken.discard(self)

        async with serve(
            self._connection,
            "127.0.0.1",
            self.port,
            subprotocols=["realtime-tts.v1"],
            process_request=self._http,
            create_connection=Taken,
            open_timeout=OPEN_TIMEOUT_S,
        ) as server:
            self.port = server.sockets[0].getsockname()[1]
            self.ready.set()
            await self.stopping.wait()
            for connection in taken:
                if connection.state is State.CONNECTING:  # a browser opens some to have them; the end waits for them
                    connection.transport.abort()
            self._end_speech()

    def _end_speech(self) -> None:
        for session in self.sessions.values():
            for context in session.contexts.values():
                if context.task is not None:
                    context.task.cancel()

    async def _end_all(self) -> None:
        self._end_speech()
        while self.taken:
            for connection in self.taken:
                connection.transport.abort()
            await asyncio.sleep(0.005)

    def _http(self, _connection: ServerConnection, request: Request) -> Response | None:
        self.requests.append(request.path)
        path = request.path.split("?")[0]
        if path == "/readyz" or path.startswith("/v1/"):
            return self._api(path, request.headers)
        if path in self.pages:
            return _response(self.pages[path], mimetypes.guess_type(path)[0] or "text/html")
        file = (PAGE / (path.strip("/") or "index.html")).resolve()
        if not file.is_relative_to(PAGE) or not file.is_file():
            return Response(404, "Not Found", Headers({"Content-Length": "0"}))
        response = _response(file.read_bytes(), mimetypes.guess_type(file.name)[0] or "application/octet-stream")
        response.headers["Cache-Control"] = "max-age=3600"  # else each test loads and compiles forty files
        return response

    def _api(self, path: str, headers: Headers) -> Response | None:
        if self.down:
            return Response(503, "Service Unavailable", Headers({"Content-Length": "0"}))
        if path != "/readyz" and self.key is not None and not self._brings_key(headers):
            return _problem(401, "unauthorized", "this API key is not active")
        if path.endswith("/preview"):
            return _response(_silence(2.0), "audio/wav")
        if path == "/v1/stream":
            return _problem(429, "too_many_sessions", "no more") if self.full else None
        model = {"id": "tones", "text": {"max_chars": 20_000, "letters": ascii_lowercase}}
        if self.params:
            model["params"] = self.params
        if self.makes_voices:
            model["voice_making"] = {"instructions": True, "consent": "required"}
        bodies: dict[str, dict[str, Any]] = {
            "/readyz": {"status": "ready"},
            "/v1/models": {"data": [model]},
            "/v1/voices": {"voices": [*VOICES, *self.more_voices], "default_voice": DEFAULT_VOICE},
        }
        return _response(json.dumps(bodies[path]).encode(), "application/json")

    def _brings_key(self, headers: Headers) -> bool:
        offered = headers.get("Sec-WebSocket-Protocol", "").split(", ")
        return headers.get("Authorization") == f"Bearer {self.key}" or f"realtime-tts.key.{self.key}" in offered

    async def _connection(self, socket: ServerConnection) -> None:
        try:
            session = await self._hello(socket, self._parse(await socket.recv()))
            while session is not None:
                await self._message(session, self._parse(await socket.recv()))
        except ConnectionClosed:
            pass

    def _parse(self, frame: str | bytes) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(frame)
        self.received.append(message)
        return message

    async def _hello(self, socket: ServerConnection, message: dict[str, Any]) -> FakeSession | None:
        if message["type"] == "session.resume":
            return await self._resume(socket, message)
        audio = message.get("audio", {"codec": "opus", "sample_rate": 48_000, "frame_ms": 20})
        session = FakeSession(f"s{len(self.sessions)}", audio, message.get("voice") or DEFAULT_VOICE, socket)
        self.sessions[session.session_id] = session
        started = {"session_id": session.session_id, "model": "tones", "voice": session.voice, "audio": audio}
        limits = {"max_contexts": 16, "max_text_chars": 20_000, "resume_window_s": 10}
        await _send(socket, type="session.started", **started, params={}, limits=limits)
        return session

    async def _resume(self, socket: ServerConnection, message: dict[str, Any]) -> FakeSession | None:
        session = self.sessions.get(message["session_id"])
        if session is None or session.forgotten:
            await _send(socket, type="error", code="session_not_found", message="No such session", retryable=False)
            await socket.close(1008, "session_not_found")
            return None
        known = []
        for context_id in message["contexts"]:
            context = session.contexts.get(context_id)
            if context is None:
                nothing = {"number": 0, "received_chars": 0, "ended": False, "num_flushes": 0}
                known.append({"context_id": context_id, "state": "unknown", **nothing})
                continue
            state = "finished" if context.terminal else "open"
            facts = {"number": context.number, "received_chars": len(context.text), "ended": context.ended.is_set()}
            known.append({"context_id": context_id, "state": state, "num_flushes": 0, **facts})
        await _send(socket, type="session.resumed", session_id=session.session_id, contexts=known)
        await self._replay(session, socket, dict(message["contexts"]))
        return session

    async def _replay(self, session: FakeSession, socket: ServerConnection, last: dict[str, int]) -> None:
        """Send what each context lacks, and three frames again; live frames follow when nothing older is left."""
        last = {context_id: max(-1, sequence - 3) for context_id, sequence in last.items()}
        contexts = [session.contexts[context_id] for context_id in last if context_id in session.contexts]
        while late := [context for context in contexts if last[context.context_id] + 1 < len(context.log)]:
            for context in late:
                last[context.context_id] += 1
                await socket.send(context.log[last[context.context_id]])
        session.socket = socket

    async def _message(self, session: FakeSession, message: dict[str, Any]) -> None:
        kind, context_id = message["type"], message.get("context_id")
        context = session.contexts.get(context_id or "")
        if kind == "text":
            if "[refuse]" in message["text"]:
                error = {"code": "overloaded", "message": "All voices are busy", "retryable": True}
                await _send(session.socket, type="error", context_id=context_id, **error)
                return
            if context is None and message.get("voice", DEFAULT_VOICE) not in {voice["id"] for voice in VOICES}:
                error = {"code": "voice_not_found", "message": "The voices are high, low", "field": "voice"}
                await _send(session.socket, type="error", context_id=context_id, **error)
                return
            if context is None:
                context = await self._open(session, message)
            context.text += message["text"]
        elif kind == "end" and context is None:
            error = {"code": "invalid_request", "message": "There is no such context", "retryable": False}
            await _send(session.socket, type="error", context_id=context_id, **error)
        elif kind == "end" and context is not None:
            context.ended.set()
        elif kind == "commit" and context is not None:
            context.text = message.get("text", context.text)
            context.task = asyncio.create_task(self._speak(session, context))
        elif kind == "playback" and context is not None:
            context.played_ms = message["played_ms"]
        elif kind == "cancel" and context is not None:
            await self._cancel(session, context)
        elif kind in ("hold", "release") and context is not None:
            await self._hold(session, context, message)
        elif kind == "ping":
            await _send(session.socket, type="pong", id=message.get("id"))

    async def _hold(self, session: FakeSession, context: FakeContext, message: dict[str, Any]) -> None:
        """Answer a hold or release; speech that was sent stays as it is, since the page keeps it."""
        if message["type"] == "hold":
            context.held_ms = message["played_ms"]
            spoken = {"played_ms": context.held_ms, "spoken_text": "", "spoken_chars": 0, "timeout_s": 30}
            await _send(session.socket, type="context.held", context_id=context.context_id, **spoken)
        else:
            await _send(session.socket, type="context.released", context_id=context.context_id, from_ms=context.held_ms)

    async def _open(self, session: FakeSession, message: dict[str, Any]) -> FakeContext:
        number = len(session.contexts) + 1
        context = FakeContext(message["context_id"], number, message)
        session.contexts[context.context_id] = context
        voice = message.get("voice") or session.voice
        await self._log(
            session, context, type="context.started", number=number, voice=voice, seed=1, audio=session.audio
        )
        if not message.get("draft"):  # which nothing is heard of before its commit
            context.task = asyncio.create_task(self._speak(session, context))
        return context

    async def _cancel(self, session: FakeSession, context: FakeContext) -> None:
        spoken_chars = min(len(context.text), round(context.played_ms / MS_PER_CHAR))
        spoken = {
            "played_ms": context.played_ms,
            "spoken_text": context.text[:spoken_chars],
            "spoken_chars": spoken_chars,
        }
        if context.terminal:
            await _send(
                session.socket, type="cancel.acknowledged", context_id=context.context_id, state="done", **spoken
            )
            return
        if context.task is not None:
            context.task.cancel()
        context.terminal = True
        await self._log(session, context, type="context.cancelled", **spoken)

    async def _speak(self, session: FakeSession, context: FakeContext) -> None:
        tone = Tone(context.number, session.audio)
        begin = self.loop.time()
        while True:
            while tone.made_ms >= context.num_speakable() * MS_PER_CHAR:
                if context.ended.is_set():
                    await self._warn(session, context)
                    await self._done(session, context)
                    return
                await asyncio.sleep(0.005)
            if tone.made_ms == 0 and "[malformed]" in context.text:
                await self._send_malformed(session, context)
            if words := context.new_words():
                await self._log(session, context, type="words", timing="estimated", words=words)
            context.audio_ms = tone.made_ms
            if await self._direction(session, context):
                return
            await asyncio.sleep(max(0.0, begin + context.audio_ms / 1000 - MAX_LEAD_S - self.loop.time()))
            payload, pts = tone.next_packet()
            await self._log_frame(session, context, self._frame(context, pts, payload))

    async def _done(self, session: FakeSession, context: FakeContext) -> None:
        context.terminal = True
        facts = {"audio_ms": context.num_speakable() * MS_PER_CHAR, "characters": len(context.text), "ttfa_ms": 12.5}
        await self._log(session, context, type="context.done", **facts, **self.report)

    async def _warn(self, session: FakeSession, context: FakeContext) -> None:
        for match in EMOJI.finditer(context.text) if self.warns else ():
            facts = {"code": "unspeakable_text", "message": "The voice has no sound for it", "spans": [match.span()]}
            await _send(session.socket, type="warning", context_id=context.context_id, **facts)

    async def _send_malformed(self, session: FakeSession, context: FakeContext) -> None:
        assert session.socket is not None
        await session.socket.send("{not json")
        await session.socket.send(b"\x01\x01\x00")
        await _send(session.socket, type="words", context_id=context.context_id, sequence=1, words="none")

    async def _direction(self, session: FakeSession, context: FakeContext) -> bool:
        """Act on a stage direction that is due; True if the speech is over."""
        if context.audio_ms != 1000:
            return False
        if "[fail]" in context.text:
            context.terminal = True
            error = {"code": "engine_lost", "message": "The speech engine stopped", "retryable": True}
            await self._log(session, context, type="context.failed", audio_ms=1000, **error)
            return True
        if "[stall]" in context.text:
            await asyncio.sleep(MAX_LEAD_S + 0.5)
        if ("[drop]" in context.text or "[forget]" in context.text) and session.num_drops == 0:
            session.num_drops += 1
            session.forgotten = "[forget]" in context.text
            assert session.socket is not None
            session.socket.transport.abort()
        return session.forgotten

    def _frame(self, context: FakeContext, pts: int, payload: bytes) -> bytes:
        return HEADER.pack(1, 1, 0, context.number, len(context.log), pts) + payload

    async def _log(self, session: FakeSession, context: FakeContext, /, **message: Any) -> None:
        numbered = {**message, "context_id": context.context_id, "sequence": len(context.log)}
        await self._log_frame(session, context, json.dumps(numbered))

    async def _log_frame(self, session: FakeSession, context: FakeContext, frame: str | bytes) -> None:
        context.log.append(frame)
        try:
            if session.socket is not None:
                await session.socket.send(frame)
        except ConnectionClosed:
            session.socket = None


async def _send(socket: ServerConnection | None, **message: Any) -> None:
    if socket is not None:
        await socket.send(json.dumps(message))


def _silence(duration_s: float) -> bytes:
    with io.BytesIO() as file:
        with wave.open(file, "wb") as recording:
            recording.setparams((1, 2, 8_000, 0, "NONE", ""))
            recording.writeframes(bytes(round(duration_s * 8_000) * 2))
        return file.getvalue()


def _problem(status: int, code: str, message: str) -> Response:
    body = json.dumps({"code": code, "message": message, "retryable": status == 429}).encode()
    response = _response(body, "application/json")
    return Response(status, code, response.headers, body)


def _response(body: bytes, content_type: str) -> Response:
    if content_type.startswith("text/"):
        content_type += "; charset=utf-8"
    headers = {
        "Content-Type": content_type,
        "Content-Length": str(len(body)),
        "Content-Security-Policy": CONTENT_POLICY,
    }
    return Response(200, "OK", Headers(headers), body)
