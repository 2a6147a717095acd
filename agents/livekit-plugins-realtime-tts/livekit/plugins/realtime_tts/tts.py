"""Speech of a realtime-tts server for LiveKit Agents."""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, Unpack

from livekit.agents import (
    AgentSession,
    APIConnectionError,
    APIConnectOptions,
    SpeechCreatedEvent,
    tts,
    utils,
)
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, NOT_GIVEN, NotGivenOr
from livekit.agents.utils import is_given
from livekit.agents.voice import SpeechHandle
from realtime_tts_client import AudioFormat, Context, RealtimeTTSError, Session, connect

from .connection import SharedSession
from .errors import api_errors
from .log import logger
from .transcript import Transcript

DEFAULT_URL = "ws://localhost:8000"
DEFAULT_SAMPLE_RATE = 24_000  # LiveKit's room output accepts it without resampling
PACKET_MS = 20
# Duration of the frames given to LiveKit's output. Its default of 200 ms would delay available audio.
FRAME_MS = 40
NUM_CHANNELS = 1
CERTAIN_EVERY_S = 0.01  # how often an early answer is looked at: LiveKit has no event for its turn's end


Mode = Literal["live", "clause"]


class SpeechOptions(TypedDict, total=False):
    """Speech options; None is the server's default."""

    voice: NotGivenOr[str | None]
    speed: NotGivenOr[float | None]
    volume: NotGivenOr[float | None]
    sentence_pause_ms: NotGivenOr[float | None]
    lexicon: NotGivenOr[Mapping[str, str] | None]
    adapter: NotGivenOr[str | None]
    openings: NotGivenOr[Literal["on", "off"] | None]
    cfg: NotGivenOr[float | None]
    steps: NotGivenOr[int | None]
    seed: NotGivenOr[int | None]
    language: NotGivenOr[str | None]
    instructions: NotGivenOr[str | None]
    mode: NotGivenOr[Mode | None]


