"""One session: the core's orders carried out, with the language model, the recogniser and the speech."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from hold_policy import EAGER_MS
from realtime_tts_client import AudioFormat, Context, Packet, RealtimeTTSError, Session
from realtime_tts_client.decoding import FloatSamples

from realtime_server.core import JUDGE_AFTER_MS, BargeIn, Core
from realtime_server.ear import RATE_HZ, TRACK, Ear, IsSpeech, Samples
from realtime_server.early import EarlyAnswer, open_context
from realtime_server.events import PCM
from realtime_server.models import Call, End, LanguageModel, Recogniser
from realtime_server.orders import BeginEarly, Generate, Judge, Order, Transcribe

logger = logging.getLogger("realtime_server")

# How far the audio sent is ahead of the listener: what is sent is heard even if the speech is held.
LEAD_MS: dict[BargeIn, float] = {"hold": 400.0, "now": 2_000.0}


def new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:20]}"


@dataclass(frozen=True)
class Parts:
    """Parts that the sessions share.

    Attributes:
        silero: makes a detector of speech. is_over: says whether a turn is over, None without a model for it.
        trace: takes a line for each answer, with the time of each stage.
        eager_ms: quiet after which an answer is begun, though the turn may go on; 0: never.
    """

    model: LanguageModel
    recogniser: Recogniser
    silero: Callable[[], IsSpeech]
    is_over: Callable[[Samples], bool] | None = None
    instructions: str = ""
    voice: str | None = None
    barge_in: BargeIn = "hold"
    trace: Callable[[str], None] | None = None
    eager_ms: float = EAGER_MS


STAGES = ("speech end", "detected", "transcript", "model", "token", "audio")
OWN = ("model", "audio")  # stages that end here and are neither VAD, recogniser nor language model


@dataclass
class Stages:
    """Ends of one turn's stages, s. `vad_ms`: quiet after which a turn is over."""

    vad_ms: float = 0.0
    at: dict[str, float] = field(default_factory=dict)

    def mark(self, stage: str) -> bool:
        """Record the first time of a stage. Return whether this is it."""
        is_first = stage not in self.at
        self.at.setdefault(stage, time.monotonic())
        return is_first

    @property
    def durations_ms(self) -> dict[str, float]:
        known = [stage for stage in STAGES if stage in self.at]
        return {end: (self.at[end] - self.at[begin]) * 1000 for begin, end in itertools.pairwise(known)}

    @property
    def own_ms(self) -> float:
        """Time that is neither the wait for quiet, recogniser nor language model."""
        spent = self.durations_ms
        late_ms = max(0.0, spent["detected"] - self.vad_ms) if "detected" in spent else 0.0
        return late_ms + sum(spent.get(stage, 0.0) for stage in OWN)

    def __str__(self) -> str:
        spent = self.durations_ms
        parts = ", ".join(f"{stage} +{ms:.0f}" for stage, ms in spent.items())
        return f"to first audio {sum(spent.values()):.0f} ms: {parts}; of this the server's own {self.own_ms:.0f} ms"


