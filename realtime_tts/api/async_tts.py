"""The Python API for asyncio; `api` has the blocking one.

The model runs in a worker process per device, as it does behind the server; chunks are float32 arrays in −1…1, handed
out as they are made.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.errors import EngineStartError, InvalidRequest
from realtime_tts.session.settings import ContextSettings
from realtime_tts.speech.recordings import RecordingLike, VoiceRecordings
from realtime_tts.speech.speaker import Speaker
from realtime_tts.speech.text_source import TextLike, speak_text
from realtime_tts.speech.voices import VoiceRegistry
from realtime_tts.text.planner import PlannerFactory
from realtime_tts.workers import frames
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.policy import ZERO_SHOT_VOICE, ServingPolicy
from realtime_tts.workers.supervisor import WorkerSpec, worker_command

Chunk = np.ndarray[Any, np.dtype[np.float32]]
_SEGMENTS_AHEAD = 8  # at the engine: nobody else waits for it, and a reader may be slow
_STALL_FLUSH_S = 1.0


class AsyncTTS:
    """A loaded model. ``async with AsyncTTS() as tts: async for chunk in tts.generate("Hello"): …``

    Args:
        model: a checkpoint directory, a hub id such as ``openbmb/VoxCPM2``, or ``starter-voice``, which is included.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` …, or several of them, each with a worker of its own.
        dtype, threads, max_streams, num_blocks: None lets the worker choose.
        language: in which numbers, dates and the like are read.
        workers: start these instead (tests, other machines' launchers).
    """

    def __init__(
        self,
        model: str = "starter-voice",
        device: str | Sequence[str] = "auto",
        *,
        dtype: str | None = None,
        threads: int | None = None,
        max_streams: int | None = None,
        num_blocks: int | None = None,
        language: str = "en",
        workers: Sequence[WorkerSpec] | None = None,
    ) -> None:
        if workers is None:
            command = functools.partial(
                worker_command, str(model), dtype=dtype, threads=threads, max_streams=max_streams, num_blocks=num_blocks
            )
            devices = [device] if isinstance(device, str) else device
            workers = [WorkerSpec(command(name), name) for name in devices]
        self._client = EngineClient(workers)
        self._voices = VoiceRegistry(self._client)
        self._language = language

    async def start(self) -> None:
        """Load the model; returns when it is warm. Called by ``async with``.

        Raises:
            CheckpointError, ConfigError, EngineStartError: it cannot be loaded.
        """
        await self._client.start()

    async def close(self) -> None:
        """End the workers; running generations end with EngineLost. Idempotent."""
        await self._client.close()

    async def __aenter__(self) -> AsyncTTS:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    @property
    def sample_rate(self) -> int:
        """Of the chunks, Hz."""
        return self._ready.sample_rate

    @property
    def device(self) -> str:
        """Where and how the model runs, for a person: ``cpu, float32, attention sdpa, up to 16 streams``."""
        ready = self._ready
        return f"{ready.device}, {ready.dtype}, attention {ready.backend}, up to {ready.max_streams} streams"

    @property
    def voices(self) -> list[str]:
        """Names for `generate`'s `voice`, those added included; ``zero-shot`` is always one."""
        return self._voices.names()

    @property
    def _ready(self) -> frames.Ready:
        if self._client.ready is None:
            raise EngineStartError("the model is not loaded; use `async with` or call start()")
        return self._client.ready

    async def add_voice(
        self,
        name: str,
        *,
        reference_audio: RecordingLike | None = None,
        prompt_audio: RecordingLike | None = None,
        prompt_text: str | None = None,
    ) -> None:
        """Keep a voice under a name until `remove_voice`; see `generate` for the recordings.

        Raises:
            VoiceExists: the name is taken. AudioDecodeError, InvalidRequest: the recordings cannot be used.
        """
        await self._voices.add(name, VoiceRecordings(reference_audio, prompt_audio, prompt_text))

    def remove_voice(self, name: str) -> None:
        """Forget an added voice."""
        self._voices.remove(name)

    async def generate(
        self,
        text: TextLike,
        *,
        voice: str | None = None,
        reference_audio: RecordingLike | None = None,
        prompt_audio: RecordingLike | None = None,
        prompt_text: str | None = None,
        seed: int = 0,
        instructions: str | None = None,
        cfg: float | None = None,
        steps: int | None = None,
        max_length_s: float | None = None,
    ) -> AsyncIterator[Chunk]:
        """Speak a text, or a stream of pieces of one (an LLM's deltas) while it is being written.

        Leaving the iteration (break, aclose, cancelling the task) cancels at once.

        Args:
            voice: a name of `voices`; None is the model's default, ``zero-shot`` one that the model makes up.
            reference_audio: speak like this recording: a path, or (samples, rate in Hz).
            prompt_audio, prompt_text: continue from this recording of this text.
            seed: the same seed, text and voice give the same samples, to float rounding.
            instructions: voice design, how to speak in words ("an old man, slow and warm"); VoxCPM2 only.
            cfg, steps: guidance and flow steps; None is the checkpoint's choice.
            max_length_s: stop after so much audio.

        Raises:
            InvalidRequest, EngineError and others of `realtime_tts.errors`.
        """
        context_id = uuid.uuid4().hex
        default_voice = self._ready.default_voice or ZERO_SHOT_VOICE
        recordings = VoiceRecordings(reference_audio, prompt_audio, prompt_text)
        if not recordings.is_empty and voice is not None:
            raise InvalidRequest("give a voice or recordings, not both", field="voice")
        speaker = None
        feeder = None
        lent = contextlib.AsyncExitStack()
        try:
            if recordings.is_empty:
                voice = self._voices.engine_id(voice or default_voice)
            else:
                voice = await lent.enter_async_context(self._voices.lend(recordings))
            # No packets are made, so any format will do. A frame carries 64 bits of a seed, noise takes no more anyway.
            settings = ContextSettings(voice, AudioFormat(), seed % 2**64, cfg, steps, self._language, instructions)
            speaker = Speaker(
                self._client,
                context_id,
                settings,
                encoding="f32le",
                paced=False,
                max_submitted=_SEGMENTS_AHEAD,
                max_length_s=max_length_s,
            )
            feeder = asyncio.ensure_future(speak_text(text, self._planners.make(self._language), speaker))
            async for piece in speaker:
                if piece.pcm:
                    yield np.frombuffer(piece.pcm, dtype="<f4")
        finally:
            if feeder is not None:
                feeder.cancel()
                await asyncio.gather(feeder, return_exceptions=True)
            if speaker is not None:
                speaker.close()
            await lent.aclose()

    @functools.cached_property
    def _planners(self) -> PlannerFactory:
        policy = ServingPolicy.from_map(self._ready.policy)
        return PlannerFactory(policy.charset, policy.max_segment_chars, _STALL_FLUSH_S)
