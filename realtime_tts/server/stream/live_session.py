"""Driver of one `Session`: passes its events to the engine and the engine's audio to it, and runs its timer.

It outlives the socket by the resume window. All of it runs on the event loop, and nothing blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from realtime_tts.audio.packets import Packets
from realtime_tts.errors import InternalError, RealtimeTTSError, VoiceNotFound
from realtime_tts.server.admission.client import Client
from realtime_tts.server.logs import log_crash, log_event
from realtime_tts.server.stream.account import SessionAccount
from realtime_tts.server.stream.context_speech import ContextSpeech
from realtime_tts.session import messages
from realtime_tts.session.connection import INTERNAL_ERROR, SessionState
from realtime_tts.session.session import Session
from realtime_tts.speech.speaker import Piece, Speaker

if TYPE_CHECKING:
    from realtime_tts.server.gateway import Gateway
    from realtime_tts.server.stream.websocket import Connection


class _Containment:
    """Context manager: an unexpected exception ends one session only, not the task or timer that called it.

    A class, since a generator would take three times as long, for each patch.
    """

    def __init__(self, collapse: Callable[[Exception], None]) -> None:
        self._collapse = collapse

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, RealtimeTTSError):
            return False  # the caller answers a RealtimeTTSError
        self._collapse(error)
        return True


class LiveSession:
    """One session of one client.

    Args:
        client: the client to which characters are charged that lexicons add. Only a client of the same tenant may
            resume the session.
        connection: its socket.
    """

    def __init__(self, session: Session, gateway: Gateway, client: Client, connection: Connection) -> None:
        self.session, self.client = session, client
        self._contexts = session.contexts
        self._gateway = gateway
        self._connection: Connection | None = connection
        self._speeches: dict[str, ContextSpeech] = {}
        self._account = SessionAccount(gateway.metrics, session.session_id)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._over = False

    @property
    def lost_at(self) -> float | None:
        """Monotonic time in seconds at which the connection was lost; None while the client is connected."""
        return self.session.lost_at

    @property
    def num_speaking(self) -> int:
        """Number of contexts that have work at the engine; a context at twice the speed counts twice."""
        return sum(speech.speaker.num_streams for speech in self._speeches.values())

    @property
    def voices(self) -> set[str]:
        """Engine ids of the voices of its contexts."""
        return {speech.speaker.voice for speech in self._speeches.values()}

    # ---- the socket's side ---------------------------------------------------------------------------------------

    def resume(self, message: messages.Resume, connection: Connection) -> None:
        """Continue with a client that has reconnected on another socket; the former one is closed.

        Raises:
            SessionNotFound: the session is closed.
        """
        with _Containment(self._collapse):
            self.session.resume(message, time.monotonic())
        self._gateway.metrics.resumed.inc()
        if self._connection is not None:
            self._connection.supersede()
        self._connection = connection
        self.advance()

    def receive(self, message: messages.ClientMessage) -> None:
        with self._input() as now:
            self.session.receive(message, now)

    def reject(self, error: RealtimeTTSError) -> None:
        """Report a client frame that could not be parsed."""
        with self._input() as now:
            self.session.reject(error, now)

    def writable(self, writable: bool) -> None:
        """Note that the socket's buffer has passed its low mark (True) or its high mark (False)."""
        with self._input() as now:
            self.session.writable(writable, now)

    def detach(self, connection: Connection, clean: bool) -> None:
        """Note that the socket is closed; ignored if another socket has taken over."""
        if self._connection is connection:
            self._connection = None
            with self._input() as now:
                self.session.connection_lost(now, clean=clean)
            if self._over:
                self._account.abandoned()

    def drain(self) -> None:
        with self._input() as now:
            self.session.drain(now)

    def close(self, code: int, reason: str, error: RealtimeTTSError | None = None) -> None:
        """End the session: its contexts fail with `error`, or are cancelled if it is None."""
        with self._input() as now:
            self.session.close(now, code, reason, error)

    def take_messages(self, max_bytes: int) -> list[messages.ServerMessage]:
        """Return the messages that may be sent now, up to `max_bytes`; they count as sent.

        Messages beyond `max_bytes` are due at once if the listener's lead is too short.
        """
        now = time.monotonic()
        taken: list[messages.ServerMessage] = []
        with _Containment(self._collapse):
            taken = self.session.messages_to_send(now, max_bytes)
            for message in taken:
                self._account.sent(message, now)
            self._perform_events(now)  # sent messages may start a timer or end a context
            if not self._over:
                self._arm_at(self.session.next_deadline())
        return taken

    @property
    def is_due(self) -> bool:
        """True if the timer is due: messages to take, or other work of the session."""
        return self._timer is not None and self._timer.when() <= time.monotonic()

    def unsendable(self, message: messages.ServerMessage, error: Exception) -> None:
        """Fail the context of a message that cannot be written; the caller writes no later message of it."""
        with self._input() as now:
            self.session.unsendable(message, error, now)

    def voice_removed(self, voice_id: str) -> None:
        """Fail the contexts that use a removed voice. `voice_id`: the engine's id."""
        speaking = [name for name, speech in self._speeches.items() if speech.speaker.voice == voice_id]
        for context_id in speaking:
            self.speech_failed(context_id, VoiceNotFound("the voice was removed", field="voice"))

    # ---- of its contexts' speech -----------------------------------------------------------------------------------

    def is_ahead(self, context_id: str) -> bool:
        """Return True if packets may come some 10 ms later without an audible effect."""
        return self._contexts.is_ahead(context_id, time.monotonic())

    def speech_packets(self, context_id: str, packets: Packets | None, piece: Piece) -> None:
        """Take packets of a piece, which has `piece.audio_ms` at their end; None at a segment's end."""
        now = time.monotonic()
        if packets:
            self._contexts.audio(context_id, packets, now)
        self._contexts.segment_progress(context_id, piece.segment.index, piece.audio_ms, piece.done, now, piece.reached)
        with _Containment(self._collapse):
            self._follow(now)

    def speech_finished(self, context_id: str, packets: list[Packets]) -> None:
        now = time.monotonic()
        for rest in packets:
            self._contexts.audio(context_id, rest, now)
        self._contexts.audio_finished(context_id, now, self._speeches[context_id].speaker.report)
        self.advance()

    def speech_failed(self, context_id: str, error: RealtimeTTSError) -> None:
        session_id = self.session.session_id
        if error.__cause__ is not None:
            log_crash("speech_crashed", error.__cause__, session=session_id)
        log_event("context_failed", logging.WARNING, session=session_id, code=error.code)
        with self._input() as now:
            self._contexts.failed(context_id, error, now)

    # ---- between them --------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Process due work and the session's events, wake the socket if messages may be sent, and set the timer."""
        if self._over:
            return
        with _Containment(self._collapse):
            now = time.monotonic()
            self.session.tick(now)
            self._follow(now)

    def _follow(self, now: float) -> None:
        """Do the work of `advance` without the due work: for inputs that cannot make any, but by the timer."""
        if self._over:
            return
        self._perform_events(now)
        is_over = self.session.state is SessionState.CLOSED
        deadline = self.session.next_deadline()
        is_wanted = is_over or (deadline is not None and deadline <= now)
        is_taken = is_wanted and self._connection is not None and self._connection.wake()
        if is_over:
            self._end()
        elif not is_taken:  # else the timer is set once the messages were taken, or the session is detached
            self._arm_at(deadline)

    @contextlib.contextmanager
    def _input(self) -> Iterator[float]:
        """Pass the time to an input of the session, contained, and process what follows from it."""
        with _Containment(self._collapse):
            yield time.monotonic()
        self.advance()

    def _collapse(self, error: Exception) -> None:
        log_crash("session_crashed", error, session=self.session.session_id)
        failure = InternalError("something went wrong in the server")
        try:
            self.session.close(time.monotonic(), INTERNAL_ERROR, failure.code, failure)
        except Exception as second:  # its contexts get no terminal messages, but the client gets its close
            log_crash("session_crashed", second, session=self.session.session_id)
        self._end()
        if self._connection is not None:
            self._connection.wake()

    def _perform_events(self, now: float) -> None:
        while pending := self.session.events():
            for event in pending:
                self._perform(event, now)

    def _perform(self, event: messages.SessionEvent, now: float) -> None:
        if isinstance(event, messages.StartSpeech | messages.ExtendSpeech):
            self._gateway.admission.charge_accepted(self.client, event.segment.added_chars)
        if isinstance(event, messages.StartSpeech | messages.DraftSpeech):
            self._start(event, now)
        elif isinstance(event, messages.StopSpeech):
            self._stop(event.context_id)
        elif isinstance(event, messages.Crashed):
            log_crash("context_crashed", event.error, session=self.session.session_id)
        elif speech := self._speeches.get(event.context_id):
            if isinstance(event, messages.EndOfSegments):
                speech.speaker.end()
            elif isinstance(event, messages.ExtendSpeech):
                speech.speaker.extend(event.segment)
            elif isinstance(event, messages.PlaybackChanged):
                speech.speaker.playback(event.played_ms, event.paused)
            elif isinstance(event, messages.PriorityChanged):
                speech.speaker.set_priority(event.priority)

    def _start(self, event: messages.StartSpeech | messages.DraftSpeech, now: float) -> None:
        try:
            speech = self._speeches.get(event.context_id) or self._open_speech(event)
            if isinstance(event, messages.DraftSpeech):
                speech.speaker.draft(event.segment)
            else:
                speech.speaker.add(event.segment, event.priority)
        except RealtimeTTSError as error:
            self._contexts.failed(event.context_id, error, now)

    def _open_speech(self, event: messages.StartSpeech | messages.DraftSpeech) -> ContextSpeech:
        """Open the speech of a context. Raises VoiceNotFound if the voice was removed since the context was opened."""
        voice = self._gateway.voices.engine_id(event.settings.voice, self.client.tenant)
        settings = dataclasses.replace(event.settings, voice=voice)
        engine_context_id = f"{self.session.session_id}.{event.context_number}"
        speaker = Speaker(self._gateway.engine, engine_context_id, settings, tenant=self.client.tenant)
        speech = self._speeches[event.context_id] = ContextSpeech(
            event.context_id, speaker, self._gateway.encoders, settings.audio, self
        )
        return speech

    def _stop(self, context_id: str) -> None:
        if (speech := self._speeches.pop(context_id, None)) is not None:
            speech.close()

    def _arm_at(self, deadline: float | None) -> None:
        if self._timer is not None:
            if self._timer.when() == deadline:
                return
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.advance()

    def _end(self) -> None:
        if self._over:
            return
        self._over = True
        self._arm_at(None)
        for context_id in list(self._speeches):
            self._stop(context_id)
        if self._connection is None:
            self._account.abandoned()
        self._gateway.sessions.closed(self)