class Connection(ABC):
    """Session with one client; the line that carries its events is a subclass.

    Args:
        speech: session of the Python client, entered, with the playback `consumed`.
    """

    has_track = False

    def __init__(self, parts: Parts, speech: Session, model: str) -> None:
        self._parts, self._speech = parts, speech
        self._ear = Ear(parts.silero(), TRACK if self.has_track else PCM)
        self.core = Core(
            self._ear,
            new_id,
            model=model,
            instructions=parts.instructions,
            voice=parts.voice,
            barge_in=parts.barge_in,
            has_track=self.has_track,
            judges=parts.is_over is not None,
            eager_ms=parts.eager_ms,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._answer: asyncio.Task[None] | None = None
        self._early: EarlyAnswer | None = None  # the latest, though it may be discarded or taken
        self._context: Context | None = None
        self._held_ms: float | None = None  # position in the speech at which it is held
        self._released = asyncio.Event()
        self._loud_at: float | None = None  # when the user's last sound came
        self._sending = asyncio.Lock()
        self._stages = Stages()
        self.lead_ms = LEAD_MS[parts.barge_in]

    # ---- methods of the line -------------------------------------------------------------------------------------

    @abstractmethod
    async def _send(self, text: str) -> None:
        """Send an event. Raises ConnectionError: the client has gone."""

    def _play(self, packet: Packet) -> bytes | None:
        """Take a packet. Return its payload if it goes to the client in an event."""
        return packet.payload

    def _stop_playing(self) -> None:  # noqa: B027 - a line that keeps no audio has nothing to do
        """Discard audio that was taken and not played."""

    # ---- what arrives --------------------------------------------------------------------------------------------

    async def receive(self, raw: str | bytes) -> None:
        """Process a client's message, and answer it."""
        self._obey()
        for _ in self.core.receive(raw, time.monotonic()):
            self._after_audio()
            await asyncio.sleep(0)  # other sessions run between two seconds of audio
        self._obey()
        await self.flush()

    async def hear(self, samples: FloatSamples) -> None:
        """Process audio of a media track."""
        self.core.hear(samples, time.monotonic())
        self._after_audio()
        await self.flush()

    def _after_audio(self) -> None:
        if self._ear.activity.loud_ms and not self._ear.activity.quiet_ms:
            self._loud_at = time.monotonic()
        self._obey()

    def _obey(self) -> None:
        """Carry out the core's orders."""
        orders, self.core.orders = self.core.orders, []
        for order in orders:
            if isinstance(order, BeginEarly):
                self._begin_early(order)
            elif order == "discard":
                self._discard_early()
            elif isinstance(order, Transcribe):
                self._begin_stages()
                self._run(self._transcribe, order)
            elif isinstance(order, Generate):
                self._stages.mark("model")
                self._begin_answer(order)
            elif isinstance(order, Judge):
                self._run(self._judge, order)
            elif order == "hold":
                self._held_ms = self.core.word_end_ms()
                self._released.clear()
            else:
                self._held_ms = None
                self._released.set()
                if order == "stop":
                    self._stop()

    def _begin_stages(self) -> None:
        detection = self.core.session["audio"]["input"]["turn_detection"]
        self._stages = Stages()
        if detection is not None and self._loud_at is not None:
            self._stages.vad_ms = detection.get("silence_duration_ms", JUDGE_AFTER_MS)
            self._stages.at["speech end"] = self._loud_at
        self._stages.mark("detected")

    def _begin_early(self, order: BeginEarly) -> None:
        """Begin an answer, unless the recogniser still works for an earlier pause: a client can make any number."""
        if self._early is None or self._early.transcript.done():
            self._discard_early()
            recognising = self._parts.recogniser.recognise(order.samples, order.language)
            self._early = EarlyAnswer(order.item_id, recognising, self.core, self._parts.model, self._speech)

    def _discard_early(self) -> None:
        if self._early is not None:
            self._early.discard()

    def _begin_answer(self, order: Generate) -> None:
        early = self._early
        if early is None or not early.take(order):
            self._discard_early()
            self._answer = self._run(lambda order: self._respond(order, None), order)
        else:
            self._answer = self._run(lambda order: self._respond(order, early), order)
            self._answer.add_done_callback(lambda _: early.discard())

    def _stop(self) -> None:
        """Stop writing and speaking."""
        self._discard_early()
        if self._answer is not None:
            self._answer.cancel()
            self._answer = None
        if self._context is not None:
            self._context.cancel_nowait()
            self._context = None
        self._stop_playing()

    async def flush(self) -> None:
        """Send the events that wait, in order."""
        async with self._sending:
            while self.core.events:
                events, self.core.events = self.core.events, []
                for event in events:
                    await self._send(json.dumps(event))

    def _run(self, work: Callable[[Any], Awaitable[None]], order: Order) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._guarded(work, order))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Callable[[Any], Awaitable[None]], order: Order) -> None:
        with contextlib.suppress(ConnectionError):  # the line notices that the client has gone
            await work(order)
            self._obey()
            await self.flush()

    async def close(self) -> None:
        self._stop()
        tasks = [*self._tasks, *(self._early.tasks if self._early is not None else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- orders --------------------------------------------------------------------------------------------------

    async def _transcribe(self, order: Transcribe) -> None:
        try:
            if self._early is not None and self._early.item_id == order.item_id:
                text = await self._early.transcript
            else:
                text = await self._parts.recogniser.recognise(order.samples, order.language)
        except Exception as error:  # the recogniser's client raises many kinds
            logger.warning("the recogniser failed: %r", error)
            self.core.not_transcribed(order.item_id, f"the recogniser failed: {error}")
        else:
            self._stages.mark("transcript")
            self.core.transcribed(order.item_id, text, len(order.samples) / RATE_HZ)

    async def _judge(self, order: Judge) -> None:
        assert self._parts.is_over is not None
        is_over = await asyncio.to_thread(self._parts.is_over, order.samples)
        self.core.judged(order.pause, is_over)

    async def _respond(self, order: Generate, early: EarlyAnswer | None) -> None:
        try:
            if order.audio is None:
                await self._write(order, early)
            else:
                await self._write_and_speak(order, order.audio, early)
        except RealtimeTTSError as error:
            self._fail(error.code, error.message)
        except ConnectionError:
            raise
        except Exception as error:  # the model's client raises many kinds
            logger.warning("the language model failed: %r", error)
            self._fail("model_failed", f"the language model failed: {error}")

    def _fail(self, code: str, message: str) -> None:
        """Report that the answer of this task has failed; if it was stopped, its response is over."""
        if self._answer is asyncio.current_task():
            self.core.fail(code, message)

    async def _write(self, order: Generate, early: EarlyAnswer | None) -> None:
        """Let the model write, without speech."""
        has_text, end = False, End((0, 0))
        async for piece in self._pieces(order, early):
            if isinstance(piece, End):
                end = piece
            else:
                if not has_text:
                    self.core.begin_message(None)
                has_text = True
                self.core.wrote(piece)
            await self.flush()
        self.core.written()
        self.core.finish(end.usage, end.is_cut_short)

    async def _write_and_speak(self, order: Generate, audio: AudioFormat, early: EarlyAnswer | None) -> None:
        context: Context | None = None
        speaking: asyncio.Task[None] | None = None
        end = End((0, 0))
        try:
            async for piece in self._pieces(order, early):
                if isinstance(piece, End):
                    end = piece
                else:
                    is_first = context is None
                    if context is None:
                        context = self._context = (early and early.draft) or open_context(self._speech, order)
                        self.core.begin_message(context)
                        speaking = asyncio.get_running_loop().create_task(self._speak(context, self._stages))
                    if is_first and early is not None and early.draft is not None:
                        await early.commit()  # it has the piece
                    else:
                        await context.send(piece)
                await self.flush()
            self.core.written()
            await self.flush()
            if context is not None and speaking is not None:
                await context.end()
                await speaking
            left_ms = self.core.ahead_ms(time.monotonic()) if speaking is not None else 0.0
            self.core.finish(end.usage, end.is_cut_short)
            if self.has_track and speaking is not None:
                await self.flush()
                await asyncio.sleep(left_ms / 1000)
                self.core.played_out(order.response_id)
        finally:
            if self._context is context:
                self._context = None
            if speaking is not None:
                speaking.cancel()
            if context is not None and context.done is None:
                context.cancel_nowait()

    async def _pieces(self, order: Generate, early: EarlyAnswer | None) -> AsyncIterator[str | End]:
        """Yield the model's text and end; report its calls."""
        stages = self._stages
        source = self._parts.model.write(order.messages, order.options) if early is None else early.pieces()
        async with contextlib.aclosing(source) as pieces:
            async for piece in pieces:
                stages.mark("token")
                if isinstance(piece, Call):
                    self.core.called(piece.index, piece.call_id, piece.name, piece.arguments)
                    await self.flush()
                else:
                    yield piece

    async def _speak(self, context: Context, stages: Stages) -> None:
        """Take packets at the pace of playback, and stop at the end of a word while the speech is held."""
        async for packet in context:
            while self._held_ms is not None and packet.start_ms >= self._held_ms - 0.01:
                await self._released.wait()
            if (ahead_ms := self.core.ahead_ms(time.monotonic()) - self.lead_ms) > 0:
                await asyncio.sleep(ahead_ms / 1000)
            if self._context is not context:
                return  # it was stopped
            self.core.spoke(self._play(packet), packet.duration_ms, time.monotonic())
            if stages.mark("audio") and self._parts.trace is not None:
                self._parts.trace(str(stages))
            await self.flush()
