"""Encoding of PCM to packets, and the task that connects a speaker to its listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

from realtime_tts.audio import pipeline
from realtime_tts.audio.codecs import BYTES_PER_SAMPLE, AudioFormat
from realtime_tts.audio.packets import Packets
from realtime_tts.errors import InternalError, RealtimeTTSError
from realtime_tts.speech.encoders import Encoders
from realtime_tts.speech.speaker import Piece, Speaker

T = TypeVar("T")

# The first chunk of a context is encoded in slices, so that its first packet leaves before its last is encoded.
FIRST_SLICE_MS = 40


class ContextEncoder:
    """Encoder of one context's PCM to packets. One call at a time.

    The codec is set up at once, in a thread: it takes milliseconds, which pass while the engine makes the first patch.

    Args:
        input_rate_hz: of the s16le mono PCM.
    """

    def __init__(self, encoders: Encoders, input_rate_hz: int, fmt: AudioFormat) -> None:
        self._encoders, self._input_rate_hz, self._format = encoders, input_rate_hz, fmt
        self._is_first = True
        self._pipeline: asyncio.Future[pipeline.AudioPipeline] | None = encoders.run(
            lambda: pipeline.AudioPipeline(input_rate_hz, fmt)
        )

    async def push(self, pcm: bytes, *, can_wait: bool = False) -> Packets:
        """Encode PCM and return the full packets. `can_wait`: see `Encoders.run`."""
        ready = await self._ready()
        return await self._run(lambda: ready.push(pcm), can_wait)

    async def finish(self) -> list[Packets]:
        return await self._run((await self._ready()).finish)

    def close(self) -> None:
        """Cancel later calls and free the codec's memory at once, even if this object is still referenced."""
        if self._pipeline is not None:
            self._pipeline.cancel()
            self._pipeline = None

    async def _ready(self) -> pipeline.AudioPipeline:
        if self._pipeline is None:  # closed: this caller is being cancelled, its cancellation arrives later
            raise asyncio.CancelledError("the encoder is closed")
        return await self._pipeline

    def slices(self, pcm: bytes) -> list[bytes]:
        """Return the pieces in which to push a chunk: many for the first chunk, one for each later one."""
        if not self._is_first:
            return [pcm]
        self._is_first = False
        num_bytes = 2 * (self._input_rate_hz * FIRST_SLICE_MS // 1000)
        return [pcm[start : start + num_bytes] for start in range(0, len(pcm), num_bytes)]

    async def _run(self, job: Callable[[], T], can_wait: bool = False) -> T:
        # PCM and mu-law cost less than the way to a thread and back.
        if self._format.codec in BYTES_PER_SAMPLE:
            return job()
        return await self._encoders.run(job, can_wait=can_wait)


class SpeechListener(Protocol):
    """Receiver of the packets; called on the event loop."""

    def is_ahead(self, context_id: str) -> bool:
        """Return True if packets may come some 10 ms later without an audible effect."""
        ...

    def speech_packets(self, context_id: str, packets: Packets | None, piece: Piece) -> None:
        """Take packets of a piece, which has `piece.audio_ms` at their end; None at a segment's end."""
        ...

    def speech_finished(self, context_id: str, packets: list[Packets]) -> None: ...

    def speech_failed(self, context_id: str, error: RealtimeTTSError) -> None: ...


class ContextSpeech:
    """Task that sends one context's speech from its speaker to its listener. `close` must be called at the end; it
    returns at once.

    Args:
        speaker: of s16le; closed with this.
    """

    def __init__(
        self, context_id: str, speaker: Speaker, encoders: Encoders, fmt: AudioFormat, listener: SpeechListener
    ) -> None:
        self.speaker = speaker
        self._context_id, self._listener = context_id, listener
        self._encoder = ContextEncoder(encoders, speaker.sample_rate_hz, fmt)
        self._task: asyncio.Task[None] | None
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"speak {context_id}")

    def close(self) -> asyncio.Task[None] | None:
        """Stop sending to the listener. Return the task that is ending, the first time."""
        self.speaker.close()
        self._encoder.close()
        # A cancelled task holds its frames, and these hold us: memory would wait for a collection of garbage.
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        return task

    async def _run(self) -> None:
        try:
            async for piece in self.speaker:
                await self._encode(piece)
            self._listener.speech_finished(self._context_id, await self._encoder.finish())
        except RealtimeTTSError as error:
            self._listener.speech_failed(self._context_id, error)
        except Exception as error:
            failure = InternalError("speaking failed")
            failure.__cause__ = error
            self._listener.speech_failed(self._context_id, failure)

    async def _encode(self, piece: Piece) -> None:
        if piece.done:
            self._listener.speech_packets(self._context_id, None, piece)
            return
        num_left = len(piece.pcm) // 2
        for pcm in self._encoder.slices(piece.pcm):
            packets = await self._encoder.push(pcm, can_wait=self._listener.is_ahead(self._context_id))
            num_left -= len(pcm) // 2
            audio_ms = piece.audio_ms - 1000 * num_left / self.speaker.sample_rate_hz
            self._listener.speech_packets(self._context_id, packets, replace(piece, audio_ms=audio_ms))