class TTS(tts.TTS[Any]):
    """LiveKit TTS that forwards text as it arrives, in any split, without a sentence tokenizer."""

    def __init__(
        self,
        url: NotGivenOr[str] = NOT_GIVEN,
        *,
        api_key: NotGivenOr[str] = NOT_GIVEN,
        sample_rate: int = DEFAULT_SAMPLE_RATE,
        **options: Unpack[SpeechOptions],
    ) -> None:
        """
        Args:
            url: the server's address, `ws://host:port` or `https://host`. Default: the environment variable
                REALTIME_TTS_URL, else ws://localhost:8000.
            api_key: if the server requires one. Default: the environment variable REALTIME_TTS_API_KEY.
            voice: name of a voice. Default: the server's default voice.
            speed: tempo factor, 0.25 to 4; the pitch is kept.
            volume: level factor, 0 to 2.
            sentence_pause_ms: silence added between sentences, 0 to 3000 ms.
            lexicon: words and phrases with their respellings.
            adapter: name of a loaded LoRA adapter.
            openings: `on` begins with speech from memory if another turn began alike.
            cfg: classifier-free guidance scale, 0 to 10.
            steps: number of flow steps, 2 to 64: more are slower and may sound better.
            seed: the same seed, voice and text give the same speech. Default: random.
            language: language of the text, for models that speak several.
            instructions: description of the speaking style, for models that accept one.
            mode: `live` starts a clause at its first words, `clause` when it is complete.
            sample_rate: Hz. If LiveKit's output has another rate, LiveKit resamples and drops the words' times.

        Raises:
            ValueError: the address is invalid.
        """
        super().__init__(
            capabilities=tts.TTSCapabilities(streaming=True, aligned_transcript=True),
            sample_rate=sample_rate,
            num_channels=NUM_CHANNELS,
        )
        self._url = url if is_given(url) else os.environ.get("REALTIME_TTS_URL", DEFAULT_URL)
        self._api_key = api_key if is_given(api_key) else os.environ.get("REALTIME_TTS_API_KEY")
        self._audio = AudioFormat("pcm_s16le", sample_rate=sample_rate, frame_ms=PACKET_MS)
        self._options: dict[str, Any] = {}  # without those that are None
        self._shared = SharedSession(self._connect)
        self._prewarming: asyncio.Task[None] | None = None
        self._streams: weakref.WeakSet[SynthesizeStream] = weakref.WeakSet()
        self._answer: SpeechHandle | None = None  # the latest that a session has created, if it is followed
        self._connect(DEFAULT_API_CONNECT_OPTIONS.timeout)  # an invalid address is reported here
        self.update_options(**options)

    @property
    def model(self) -> str:
        return self._shared.model or "unknown"

    @property
    def provider(self) -> str:
        return "realtime-tts"

    def update_options(self, **options: Unpack[SpeechOptions]) -> None:
        """Change options from the next turn on; None is the server's default. The connection stays open."""
        if unknown := options.keys() - SpeechOptions.__annotations__.keys():
            raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
        given = {name: value for name, value in options.items() if is_given(value)}
        self._options = {name: value for name, value in {**self._options, **given}.items() if value is not None}

    @property
    def _opening(self) -> dict[str, Any]:
        """Arguments of `Session.speak` for the options."""
        params = self._options.copy()
        return {"voice": params.pop("voice", None), "params": params}

    def synthesize(self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS) -> ChunkedStream:
        return ChunkedStream(tts=self, input_text=text, conn_options=conn_options)

    def stream(self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS) -> SynthesizeStream:
        stream = SynthesizeStream(tts=self, conn_options=conn_options)
        self._streams.add(stream)
        return stream

    def prewarm(self) -> None:
        """Connect in the background, so that the first turn does not wait for it."""
        if self._prewarming is None or self._prewarming.done():
            self._prewarming = asyncio.create_task(self._prewarm(), name="realtime_tts.prewarm")

    def _follow(self, event: SpeechCreatedEvent) -> None:
        self._answer = event.speech_handle

    async def aclose(self) -> None:
        for stream in list(self._streams):
            await stream.aclose()
        if self._prewarming is not None:
            await utils.aio.cancel_and_wait(self._prewarming)
        await self._shared.aclose()

    def _connect(self, timeout_s: float) -> Session:
        return connect(self._url, audio=self._audio, api_key=self._api_key, open_timeout_s=timeout_s)

    async def _prewarm(self) -> None:
        try:
            await self._shared.get(DEFAULT_API_CONNECT_OPTIONS.timeout)
        except RealtimeTTSError as error:
            logger.warning("the server cannot be reached yet", extra={"code": error.code, "reason": error.message})


def draft_early_answers(session: AgentSession[Any]) -> None:
    """Make a session's early answers drafts, which cost nothing that other streams need until their turn has ended.

    For `turn_handling={"preemptive_generation": {"preemptive_tts": True}}`: LiveKit has an answer spoken before it is
    certain that the user's turn has ended.

    Raises:
        ValueError: the session does not speak through this plugin.
    """
    if not isinstance(session.tts, TTS):
        raise ValueError("the session's tts is not a realtime_tts.TTS")
    session.on("speech_created", session.tts._follow)


