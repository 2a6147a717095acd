"""Python API for asyncio; `api` has the blocking one.

The model runs in a worker process per device, as it does behind the server; chunks are float32 arrays in −1…1, handed
out as they are made.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import math
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from realtime_tts.api.request import SpeechArguments, taking
from realtime_tts.api.timed import Chunk, TimedChunk, samples_of, with_words
from realtime_tts.contract import frames
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.contract.policy import ServingPolicy
from realtime_tts.errors import ConfigError, Draining, EngineClosed, EngineLost, EngineStartError, InvalidRequest
from realtime_tts.session.settings import Choices, ContextSettings
from realtime_tts.speech.adapters import AdapterRegistry
from realtime_tts.speech.defaults import SpeechDefaults, load_reader
from realtime_tts.speech.lexicons import Lexicons
from realtime_tts.speech.recordings import RecordingLike, VoiceRecordings
from realtime_tts.speech.speaker import Piece, Speaker
from realtime_tts.speech.text_source import TextSource, check_whole, speak_text, speaking
from realtime_tts.speech.voices import VoiceLabels, VoiceRegistry
from realtime_tts.text.planner import Planner
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.supervisor import WorkerSpec

_SEGMENTS_AHEAD = 8  # segments at the engine: it serves only this process, and a reader may be slow
_STALL_FLUSH_S = 1.0


class AsyncTTS:
    """A loaded model. ``async with AsyncTTS() as tts: async for chunk in tts.generate("Hello"): …``

    For the event loop in which it was started.

    Args:
        model: a checkpoint directory, a hub id such as ``openbmb/VoxCPM2``, or ``starter-voice``, which is included.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` …, or several of them, each with a worker of its own.
        language: in which numbers, dates and the like are read.
        lexicon: for all speech: words with their respellings, or a file of them, JSON or the W3C's PLS.
        adapters: directories of LoRA adapters, by the names that `generate` takes. docs/guides/adapters.md has more.
        workers: start these instead (tests, other machines' launchers).
        options: other fields of `contract.engine_options.EngineOptions`: ``dtype``, ``threads``, ``max_streams``, …
    """

    def __init__(
        self,
        model: str = "starter-voice",
        device: str | Sequence[str] = "auto",
        *,
        language: str = "en",
        lexicon: Mapping[str, str] | str | Path | None = None,
        adapters: Mapping[str, str | Path] | None = None,
        workers: Sequence[WorkerSpec] | None = None,
        **options: Any,
    ) -> None:
        if workers is None:
            engine = EngineOptions(**{"model": str(model), "max_adapters": len(adapters or ()), **options})
            devices = [device] if isinstance(device, str) else device
            if not devices:
                raise ConfigError("device names none: give auto, cpu, cuda or cuda:N", field="device")
            workers = [
                WorkerSpec(dataclasses.replace(engine, device=name), f"worker-{index}")
                for index, name in enumerate(devices)
            ]
        self._client = EngineClient(workers)
        self._voices = VoiceRegistry(self._client)
        self._adapters, self._adapters_wanted = AdapterRegistry(self._client), dict(adapters or {})
        self._language = language
        self._lexicons = Lexicons(lexicon or "")
        self._speakers: set[Speaker] = set()
        self._loop: asyncio.AbstractEventLoop | None = None  # in which it was started
        self._closed = False

    async def start(self) -> None:
        """Load the model; returns when it is warm. Called by ``async with``.

        Raises:
            CheckpointError, ConfigError, EngineStartError: it cannot be loaded, or an adapter cannot; or it was started
                before.
            EngineClosed: closed before or during the call.
        """
        self._check_open()
        if self._loop is not None:
            raise EngineStartError("the model was loaded before: `async with` calls start()")
        self._loop = asyncio.get_running_loop()
        try:
            with self._while_open():
                await asyncio.gather(self._client.start(), asyncio.to_thread(load_reader))
                await self._adapters.load_all({name: str(path) for name, path in self._adapters_wanted.items()})
        except BaseException:  # `async with` does not exit what it could not enter
            await self.close()
            raise

    async def close(self) -> None:
        """End the workers; running generations end with EngineClosed, as do later calls. Idempotent.

        Raises:
            EngineStartError: it runs in another event loop.
        """
        if self._loop is not None and self._loop.is_closed():  # which has ended the workers
            self._closed = True
            return
        self._check_loop()
        self._closed = True
        for speaker in self._speakers:
            speaker.close()
        await self._client.close()

    async def __aenter__(self) -> AsyncTTS:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    @property
    def sample_rate(self) -> int:
        """Sample rate of the chunks, Hz."""
        return self._ready.sample_rate

    @property
    def device(self) -> str:
        """Device and settings, for people: ``cpu, float32, attention sdpa, up to 9 streams in real time``."""
        return self._client.device_words(self._ready)

    @property
    def word_times(self) -> str:
        """Source of word times, for people: ``measured, by head 4 of layer 4``, or ``estimated``."""
        return str(ServingPolicy.from_map(self._ready.policy).text_head or "estimated")

    @property
    def voices(self) -> list[str]:
        """Names for `generate`'s `voice`, added ones included; ``zero-shot`` is always available."""
        self._check_open()
        return self._voices.names()

    @property
    def _ready(self) -> frames.Ready:
        self._check_open()
        if self._client.ready is None:
            raise EngineStartError("the model is not loaded; use `async with` or call start()")
        return self._client.ready

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosed("this TTS was closed")

    def _check_loop(self) -> None:
        if self._loop not in (None, asyncio.get_running_loop()):
            raise EngineStartError("the model was loaded in another event loop; use one AsyncTTS in each, or TTS")

    @contextlib.contextmanager
    def _while_open(self) -> Iterator[None]:
        """Raise EngineClosed in place of the errors that a `close` causes in the block: speech cut off, a worker
        gone. Raises EngineStartError in another event loop than that of `start`, whose futures would never wake it."""
        self._check_open()
        self._check_loop()
        try:
            yield
        except (EngineLost, Draining):
            self._check_open()
            raise
        self._check_open()

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
        with self._while_open():
            await self._voices.add(VoiceLabels(name), VoiceRecordings(reference_audio, prompt_audio, prompt_text))

    def remove_voice(self, name: str) -> None:
        """Remove an added voice."""
        self._check_open()
        self._voices.remove(name)

    @taking(SpeechArguments)
    async def generate(self, request: SpeechArguments) -> AsyncGenerator[Chunk, None]:
        """Speak a text, or a stream of pieces of one (an LLM's deltas) while it is being written.

        Leaving the iteration (break, aclose, cancelling the task) cancels at once.

        Args:
            text: a string, or an iterable or async iterable of pieces; None and "" among them are skipped.
            voice: a name of `voices`; None is the model's default, ``zero-shot`` one that the model makes up.
            reference_audio: speak like this recording: a path, or (samples, rate in Hz).
            prompt_audio, prompt_text: continue from this recording of this text.
            params: speech parameters by name, such as ``speed=0.9``; `SpeechParams` defines them. A missing one is the
                model's choice. The default seed is 0; the same seed, text and voice give the same samples, to float
                rounding. With ``mode="live"`` they give the same words, said as much of the text was known. A string,
                list or tuple is a whole text and is spoken by clauses.
            max_length_s: stop after this many seconds of audio.
            on_skipped: called with the places in the text (start and end, in characters) that cannot be spoken and are
                left out, as they are found: an emoji, another script. Of `TTS`, in the thread that runs the model.

        Raises (while iterated):
            InvalidRequest, EngineError and others of `realtime_tts.errors`.
            TypeError: the text, or a piece of it, is not text; what else the text's iteration raises.
        """
        async with contextlib.aclosing(self._speak(request)) as pieces:
            async for piece in pieces:
                if not piece.done:
                    yield samples_of(piece)

    @taking(SpeechArguments)
    async def generate_timed(self, request: SpeechArguments) -> AsyncGenerator[TimedChunk, None]:
        """Speak like `generate`, with the times of the words: for subtitles, or to know what was heard at a barge-in.

        A chunk comes one patch later than with `generate`: the last words of a segment are known only at its end.
        """
        async with contextlib.aclosing(self._speak(request)) as pieces:
            async for chunk in with_words(pieces, self.sample_rate, request.params.get("speed", 1.0)):
                yield chunk

    async def _speak(self, request: SpeechArguments) -> AsyncGenerator[Piece, None]:
        with self._while_open():
            source, settings = TextSource(request.text), self._settings(request)
            if source.is_whole:
                settings = dataclasses.replace(settings, params=settings.params | {"mode": "clause"})
                await check_whole(source.whole_text, settings.params["text_type"])
            async with contextlib.AsyncExitStack() as ending:
                if request.recordings.is_empty:
                    voice = self._voices.engine_id(settings.voice)
                else:
                    voice = await ending.enter_async_context(self._voices.lend(request.recordings))
                speaker = Speaker(
                    self._client,
                    uuid.uuid4().hex,
                    dataclasses.replace(settings, voice=voice),
                    encoding="f32le",
                    paced=False,
                    max_submitted=_SEGMENTS_AHEAD,
                    max_length_s=request.max_length_s,
                )
                self._speakers.add(speaker)
                ending.callback(self._speakers.discard, speaker)
                planner = self._defaults.make_planner(settings)
                await ending.enter_async_context(speaking(speaker, speak_text(source, planner, speaker)))
                async for piece in speaker:
                    _tell_skipped(planner, request.on_skipped)
                    yield piece
                _tell_skipped(planner, request.on_skipped)

    def _settings(self, request: SpeechArguments) -> ContextSettings:
        """Return the settings of a request. Raises InvalidRequest and subclasses: invalid arguments."""
        if request.voice is not None and not request.recordings.is_empty:
            raise InvalidRequest("give a voice or recordings, not both", field="voice")
        if request.max_length_s is not None and not 0 < request.max_length_s < math.inf:
            raise InvalidRequest("max_length_s must be a positive number of seconds", field="max_length_s")
        return self._defaults.resolve(Choices(), Choices(request.voice, params=request.params))

    @functools.cached_property
    def _defaults(self) -> SpeechDefaults:
        return SpeechDefaults(
            self._ready,
            voices=self._voices.names,
            language=self._language,
            stall_flush_s=_STALL_FLUSH_S,
            lexicons=self._lexicons,
            adapters=self._adapters.loaded,
            draw_seed=lambda: 0,  # never called: `generate` always passes a seed
        )


def _tell_skipped(planner: Planner, on_skipped: Callable[[Sequence[tuple[int, int]]], None] | None) -> None:
    if on_skipped is not None and (skipped := planner.take_skipped()):
        on_skipped(skipped)
