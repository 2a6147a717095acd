"""Session that survives lost connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
import uuid
import weakref
from collections.abc import AsyncIterable, Iterable, Mapping
from types import TracebackType
from typing import Any

from websockets.asyncio.client import ClientConnection

from realtime_tts_client import events
from realtime_tts_client.context import Context
from realtime_tts_client.errors import ConnectionFailed, RealtimeTTSError, SessionClosed
from realtime_tts_client.handshake import Endpoint
from realtime_tts_client.link import Link
from realtime_tts_client.playback import PlaybackMode
from realtime_tts_client.protocol import ClientProtocol
from realtime_tts_client.types import AudioFormat
from realtime_tts_client.voices import OwnVoice, lend_voice, return_voice
from realtime_tts_client.wire import clean_text

logger = logging.getLogger(__name__)

REPORT_INTERVAL_S = 0.25
CONSUMED_STEP_MS = 500.0
PING_INTERVAL_S = 60.0
# More than the server's lead over playback, so that reading stops only if a program reports playback that does not
# happen.
HIGH_MARK_MS, LOW_MARK_MS = 10_000.0, 5_000.0

Text = str | Iterable[str | None] | AsyncIterable[str | None]  # None: a delta without text, as LLMs send


class Session:
    """Session made by `connect`; an asynchronous context manager. Use it from one event loop.

    A broken connection is resumed automatically and missed messages are sent again; only a delay remains. If
    reconnecting fails for as long as the server keeps the session, contexts and calls fail with `ConnectionLost`.
    """

    def __init__(
        self, endpoint: Endpoint, start: dict[str, Any], playback: PlaybackMode, own_voice: OwnVoice | None = None
    ) -> None:
        self._endpoint = endpoint
        self._playback = playback
        self._own_voice = own_voice
        self._lent: list[str] = []  # voices deleted with the session
        self._start = start
        self._protocol = ClientProtocol(start)
        self._link = Link(endpoint, self._protocol, self._on_event)
        self._contexts: weakref.WeakValueDictionary[str, Context] = weakref.WeakValueDictionary()
        self._live: set[Context] = set()  # not over, or still playing
        self._awaited: set[Context] = set()  # cancelled, answer pending
        self._tasks: list[asyncio.Task[None]] = []
        self._ready: asyncio.Future[None] | None = None
        self._error: RealtimeTTSError | None = None

    # ---- life ----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Session:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the session; contexts that are still open are cancelled."""
        self._shut(SessionClosed("the session was closed"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._lent:
            with contextlib.suppress(RealtimeTTSError):  # then it expires on the server
                voice = self._lent.pop()
                await asyncio.to_thread(return_voice, self._endpoint.url, self._endpoint.api_key, voice)

    @property
    def id(self) -> str | None:
        return self._protocol.session_id

    @property
    def model(self) -> str:
        return self._protocol.model

    @property
    def voice(self) -> str:
        return self._protocol.voice

    @property
    def limits(self) -> Mapping[str, Any]:
        """The server's limits, as in `session.started`."""
        return self._protocol.limits

    @property
    def closed(self) -> bool:
        """True if the session has ended: it was closed, or its connection could not be resumed."""
        return self._error is not None

    async def lend_voice(self, voice: OwnVoice) -> str:
        """Make a voice from recordings on the server, for this session. Return its id, a `voice` for `speak`.

        Raises:
            ServerError: the voice cannot be made (`consent` is missing, `recording_too_short` …).
            ConnectionFailed: the server cannot be reached.
        """
        voice_id = await asyncio.to_thread(lend_voice, self._endpoint.url, self._endpoint.api_key, voice)
        self._lent.append(voice_id)
        return voice_id

    # ---- speaking ------------------------------------------------------------------------------------------------

    def speak(
        self,
        text: Text | None = None,
        *,
        context_id: str | None = None,
        voice: str | None = None,
        audio: AudioFormat | None = None,
        params: Mapping[str, Any] | None = None,
        playback: PlaybackMode | None = None,
        draft: bool = False,
    ) -> Context:
        """Open a context.

        Args:
            text: the complete text; or an (asynchronous) iterable of pieces, of which None is skipped; or None, to
                `send` it later.
            context_id: at most 128 characters, never used before in this session.
            voice, audio, params: override those of the session.
            playback: see `connect`.
            draft: nothing is heard before `Context.commit`, but the server may make the beginning ahead.

        Raises:
            SessionClosed, ConnectionLost: the session has ended.
            TextTooLong: `text` is longer than the server allows (`limits["max_text_chars"]`).
            ValueError: `context_id` was used before, or a value cannot be encoded as JSON.
        """
        if self._error is not None:
            raise self._error
        context_id = uuid.uuid4().hex if context_id is None else context_id
        if context_id in self._contexts or not 0 < len(context_id) <= 128 or clean_text(context_id) != context_id:
            raise ValueError("context_id was used before, or is not one of 1 to 128 characters")
        opening = opening_fields(voice, audio, params)
        if isinstance(text, str):
            self._protocol.check_length(len(clean_text(text)))
        context = Context(self, context_id, playback or self._playback)
        self._contexts[context_id] = context
        self._live.add(context)
        self._protocol.open(context_id, opening, is_draft=draft)
        if isinstance(text, str):
            self._send_text(context, text)
            self._end(context)
        elif text is not None:
            context._pump = asyncio.get_running_loop().create_task(self._pump(context, text))
        return context

    def played(self, context: Context, played_ms: float) -> None:
        """Report a context's playback position. After the first call the program must report it a few times a second.

        Raises:
            ValueError: `played_ms` is not finite.
        """
        played_ms = float(played_ms)
        if not math.isfinite(played_ms):
            raise ValueError(f"played_ms must be finite, got {played_ms}")
        context.clock.mode = "manual"
        context.clock.report(played_ms, self._now())
        self._protocol.played(context.id, played_ms)
        self._link.wake()

    async def _pump(self, context: Context, text: Iterable[str | None] | AsyncIterable[str | None]) -> None:
        try:
            if isinstance(text, AsyncIterable):
                async for delta in text:
                    if delta is not None:
                        await context.send(delta)
            else:
                for delta in text:
                    if delta is not None:
                        await context.send(delta)
            await context.end()
        except RealtimeTTSError as error:
            self._end(context)  # accepted text is spoken, then this error is raised
            context._refuse(error)
        except asyncio.CancelledError:
            if context._pump is None or context._pump.cancelling():
                raise
            context._source_failed(RuntimeError("the iteration of the text was cancelled"))
        except Exception as error:
            context._source_failed(error)

    # ---- from contexts -------------------------------------------------------------------------------------------

    @staticmethod
    def _now() -> float:
        return time.monotonic()

    def _send_text(self, context: Context, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"text must be str, not {type(text).__name__}")
        self._protocol.send_text(context.id, text)
        context._sent.append(clean_text(text))
        self._link.wake()

    def _commit(self, context: Context, text: str | None) -> None:
        self._protocol.commit(context.id, text)
        if text is not None:
            context._sent[:] = [clean_text(text)]
        self._link.wake()

    def _flush(self, context: Context) -> None:
        self._protocol.flush(context.id)
        self._link.wake()

    def _end(self, context: Context) -> None:
        self._protocol.end(context.id)
        self._link.wake()

    def _cancel(self, context: Context, played_ms: float) -> None:
        if self._error is not None:
            context._fail(self._error, None)
            return
        self._protocol.cancel(context.id, played_ms)
        self._live.discard(context)
        self._awaited.add(context)
        self._link.wake()

    def _hold(self, context: Context, stop_ms: float) -> None:
        self._protocol.hold(context.id, stop_ms)
        self._link.wake()

    def _release(self, context: Context, clause_after_ms: float) -> None:
        self._protocol.release(context.id, clause_after_ms)
        self._link.wake()

    def _taken(self, context: Context) -> None:
        clock = context.clock
        if clock.mode == "consumed" and clock.taken_ms - context._acked_ms >= CONSUMED_STEP_MS:
            self._report(context)

    def _report(self, context: Context) -> None:
        context._acked_ms = context.played_ms
        self._protocol.played(context.id, context._acked_ms)
        self._link.wake()

    async def _drain(self) -> None:
        await self._link.drain()

    # ---- in the background --------------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Open the session. Raises: as `connect`."""
        if self._ready is not None:
            raise RuntimeError("a session is entered once")
        if self._own_voice is not None:
            self._start["voice"] = await self.lend_voice(self._own_voice)
        try:
            websocket = await self._endpoint.open()
        except BaseException:
            await self.close()
            raise
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        self._tasks = [loop.create_task(self._run(websocket)), loop.create_task(self._report_regularly())]
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), self._endpoint.open_timeout_s)
        except TimeoutError:
            self._ready.cancel()
            await self.close()
            raise ConnectionFailed("the server accepted the connection but did not answer") from None
        except BaseException:
            self._ready.cancel()
            await self.close()
            raise

    async def _run(self, websocket: ClientConnection) -> None:
        try:
            await self._link.run(websocket)
        except RealtimeTTSError as error:
            self._shut(error)
        except Exception as error:  # a bug of this package; waiting calls must not block for ever
            logger.exception("the connection ended with a fault")
            self._shut(RealtimeTTSError(f"the connection ended with a fault: {error!r}"))

    async def _report_regularly(self) -> None:
        """Report playback positions, and send pings so that the server does not end the session as idle."""
        next_ping = self._now() + PING_INTERVAL_S
        while True:
            await asyncio.sleep(REPORT_INTERVAL_S)
            for context in list(self._live):
                self._report_one(context)
            if self._now() >= next_ping:
                next_ping = self._now() + PING_INTERVAL_S
                self._protocol.ping()
                self._link.wake()

    def _report_one(self, context: Context) -> None:
        if context.clock.mode != "manual" and context.audio is not None:
            self._report(context)
        if (
            context._finished
            and not context._packets
            and context.clock.position_ms(self._now())
            >= (0.0 if context.clock.mode == "manual" else context.clock.taken_ms)
        ):
            self._live.discard(context)

    # ---- what arrives --------------------------------------------------------------------------------------------

    async def _on_event(self, event: events.Event) -> None:
        if isinstance(event, events.PacketReceived):
            await self._on_packet(event)
        elif isinstance(event, events.SessionReady):
            self._link.established = True
            if self._ready is not None and not self._ready.done():
                self._ready.set_result(None)
        elif isinstance(event, events.SessionFailed):
            raise event.error
        elif isinstance(event, events.Refused) and event.context_id is None:
            logger.warning("the server refused a message: %s: %s", event.error.code, event.error.message)
        elif (context := self._contexts.get(event.context_id or "")) is not None:
            self._on_context_event(context, event)

    async def _on_packet(self, event: events.PacketReceived) -> None:
        context = self._contexts.get(event.context_id)
        if context is None:  # it was garbage collected
            self._protocol.cancel(event.context_id, 0.0)
            return
        context._add_packet(event.packet)
        if context.queued_ms < HIGH_MARK_MS:
            return
        while context.queued_ms > LOW_MARK_MS:  # stop reading the socket until the context is read or cancelled
            context._drained.clear()
            await context._drained.wait()

    def _on_context_event(self, context: Context, event: events.Event) -> None:
        if isinstance(event, events.ContextStarted):
            context._started(event.voice, event.seed, event.audio)
        elif isinstance(event, events.ContextRestarted):
            context._restarted(event.received_ms)
        elif isinstance(event, events.WordsReceived):
            context._add_words(event.words, event.previous_end_ms)
        elif isinstance(event, events.TextSkipped):
            context.skipped += event.spans
        elif isinstance(event, events.ContextDone):
            context._finish(event.done)
        elif isinstance(event, events.ContextCancelled):
            self._awaited.discard(context)
            context._settle(event.spoken)
        elif isinstance(event, events.ContextHeld):
            context._held(event.spoken)
        elif isinstance(event, events.ContextReleased):
            context._go_on(event.from_ms)
        elif isinstance(event, events.ContextFailed):
            self._awaited.discard(context)
            context._fail(event.error, event.spoken)
        elif isinstance(event, events.Refused) and event.is_answer:
            context._unanswered(event.error)
        elif isinstance(event, events.Refused):
            context._refuse(event.error, event.span)

    def _shut(self, error: RealtimeTTSError) -> None:
        """Shut the session: all contexts and waiting calls fail with the error."""
        if self._error is not None:
            return
        self._error = error
        for context in [*self._live, *self._awaited]:
            context._unanswered(error)
            if not context._finished or context in self._awaited:
                context._fail(error, None)
        self._live.clear()
        self._awaited.clear()
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(error)


def opening_fields(voice: str | None, audio: AudioFormat | None, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Fields of `session.start`, or of a context's first message.

    Raises:
        ValueError: a value cannot be encoded as JSON (a numpy number, NaN, half a surrogate pair).
    """
    given = {
        "voice": voice,
        "audio": audio.to_map() if audio is not None else None,
        "params": dict(params) if params else None,
    }
    fields = {name: value for name, value in given.items() if value is not None}
    try:
        json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"voice and params must be what JSON can carry: {error}") from error
    return fields
