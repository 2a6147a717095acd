"""HTTP server: the WebSocket `/v1/realtime`, WebRTC calls by `/v1/realtime/calls`, and a page that makes one."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web
from bots import END_S
from page_origins import CONTENT_POLICY, PageOrigins, origins_of
from peer import MAX_OFFER_BYTES, check_size
from realtime_tts_client import RealtimeTTSError, Session, connect

from realtime_server.client_secrets import PREFIX, ClientSecrets
from realtime_server.connection import Connection, Parts, new_id
from realtime_server.events import Fields, Refusal, check_secret, parse
from realtime_server.settings import default_settings, updated
from realtime_server.webrtc import CallConnection

logger = logging.getLogger("realtime_server")

PAGE = Path(__file__).parent / "page"
# The page shares the style of the bot's page, and modules of the browser client.
FILES = {name: PAGE / name for name in ("index.html", "page.js")} | {"page.css": PAGE.parents[1] / "webrtc/page.css"}
FILES |= {name: PAGE.parents[2] / "clients/browser" / name for name in ("errors.js", "kind-words.js", "voice-call.js")}
MAX_MESSAGE_BYTES = 1 << 20  # 16 s of audio/pcm; OpenAI's clients send 20 to 100 ms at a time
HEARTBEAT_S = 20.0
KEY_PROTOCOL = "openai-insecure-api-key."  # browsers can set no header, so their key is a subprotocol


class SocketConnection(Connection):
    """Session over a WebSocket, which carries the audio too."""

    def __init__(self, parts: Parts, speech: Session, model: str, socket: web.WebSocketResponse) -> None:
        super().__init__(parts, speech, model)
        self._socket = socket

    async def _send(self, text: str) -> None:
        await self._socket.send_str(text)

    async def run(self, session: Fields) -> None:
        """Run the session, with settings if there are any, until the client ends it."""
        try:
            if session:
                await self.receive(json.dumps({"type": "session.update", "session": session}))
            await self.flush()
            async for message in self._socket:
                if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                    await self.receive(message.data)
        finally:
            await self.close()


class Server:
    """Server of the Realtime API.

    Args:
        tts_url: address of the realtime-tts server; `tts_key`: its key.
        key: clients must send it; without one, clients of this machine are served, and pages of `allowed_origins` and
            of the realtime-tts server (its playground).
        max_calls: limit of concurrent sessions.

    Raises:
        ValueError: an allowed origin, or the address or the key of the realtime-tts server, is malformed.
    """

    def __init__(
        self,
        tts_url: str,
        parts: Parts,
        *,
        tts_key: str | None = None,
        key: str | None = None,
        allowed_origins: Iterable[str] = (),
        max_calls: int = 20,
    ) -> None:
        connect(tts_url, api_key=tts_key)  # checks both, before any session fails
        self.connections: set[Connection] = set()
        self._tts_url, self._tts_key, self._parts, self._key = tts_url, tts_key, parts, key
        self._origins = PageOrigins([*allowed_origins, *origins_of(tts_url)])
        self._max_calls = max_calls
        self._num_calls = 0
        self._secrets = ClientSecrets()
        self._sockets: set[web.WebSocketResponse] = set()
        self._calls: set[asyncio.Task[None]] = set()

    def application(self) -> web.Application:
        made = web.Application(client_max_size=MAX_OFFER_BYTES)
        names = "|".join(map(re.escape, FILES))
        made.router.add_get("/v1/realtime", self._on_socket)
        made.router.add_get(f"/{{name:({names}|)}}", self._on_file)
        made.router.add_post("/v1/realtime/calls", self._on_offer)
        made.router.add_options("/v1/realtime/calls", self._on_preflight)
        made.router.add_post("/v1/realtime/client_secrets", self._on_secret)
        made.on_shutdown.append(self._end)
        return made

    async def _end(self, application: web.Application) -> None:
        await asyncio.gather(*(socket.close(code=WSCloseCode.GOING_AWAY) for socket in self._sockets))
        for connection in self.connections:
            if isinstance(connection, CallConnection):
                connection.end()
        if self._calls:
            _, late = await asyncio.wait([*self._calls], timeout=END_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _on_socket(self, request: web.Request) -> web.StreamResponse:
        try:
            session = self._check(request)
            async with self._call() as speech:
                socket = web.WebSocketResponse(
                    heartbeat=HEARTBEAT_S, max_msg_size=MAX_MESSAGE_BYTES, protocols=("realtime",), compress=False
                )
                await socket.prepare(request)
                self._sockets.add(socket)
                connection = SocketConnection(self._parts, speech, request.query.get("model", ""), socket)
                self.connections.add(connection)
                try:
                    await connection.run(session)
                except ConnectionResetError as error:
                    logger.info("the client has gone: %s", error)
                finally:
                    self.connections.discard(connection)
                    self._sockets.discard(socket)
                return socket
        except Refusal as refusal:
            return refused(refusal)

    async def _on_file(self, request: web.Request) -> web.StreamResponse:
        if (reason := self._origins.refusal(request.headers)) is not None:
            return refused(Refusal("forbidden", reason, kind="authentication_error"))
        name = request.match_info["name"] or "index.html"
        headers = {"Content-Security-Policy": CONTENT_POLICY, "Cache-Control": "no-cache"}
        return web.FileResponse(FILES[name], headers=headers)

    async def _on_secret(self, request: web.Request) -> web.Response:
        """Issue a client secret to a program that has the key."""
        try:
            self._check_key(request, _offered_key(request))
            fields = parse(await request.read() or "{}")
            expiry, session = check_secret(fields), fields.get("session") or {}
            defaults = default_settings(new_id("sess"), "", self._parts.instructions, self._parts.voice)
            effective = updated(defaults, session)
        except Refusal as refusal:
            return refused(refusal)
        value = self._secrets.issue(session, time.monotonic() + expiry.seconds, time.monotonic())
        made = {"value": value, "expires_at": int(time.time()) + expiry.seconds, "session": effective}
        return web.json_response(made, headers={"Cache-Control": "no-store"})

    async def _on_preflight(self, request: web.Request) -> web.Response:
        """Let pages of allowed origins send a secret with their offer."""
        headers = self._cors(request)
        if headers:
            headers["Access-Control-Allow-Headers"] = request.headers.get("Access-Control-Request-Headers", "")
        return web.Response(status=204, headers=headers)

    def _cors(self, request: web.Request) -> dict[str, str]:
        """Return the headers that let a page of an allowed origin read the response."""
        if "Origin" in request.headers and self._origins.refusal(request.headers) is None:
            return {"Access-Control-Allow-Origin": request.headers["Origin"], "Vary": "Origin"}
        return {}

    async def _on_offer(self, request: web.Request) -> web.Response:
        headers = self._cors(request)
        try:
            granted = self._check(request)
            sdp, session = await _offer(request)
            answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            model = request.query.get("model") or str((session or granted).get("model", ""))
            sessions = [each for each in (granted, session) if each]
            task = asyncio.get_running_loop().create_task(self._run_call(sdp, sessions, model, answered))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
            answer = await answered
        except Refusal as refusal:
            return refused(refusal, headers)
        headers["Location"] = f"/v1/realtime/calls/{new_id('rtc')}"
        return web.Response(status=201, text=answer, content_type="application/sdp", headers=headers)

    async def _run_call(self, sdp: str, sessions: list[Fields], model: str, answered: asyncio.Future[str]) -> None:
        try:
            async with self._call() as speech:
                call = CallConnection(self._parts, speech, model)
                self.connections.add(call)
                try:
                    answered.set_result(await call.answer(sdp, *sessions))
                    await call.run()
                finally:
                    self.connections.discard(call)
                    await call.hang_up()
        except Refusal as refusal:
            answered.set_exception(refusal)
        except ValueError as error:
            answered.set_exception(Refusal("invalid_offer", str(error), "sdp"))
        except TimeoutError:
            logger.info("a call was not connected in time")
        finally:
            answered.cancel()  # no effect if it was set

    @contextlib.asynccontextmanager
    async def _call(self) -> AsyncIterator[Session]:
        """Count a session and connect it to the speech. Raises Refusal: there are too many, or there is no speech."""
        if self._num_calls >= self._max_calls:
            raise Refusal("too_many_sessions", f"all {self._max_calls} sessions are taken", kind="server_error")
        self._num_calls += 1
        try:
            session = connect(self._tts_url, api_key=self._tts_key, voice=self._parts.voice, playback="consumed")
            try:
                await session.__aenter__()
            except RealtimeTTSError as error:
                raise Refusal(error.code, f"no speech: {error.message}", kind="server_error") from error
            try:
                yield session
            finally:
                await session.close()
        finally:
            self._num_calls -= 1

    def _check(self, request: web.Request) -> Fields:
        """Check the key and the origin. Return the settings of a client secret.

        Raises Refusal: as `_check_key`, or the client secret is unknown or has expired.
        """
        offered = _offered_key(request)
        session = self._secrets.session_of(offered, time.monotonic())
        if session is None:
            self._check_key(request, offered)
            if self._key is None and offered.startswith(PREFIX):  # its session would lack the secret's settings
                message = "the client secret is unknown or has expired"
                raise Refusal("invalid_api_key", message, kind="authentication_error")
        return session or {}

    def _check_key(self, request: web.Request, offered: str) -> None:
        """Raises Refusal: the key is wrong, or without a key a page of another site connects."""
        if self._key is None:
            if (reason := self._origins.refusal(request.headers)) is not None:
                raise Refusal("forbidden", reason, kind="authentication_error")
            return
        if not hmac.compare_digest(offered.encode(errors="surrogateescape"), self._key.encode()):
            raise Refusal("invalid_api_key", "the API key is missing or wrong", kind="authentication_error")


def _offered_key(request: web.Request) -> str:
    """Return the key or the client secret in a request, "" without one."""
    offered = request.headers.get("Authorization", "").removeprefix("Bearer ")
    for protocol in request.headers.get("Sec-WebSocket-Protocol", "").split(","):
        if protocol.strip().startswith(KEY_PROTOCOL):
            offered = protocol.strip().removeprefix(KEY_PROTOCOL)
    return offered


async def _offer(request: web.Request) -> tuple[str, Fields | None]:
    """Return the SDP of an offer, and a session if the request has one. Raises Refusal: it is malformed."""
    session: Any = None
    try:
        if request.content_type == "application/sdp":
            sdp: Any = await request.text()
        else:
            form = await request.post()
            sdp, session = form.get("sdp"), form.get("session")
            session = json.loads(session) if isinstance(session, str) else None
        if not isinstance(sdp, str) or not isinstance(session, dict | None):
            raise ValueError("a call has sdp, and session as JSON or none")
        check_size(sdp)
    except (ValueError, RecursionError) as error:
        raise Refusal("invalid_offer", f"an offer is application/sdp, or a form: {error}", "sdp") from error
    return sdp, session


STATUS = {"forbidden": 403, "invalid_api_key": 401, "too_many_sessions": 503}


def refused(refusal: Refusal, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return the response to a refused request, in OpenAI's form."""
    status = STATUS.get(refusal.code, 503 if refusal.kind == "server_error" else 400)
    text = json.dumps({"error": refusal.fields()})
    return web.Response(status=status, text=text, content_type="application/json", headers=headers)
