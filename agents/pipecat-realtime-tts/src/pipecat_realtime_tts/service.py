"""Pipecat service for a realtime-tts server."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from loguru import logger
from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    Frame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessorSetup
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TextAggregationMode, TTSService
from pipecat.transcriptions.language import Language
from pipecat.utils.tracing.service_decorators import traced_tts
from pipecat.utils.types import NOT_GIVEN, NotGiven
from realtime_tts_client import AudioFormat, ConnectionLost, Context, Packet, RealtimeTTSError, Session, Word, connect

from pipecat_realtime_tts.errors import category_of
from pipecat_realtime_tts.spelling import Spelling, is_written_without_spaces
from pipecat_realtime_tts.timeline import Timeline

DEFAULT_URL = "ws://localhost:8000"
PACKET_MS = 20
NUM_CHANNELS = 1
# A language model may pause within a turn; the turn is cancelled only after this time.
STALLED_TURN_S = 120.0
AHEAD_S = 0.2  # audio given to a pipeline that can be held, ahead of its playback


@dataclass
class RealtimeTTSSettings(TTSSettings):
    """Settings that may change from turn to turn; None is the server's default.

    Parameters:
        speed: Tempo factor, 0.25 to 4; the pitch is kept.
        volume: Level factor, 0 to 2.
        sentence_pause_ms: Silence added between sentences, 0 to 3000 ms.
        lexicon: Words and phrases with their respellings.
        adapter: Name of a loaded LoRA adapter.
        openings: `on` begins with speech from memory if another turn began alike.
        cfg: Classifier-free guidance scale, 0 to 10.
        steps: Number of flow steps, 2 to 64: more are slower and may sound better.
        seed: The same seed, voice and text give the same speech.
        instructions: Description of the speaking style, for models that accept one.
        mode: `live` starts a clause at its first words, `clause` when it is complete.
    """

    speed: float | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)
    volume: float | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)
    sentence_pause_ms: float | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)
    lexicon: Mapping[str, str] | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)
    adapter: str | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)
    openings: Literal["on", "off"] | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)
    cfg: float | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)
    steps: int | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)
    seed: int | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)
    instructions: str | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)
    mode: Literal["live", "clause"] | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)

    @property
    def params(self) -> dict[str, Any]:
        """Return the parameters sent to the server, without the voice."""
        return {name: value for name in _PARAMS if (value := getattr(self, name)) is not None}


_PARAMS = (
    "language",
    *(own.name for own in fields(RealtimeTTSSettings) if own.name not in TTSSettings.__dataclass_fields__),
)


@dataclass
class _Turn:
    """A turn: its context on the server, once open, and the task that reads its audio.

    Attributes:
        before: the task of the turn before, whose audio is forwarded first.
        timeline: playback of what was forwarded.
        holding: holds the turn until the user is quiet, and lets it go on.
        given_ms: position up to which its audio was forwarded.
        failed: speech has ended with an error, or could not start.
        error: the first error, which was reported; later text of the turn is dropped.
    """

    context: Context | None = None
    listening: asyncio.Task[None] | None = None
    before: asyncio.Task[None] | None = None
    timeline: Timeline = field(default_factory=Timeline)
    holding: asyncio.Task[None] | None = None
    given_ms: float = 0.0
    text_ended: bool = False
    failed: bool = False
    error: RealtimeTTSError | None = None


class RealtimeTTSService(TTSService):
    """Service that forwards text token by token. Each turn is one context; all turns share one session.

    The session is the Python client's, which resumes a broken connection by itself.
    """

    Settings = RealtimeTTSSettings
    _settings: RealtimeTTSSettings

    def __init__(
        self,
        *,
        url: str | None = None,
        api_key: str | None = None,
        sample_rate: int | None = None,
        settings: RealtimeTTSSettings | None = None,
        hold_while_user_speaks: bool = False,
        **kwargs: Any,
    ) -> None:
        """Initialize the service.

        Args:
            url: The server's address, `ws://host:port` or `https://host`. Default: the environment variable
                REALTIME_TTS_URL, else ws://localhost:8000.
            api_key: If the server requires one. Default: the environment variable REALTIME_TTS_API_KEY.
            sample_rate: Sample rate of the audio, Hz. Default: the pipeline's.
            settings: Speech settings.
            hold_while_user_speaks: Hold the speech at the end of a word when voice activity detection reports the user,
                and go on when it reports quiet, unless Pipecat interrupts meanwhile.
            **kwargs: Additional arguments passed to the parent service.
        """
        unset: dict[str, Any] = dict.fromkeys(_PARAMS)
        complete = RealtimeTTSSettings(model=None, voice=None, **unset)
        if settings is not None:
            complete.apply_update(settings)
        super().__init__(
            text_aggregation_mode=TextAggregationMode.TOKEN,
            push_text_frames=False,  # words are pushed instead, once spoken
            push_start_frame=True,
            stop_frame_timeout_s=STALLED_TURN_S,
            sample_rate=sample_rate,
            settings=complete,
            **kwargs,
        )
        self._url = url if url is not None else os.environ.get("REALTIME_TTS_URL", DEFAULT_URL)
        self._api_key = api_key if api_key is not None else os.environ.get("REALTIME_TTS_API_KEY")
        self._session: Session | None = None
        self._opening = asyncio.Lock()
        self._turns: dict[str, _Turn] = {}  # by Pipecat's context id
        self._holds = hold_while_user_speaks
        self._last_listening: asyncio.Task[None] | None = None
        self._user_is_quiet = asyncio.Event()

    def can_generate_metrics(self) -> bool:
        """Return True: metrics are reported."""
        return True

    @property
    def supports_processing_metrics(self) -> bool:
        """Return False: sending text takes negligible time. Time to first audio is reported."""
        return False

    def language_to_service_language(self, language: Language) -> str | None:
        """Return the language without its region: "en" for en-US."""
        return str(language).split("-")[0].lower()

    async def setup(self, setup: FrameProcessorSetup) -> None:  # type: ignore[override]
        """Set up the service and connect."""
        await super().setup(setup)
        try:
            await self._connected()
        except RealtimeTTSError as error:
            await self._report(error)  # the first turn retries

    async def stop(self, frame: EndFrame) -> None:
        """Stop after all text was spoken."""
        await super().stop(frame)
        await self._disconnect()

    async def cancel(self, frame: CancelFrame) -> None:
        """Stop at once."""
        await super().cancel(frame)
        await self._disconnect()

    async def cleanup(self) -> None:
        """Release the connection."""
        await super().cleanup()
        await self._disconnect()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Process a frame; hold the turn that is heard while the user speaks."""
        await super().process_frame(frame, direction)
        if isinstance(frame, VADUserStartedSpeakingFrame) and self._holds:
            self._user_is_quiet.clear()
            context_id = self.get_active_audio_context_id() or ""
            turn = self._turns.get(context_id)
            if turn is not None and turn.context is not None and (turn.holding is None or turn.holding.done()):
                turn.holding = self.create_task(self._hold(turn, turn.context, context_id), name="holding")
        elif isinstance(frame, VADUserStoppedSpeakingFrame):
            self._user_is_quiet.set()

    @traced_tts
    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Send a piece of a turn's text.

        Args:
            text: The piece.
            context_id: Pipecat's id of the turn.

        Yields:
            None: the audio is delivered by another task.
        """
        turn = self._turns.setdefault(context_id, _Turn())
        if turn.error is None:
            try:
                await self._send(turn, text, context_id)
                await self.start_tts_usage_metrics(text)
            except RealtimeTTSError as error:
                turn.failed = turn.listening is None  # else the listening task reports the end
                await self._tell(turn, error)
        yield None

    async def flush_audio(self, context_id: str | None = None) -> None:
        """End the turn's text."""
        context_id = context_id or self.get_active_audio_context_id() or ""
        turn = self._turns.get(context_id)
        if turn is None:
            return
        turn.text_ended = True
        if turn.failed or turn.context is None:
            await self._end_audio(context_id)
            return
        try:
            await turn.context.end()
        except RealtimeTTSError as error:  # the last piece was refused, or the turn has failed
            await self._tell(turn, error)

    async def on_audio_context_interrupted(self, context_id: str) -> None:
        """Cancel the context on the server at once."""
        await self._drop(context_id)
        await self.stop_all_metrics()
        await super().on_audio_context_interrupted(context_id)

    async def on_audio_context_completed(self, context_id: str) -> None:
        """Cancel the context on the server if Pipecat has given the turn up because no audio arrived for long."""
        await self._drop(context_id)
        await super().on_audio_context_completed(context_id)

    async def _connected(self) -> Session:
        """Return the open session. Raises RealtimeTTSError: none is open and none can be opened."""
        async with self._opening:
            if self._session is not None and not self._session.closed:
                return self._session
            if self._session is not None:
                await self._session.close()
                self._session = None
            audio = AudioFormat("pcm_s16le", sample_rate=self.sample_rate, frame_ms=PACKET_MS)
            session = connect(self._url, audio=audio, api_key=self._api_key)
            await session.__aenter__()
            self._session = session
        if self._settings.model != session.model:
            self._settings.model = session.model
            self._sync_model_name_to_metrics()
        await self._call_event_handler("on_connected")
        return session

    async def _disconnect(self) -> None:
        for context_id in list(self._turns):
            await self._drop(context_id)
        async with self._opening:
            if self._session is None:
                return
            await self._session.close()
            self._session = None
        await self._call_event_handler("on_disconnected")

    async def _send(self, turn: _Turn, text: str, context_id: str) -> None:
        if turn.context is None:
            session = await self._connected()
            settings = self._settings
            turn.context = session.speak(
                voice=settings.voice,  # type: ignore[arg-type]
                params=settings.params,
                playback="consumed" if self._holds else "realtime",
            )
            turn.before = self._last_listening
            turn.listening = self.create_task(self._listen(turn, turn.context, context_id), name="listening")
            self._last_listening = turn.listening
        await turn.context.send(text)

    async def _listen(self, turn: _Turn, context: Context, context_id: str) -> None:
        """Forward all speech of a turn, and its end."""
        try:
            if self._holds and turn.before is not None:
                await asyncio.wait([turn.before])
            turn.before = None
            if not await self._forward(turn, context, context_id):
                # Pipecat treats contexts without a sample as a service that has stopped working.
                logger.debug(f"{self}: nothing of the turn can be spoken")
                await self._append(context_id, bytes(2 * self.sample_rate * PACKET_MS // 1000))
        except RealtimeTTSError as error:
            turn.failed = True
            await self._tell(turn, error)
            if not turn.text_ended:
                return  # later text is dropped, and the end of the text ends the turn
        await self._end_audio(context_id)

    async def _forward(self, turn: _Turn, context: Context, context_id: str) -> bool:
        """Forward words and audio, words before their audio. Return whether there was any audio."""
        timeline, has_audio, spelling = turn.timeline, False, Spelling()
        untold: deque[Word] = deque()

        async def tell(words: Iterable[Word], given_ms: float = math.inf) -> None:
            untold.extend(words)
            while untold and untold[0].end_ms <= given_ms:
                word = untold.popleft()
                end = (word.text, word.end_ms / 1000 + timeline.gaps_s)
                await self.add_word_timestamps([end], context_id, is_written_without_spaces(word.text))

        async for packet in context:
            samples = self._next_part(turn, context, packet)
            timeline.take(len(samples) / 2 / self.sample_rate, time.monotonic())
            # A word that begins may be held back: it is told with its end.
            await tell(spelling.take(packet.words, context.text), turn.given_ms if self._holds else math.inf)
            await self._append(context_id, samples)
            has_audio = True
            if self._holds:
                await asyncio.sleep(max(0.0, timeline.ahead_s(time.monotonic()) - AHEAD_S))
        await tell(spelling.take(context.words, context.text))  # words that were reported after their audio was sent
        if context.done is None:
            raise ConnectionLost("the server ended the turn before it was spoken")
        return has_audio

    def _next_part(self, turn: _Turn, context: Context, packet: Packet) -> bytes:
        """Return the samples of a packet from where the turn goes on to where it is held."""
        start_ms, end_ms = packet.start_ms, packet.start_ms + packet.duration_ms
        if start_ms < turn.given_ms < end_ms:  # it was held inside this packet, which comes again
            start_ms = turn.given_ms
        if context.held_ms is not None:
            end_ms = min(end_ms, context.held_ms)
        turn.timeline.gaps_s += (turn.given_ms - start_ms) / 1000  # a clause that is heard again
        turn.given_ms = end_ms
        start, end = (round((ms - packet.start_ms) * self.sample_rate / 1000) for ms in (start_ms, end_ms))
        return packet.payload[2 * start : 2 * end]

    async def _hold(self, turn: _Turn, context: Context, context_id: str) -> None:
        """Hold a turn at the end of the word that is given to the pipeline. Give silence until the user is quiet."""
        with contextlib.suppress(RealtimeTTSError):  # the turn is over
            while not self._user_is_quiet.is_set():
                held_ms = (await context.hold()).played_ms
                while not self._user_is_quiet.is_set():
                    if context.clock.taken_ms >= held_ms:  # then the word was given
                        turn.timeline.insert(PACKET_MS / 1000, time.monotonic())
                        await self._append(context_id, bytes(2 * self.sample_rate * PACKET_MS // 1000))
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(PACKET_MS / 1000):  # Pipecat replaces `asyncio.wait_for`
                            await self._user_is_quiet.wait()
                await context.release()

    async def _append(self, context_id: str, samples: bytes) -> None:
        frame = TTSAudioRawFrame(samples, self.sample_rate, NUM_CHANNELS, context_id=context_id)
        await self.append_to_audio_context(context_id, frame)

    async def _end_audio(self, context_id: str) -> None:
        if self.audio_context_available(context_id):
            await self.append_to_audio_context(context_id, TTSStoppedFrame(context_id=context_id))
            await self.remove_audio_context(context_id)

    async def _drop(self, context_id: str) -> None:
        """Remove a turn; cancel its context at once if it still speaks."""
        turn = self._turns.pop(context_id, None)
        if turn is None or turn.context is None:
            return
        if turn.context.done is None:
            turn.context.cancel_nowait()
        if turn.holding is not None:
            await self.cancel_task(turn.holding)
        if turn.listening is not None and turn.listening is not asyncio.current_task():
            await self.cancel_task(turn.listening)

    async def _tell(self, turn: _Turn, error: RealtimeTTSError) -> None:
        """Report the first error of a turn only: later ones are its consequences."""
        if turn.error is None:
            turn.error = error
            await self._report(error)

    async def _report(self, error: RealtimeTTSError) -> None:
        await self.push_error(error_msg=error.message, exception=error, category=category_of(error))
        if self._session is None or self._session.closed:
            await self._call_event_handler("on_connection_error", error.message)
