"""Speaks one context: its segments go to the engine, their audio comes back in order, packets go to the session."""

from __future__ import annotations

import asyncio
import collections
from typing import Protocol

from realtime_tts.audio.packetizer import Packet
from realtime_tts.errors import InternalError, RealtimeTTSError, error_from_code
from realtime_tts.session.planning import Segment
from realtime_tts.session.settings import ContextSettings
from realtime_tts.speech.encoding import ContextEncoder, Encoders
from realtime_tts.workers import frames
from realtime_tts.workers.client import EngineClient, RequestStream
from realtime_tts.workers.policy import ZERO_SHOT_VOICE

# The engine holds the segment that it speaks and the next one, which is enough to join them without a gap. A long
# text handed over whole would stand in its queue and look like load.
MAX_SUBMITTED = 2
# A listener so far behind that no more audio is wanted, whatever lead the engine allows itself.
NOTHING_PLAYED_MS = -1e9


class SpeechListener(Protocol):
    """Who gets the audio; called on the event loop."""

    def speech_packets(
        self, context_id: str, packets: list[Packet], segment_index: int, audio_ms: float, done: bool
    ) -> None: ...

    def speech_finished(self, context_id: str, packets: list[Packet]) -> None: ...

    def speech_failed(self, context_id: str, error: RealtimeTTSError) -> None: ...


class ContextSpeech:
    """One context at the engine. `cancel` or `close` must be called at its end; both are immediate.

    Args:
        engine_context_id: unique among all sessions of the gateway.
    """

    def __init__(
        self,
        context_id: str,
        engine_context_id: str,
        settings: ContextSettings,
        engine: EngineClient,
        encoders: Encoders,
        listener: SpeechListener,
        tenant: str = "",
    ) -> None:
        if engine.ready is None:
            raise AssertionError("sessions are only let in once a worker has been ready")
        self._context_id, self._engine_context_id = context_id, engine_context_id
        self._settings, self._tenant = settings, tenant
        self._engine, self._listener = engine, listener
        self._sample_rate_hz = engine.ready.sample_rate
        self._encoder = ContextEncoder(encoders, self._sample_rate_hz, settings.audio)
        self._waiting: collections.deque[tuple[Segment, int]] = collections.deque()
        self._submitted: collections.deque[tuple[Segment, RequestStream]] = collections.deque()
        self._changed = asyncio.Event()
        self._ended = False
        self._task = asyncio.get_running_loop().create_task(self._speak(), name=f"speak {engine_context_id}")

    def add(self, segment: Segment, priority: int) -> None:
        """Speak a segment after those added before.

        Raises:
            EngineLost, Draining: the engine takes no request now.
        """
        self._waiting.append((segment, priority))
        self._submit()

    @property
    def is_busy(self) -> bool:
        """Whether the engine has a segment of it."""
        return bool(self._submitted)

    def end(self) -> None:
        """No segment follows."""
        self._ended = True
        self._changed.set()

    def playback(self, played_ms: float, paused: bool) -> None:
        self._engine.playback(self._engine_context_id, played_ms, paused)

    def park(self) -> None:
        """Stop generating at once, since nobody listens, but keep what is needed to go on. `playback` ends it."""
        self._engine.playback(self._engine_context_id, NOTHING_PLAYED_MS, paused=True)

    def set_priority(self, priority: int) -> None:
        self._engine.set_priority(self._engine_context_id, priority)

    def close(self) -> asyncio.Task[None]:
        """Stop whatever still runs and forget the context at the engine. Returns the task that is ending."""
        self._waiting.clear()
        self._encoder.close()
        self._engine.close_context(self._engine_context_id)
        self._task.cancel()
        return self._task

    def _submit(self) -> None:
        while self._waiting and len(self._submitted) < MAX_SUBMITTED:
            segment, priority = self._waiting[0]
            stream = self._engine.submit(self._request(segment, priority))
            self._submitted.append((segment, stream))
            self._waiting.popleft()
        self._changed.set()

    def _request(self, segment: Segment, priority: int) -> frames.Generate:
        return frames.Generate(
            request_id=f"{self._engine_context_id}/{segment.index}",
            context_id=self._engine_context_id,
            text=segment.text,
            voice=None if self._settings.voice == ZERO_SHOT_VOICE else self._settings.voice,
            seed=self._settings.seed,
            segment=segment.index,
            instructions=self._settings.instructions,
            cfg=self._settings.cfg,
            steps=self._settings.steps,
            tenant=self._tenant,
            priority=priority,
        )

    async def _speak(self) -> None:
        try:
            while (entry := await self._next()) is not None:
                await self._speak_segment(*entry)
                self._submitted.popleft()
                self._submit()
            self._listener.speech_finished(self._context_id, await self._encoder.finish())
        except RealtimeTTSError as error:
            self._listener.speech_failed(self._context_id, error)
        except Exception as error:
            failure = InternalError("speaking failed")
            failure.__cause__ = error
            self._listener.speech_failed(self._context_id, failure)

    async def _next(self) -> tuple[Segment, RequestStream] | None:
        """The segment to read now; None when the last one has been read."""
        while not self._submitted:
            if self._ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._submitted[0]

    async def _speak_segment(self, segment: Segment, stream: RequestStream) -> None:
        num_samples = 0
        async for message in stream:
            if isinstance(message, frames.Audio):
                for pcm in self._encoder.slices(message.payload):
                    packets = await self._encoder.push(pcm)
                    num_samples += len(pcm) // 2
                    self._progress(segment, packets, num_samples, done=False)
            elif isinstance(message, frames.Failed):
                raise error_from_code(message.code, message.message)
        self._progress(segment, [], num_samples, done=True)

    def _progress(self, segment: Segment, packets: list[Packet], num_samples: int, done: bool) -> None:
        audio_ms = 1000 * num_samples / self._sample_rate_hz
        self._listener.speech_packets(self._context_id, packets, segment.index, audio_ms, done)