class SynthesizeStream(tts.SynthesizeStream):
    """Stream of one turn, which is one context of the shared session. Each turn is a new stream."""

    def __init__(self, *, tts: TTS, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=tts, conn_options=conn_options)
        self._speech: TTS = tts
        self._opening = tts._opening
        self._answer = tts._answer

    @property
    def _is_early(self) -> bool:
        """True if this is an answer whose turn may go on: LiveKit schedules it when the turn has ended."""
        return self._answer is not None and not self._answer.scheduled and not self._answer.done()

    async def _commit(self, context: Context) -> None:
        """Have a draft spoken once its turn has ended. If the turn goes on, LiveKit closes the stream."""
        while self._is_early:  # noqa: ASYNC110 - LiveKit has no event for it
            await asyncio.sleep(CERTAIN_EVERY_S)
        await context.commit()

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        request_id = utils.shortuuid("turn_")
        with api_errors():
            session = await _begin(self, self._speech, output_emitter, request_id, streamed=True)
            opening = await self._first_text()
            if opening is None:
                return
            is_draft = self._is_early
            context = session.speak(context_id=request_id, draft=is_draft, **self._opening)
            output_emitter.start_segment(segment_id=request_id)
            tasks = [asyncio.create_task(self._send(context, opening), name="realtime_tts.send")]
            if is_draft:
                tasks.append(asyncio.create_task(self._commit(context), name="realtime_tts.commit"))
            for task in tasks:
                task.add_done_callback(lambda task: _stop_if_failed(task, context))
            try:
                await _forward(context, output_emitter, self._speech._audio.frame_samples)
                failed = [task for task in tasks if task.done() and task.exception() is not None]
                if context.done is None and not failed:
                    raise APIConnectionError("the server ended the turn before it was spoken")
                for task in failed or tasks:
                    await task
            finally:
                if context.done is None:
                    context.cancel_nowait()  # sent before anything else is awaited
                await utils.aio.cancel_and_wait(*tasks)

    async def _first_text(self) -> str | None:
        """Return the turn's first text up to its first non-blank piece; None if the turn is blank."""
        opening = ""
        async for item in self._input_ch:
            if isinstance(item, str):
                opening += item
                if not opening.isspace():
                    return opening
        return None

    async def _send(self, context: Context, opening: str) -> None:
        self._mark_started()
        await context.send(opening)
        async for item in self._input_ch:
            if isinstance(item, str):
                await context.send(item)
            elif not (self._input_ch.closed and self._input_ch.empty()):  # the last flush comes with the end
                await context.flush()
        await context.end()


class ChunkedStream(tts.ChunkedStream):
    """Stream of a complete text, as fast as the server generates it."""

    def __init__(self, *, tts: TTS, input_text: str, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=tts, input_text=input_text, conn_options=conn_options)
        self._speech: TTS = tts
        self._opening = tts._opening

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        request_id = utils.shortuuid("text_")
        with api_errors():
            session = await _begin(self, self._speech, output_emitter, request_id, streamed=False)
            context = session.speak(self._input_text, context_id=request_id, playback="consumed", **self._opening)
            try:
                await _forward(context, output_emitter, self._speech._audio.frame_samples)
                if context.done is None:
                    raise APIConnectionError("the server ended the text before it was spoken")
            finally:
                if context.done is None:
                    context.cancel_nowait()


async def _begin(
    stream: tts.SynthesizeStream | tts.ChunkedStream,
    speech: TTS,
    emitter: tts.AudioEmitter,
    request_id: str,
    *,
    streamed: bool,
) -> Session:
    """Start the output and return the session; for the metrics, store the seconds that it took to get it."""
    emitter.initialize(
        request_id=request_id,
        sample_rate=speech.sample_rate,
        num_channels=NUM_CHANNELS,
        mime_type="audio/pcm",
        frame_size_ms=FRAME_MS,
        stream=streamed,
    )
    stream._connection_reused = speech._shared.is_open
    began = time.perf_counter()
    session = await speech._shared.get(stream._conn_options.timeout)
    stream._acquire_time = 0.0 if stream._connection_reused else time.perf_counter() - began
    return session


def _stop_if_failed(task: asyncio.Task[None], context: Context) -> None:
    """Cancel the speech if its text cannot be sent or committed; the stream then raises the cause."""
    if not task.cancelled() and task.exception() is not None:
        context.cancel_nowait()


async def _forward(context: Context, emitter: tts.AudioEmitter, silence_samples: int) -> None:
    """Forward a context's words and audio, each word before its audio; silence if no text can be spoken."""
    transcript = Transcript()
    has_audio = False
    async for packet in context:
        if packet.words:
            emitter.push_timed_transcript(transcript.pieces(packet.words, context.text))
        emitter.push(packet.payload)
        has_audio = True
    # Words that were reported after their audio was sent.
    emitter.push_timed_transcript(transcript.pieces(context.words, context.text))
    if (rest := transcript.rest(context.text)) is not None:
        emitter.push_timed_transcript(rest)
    if context.done is not None and not has_audio:
        # LiveKit treats speech without a sample as a failure and would request it again and again.
        logger.debug("nothing in the text can be spoken", extra={"skipped": context.skipped})
        emitter.push(bytes(2 * silence_samples))
