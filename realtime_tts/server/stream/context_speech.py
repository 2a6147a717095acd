"""Encoding of PCM to packets, and the task that connects a speaker to its session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from realtime_tts.audio.codecs import PLAIN_CODECS, AudioFormat
from realtime_tts.audio.pipeline import AudioPipeline
from realtime_tts.errors import InternalError, RealtimeTTSError
from realtime_tts.speech.encoders import Encoders
from realtime_tts.speech.speaker import Piece, Speaker

if TYPE_CHECKING:
    from realtime_tts.server.stream.live_session import LiveSession

T = TypeVar("T")

# The first chunk of a context is encoded in slices, so that its first packet leaves before its last is encoded.
FIRST_SLICE_MS = 40


class ContextSpeech:
    """Task that encodes one context's speech and sends it to its session. `close` must be called at the end; it
    returns at once.

    The codec is set up at once, in a thread: it takes milliseconds, which pass while the engine makes the first patch.

    Args:
        speaker: of s16le; closed with this.
    """

    def __init__(
        self, context_id: str, speaker: Speaker, encoders: Encoders, fmt: AudioFormat, live: LiveSession
    ) -> None:
        self.speaker = speaker
        self._context_id, self._live = context_id, live
        self._encoders, self._format = encoders, fmt
        self._is_first = True
        self._pipeline: asyncio.Future[AudioPipeline] | None = encoders.run(
            lambda: AudioPipeline(speaker.sample_rate_hz, fmt)
        )
        self._task: asyncio.Task[None] | None
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"speak {context_id}")

    def close(self) -> None:
        """Stop sending to the session, and free the codec's memory at once, even if this object is still referenced."""
        self.speaker.close()
        # A cancelled task holds its frames, and these hold us: memory would wait for a collection of garbage.
        task, self._task = self._task, None
        pipeline, self._pipeline = self._pipeline, None
        if task is not None and pipeline is not None:
            pipeline.cancel()
            task.cancel()  # the loop refers to it until it has ended

    async def _run(self) -> None:
        try:
            async for piece in self.speaker:
                await self._send(piece)
            self._live.speech_finished(self._context_id, await self._encode(AudioPipeline.finish))
        except RealtimeTTSError as error:
            self._live.speech_failed(self._context_id, error)
        except Exception as error:
            failure = InternalError("speaking failed")
            failure.__cause__ = error
            self._live.speech_failed(self._context_id, failure)

    async def _send(self, piece: Piece) -> None:
        if piece.done:
            self._live.speech_packets(self._context_id, None, piece)
            return
        for part in self._slices(piece):
            packets = await self._encode(partial(AudioPipeline.push, pcm_s16le=part.pcm))
            self._live.speech_packets(self._context_id, packets, part)

    def _slices(self, piece: Piece) -> list[Piece]:
        """Return the parts in which to encode a piece: many for the first one, one for each later one."""
        if not self._is_first:
            return [piece]
        self._is_first = False
        rate_hz, size = self.speaker.sample_rate_hz, len(piece.pcm)
        step = 2 * (rate_hz * FIRST_SLICE_MS // 1000)
        slices = ((piece.pcm[start : start + step], max(0, size - start - step)) for start in range(0, size, step))
        return [piece._replace(pcm=pcm, audio_ms=piece.audio_ms - 500 * left / rate_hz) for pcm, left in slices]

    async def _encode(self, job: Callable[[AudioPipeline], T]) -> T:
        """Return the result of a job of the codec."""
        if self._pipeline is None:  # closed: this caller is being cancelled, its cancellation arrives later
            raise asyncio.CancelledError("the encoder is closed")
        pipeline = await self._pipeline
        if self._format.codec in PLAIN_CODECS:  # PCM and mu-law cost less than the way to a thread and back
            return job(pipeline)
        can_wait = self._live.is_ahead(self._context_id)
        return await self._encoders.run(partial(job, pipeline), can_wait=can_wait)
