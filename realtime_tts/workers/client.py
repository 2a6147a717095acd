"""The gateway's side of the engine: requests go in, audio comes out. asyncio, no torch.

`EngineClient` owns one `Supervisor` per device, sends each context to one worker, and turns the loss of a worker into a
`Failed` for each of its requests.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import logging
from collections.abc import Callable, Sequence

from realtime_tts.errors import (
    Draining,
    EngineLost,
    EngineStartError,
    RealtimeTTSError,
    SlowConsumer,
    VoiceNotFound,
    error_from_code,
)
from realtime_tts.workers import frames
from realtime_tts.workers.socket_directory import clear_leftovers
from realtime_tts.workers.stream import RequestStream
from realtime_tts.workers.supervisor import Supervisor, SupervisorConfig, WorkerSpec

logger = logging.getLogger(__name__)

__all__ = ["COUNTED", "EngineClient", "EngineState", "RequestStream"]

# Fields of `Stats` that only grow while a worker lives.
COUNTED = (
    "extensions",
    "extended_positions",
    "text_waits",
    "ends_cut",
    "ends_continued",
    "babbles",
    "skips",
    "repeats",
)


class EngineState(enum.Enum):
    """STARTING → READY ⇄ DOWN → DRAINING → CLOSED."""

    STARTING = "starting"
    READY = "ready"  # at least one worker takes requests
    DOWN = "down"  # none does; they are being respawned
    DRAINING = "draining"
    CLOSED = "closed"


@dataclasses.dataclass(slots=True)
class _Worker:
    supervisor: Supervisor
    requests: dict[str, RequestStream] = dataclasses.field(default_factory=dict)
    contexts: set[str] = dataclasses.field(default_factory=set)
    encodings: dict[str, asyncio.Future[frames.VoiceEncoded]] = dataclasses.field(default_factory=dict)  # by voice id
    counted: frames.Stats = dataclasses.field(default_factory=frames.Stats)  # in the client's totals already
    was_lost: bool = False


def _load(worker: _Worker) -> tuple[int, int]:
    return len(worker.requests), len(worker.contexts)


def _num_streams(supervisor: Supervisor) -> int:
    if supervisor.ready is None:
        return 0
    max_streams = max(1, supervisor.ready.max_streams)
    learned = supervisor.stats.real_time_streams if supervisor.stats is not None else 0
    return min(max_streams, learned or max_streams)


class EngineClient:
    """All workers as one engine.

    Args:
        workers: one spec per device.
        max_buffered_bytes: of PCM that nobody has read, per request.
    """

    def __init__(
        self,
        workers: Sequence[WorkerSpec],
        config: SupervisorConfig | None = None,
        *,
        max_buffered_bytes: int = 8 * 1024 * 1024,
    ) -> None:
        self.state = EngineState.STARTING
        self.ready: frames.Ready | None = None
        self.totals = dict.fromkeys(COUNTED, 0)  # over all workers, lost ones included, as far as they have told
        self.on_failed: Callable[[], None] = lambda: None  # a worker is not supervised any more, by a fault of ours
        self._max_buffered_bytes = max_buffered_bytes
        self._voices: dict[str, frames.AddVoice] = {}  # what every worker knows, those to come included
        self._context_workers: dict[str, _Worker] = {}
        self._started: asyncio.Future[None] | None = None
        self._workers = [self._make_worker(spec, config or SupervisorConfig()) for spec in workers]

    def _make_worker(self, spec: WorkerSpec, config: SupervisorConfig) -> _Worker:
        supervisor = Supervisor(
            spec,
            config,
            on_message=lambda message: self._receive(worker, message),
            on_ready=lambda: self._worker_ready(worker),
            on_lost=lambda: self._worker_lost(worker),
            on_failed=lambda: self._supervision_failed(worker),
        )
        worker = _Worker(supervisor)
        return worker

    # ---- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Clear away what killed gateways have left, spawn every worker; return when the first is ready.

        Raises:
            EngineStartError, CheckpointError: every worker ended before it was ready.
        """
        self._started = asyncio.get_running_loop().create_future()
        await self._clear_leftovers()
        for worker in self._workers:
            worker.supervisor.start()
        try:
            await self._started
        except BaseException:
            await self.close()
            raise

    async def _clear_leftovers(self) -> None:
        try:
            await asyncio.to_thread(clear_leftovers)
        except OSError as error:  # no reason not to start
            logger.warning("leftovers could not be cleared away: %s", error)

    async def close(self, drain_s: float = 0.0) -> None:
        """Refuse new contexts, let running requests finish for `drain_s` seconds, then end the workers. Idempotent."""
        if self.state is EngineState.CLOSED:
            return
        self.state = EngineState.DRAINING
        await asyncio.gather(*(worker.supervisor.stop(drain_s) for worker in self._workers))
        self.state = EngineState.CLOSED

    @property
    def num_ready(self) -> int:
        return sum(worker.supervisor.ready is not None for worker in self._workers)

    @property
    def num_streams(self) -> int:
        """Streams that the ready workers can speak at a time, each in real time; one at least for each of them."""
        return sum(_num_streams(worker.supervisor) for worker in self._workers)

    @property
    def num_requests(self) -> int:
        """Requests without a terminal message yet."""
        return sum(len(worker.requests) for worker in self._workers)

    @property
    def num_restarts(self) -> int:
        """Respawns since the start, those that failed included; never falls."""
        return sum(max(0, worker.supervisor.num_starts - 1) for worker in self._workers)

    @property
    def stats(self) -> list[frames.Stats]:
        """The latest heartbeat of each ready worker."""
        return [worker.supervisor.stats for worker in self._workers if worker.supervisor.stats is not None]

    # ---- requests ------------------------------------------------------------------------------------------------

    def submit(self, request: frames.Generate) -> RequestStream:
        """Send a request; its audio is read from the stream returned.

        Raises:
            Draining: the engine is shutting down and this is a new context.
            EngineLost: no worker is ready. Can be tried again.
        """
        worker = self._context_workers.get(request.context_id) or min(self._ready_workers(), key=_load)
        stream = RequestStream(request.request_id, request.context_id, self.cancel)
        worker.requests[request.request_id] = stream
        worker.contexts.add(request.context_id)
        self._context_workers[request.context_id] = worker
        worker.supervisor.send(request)
        return stream

    def _ready_workers(self) -> list[_Worker]:
        if self.state in (EngineState.DRAINING, EngineState.CLOSED):
            raise Draining("the engine is shutting down")
        ready = [worker for worker in self._workers if worker.supervisor.ready is not None]
        if not ready:
            raise EngineLost("no engine worker is ready")
        return ready

    def extend(self, request_id: str, text: str, final: bool) -> None:
        """More of the text of a request that was not final, all of it from its beginning. Unknown ids are ignored."""
        for worker in self._workers:
            if request_id in worker.requests:
                worker.supervisor.send(frames.Extend(request_id, text, final))

    def cancel(self, request_id: str) -> None:
        """End a request now: its stream yields `Done("cancelled")` and nothing after it. Unknown ids are ignored."""
        for worker in self._workers:
            if stream := worker.requests.pop(request_id, None):
                worker.supervisor.send(frames.Cancel(request_id))
                stream.drop_audio()
                stream.put(frames.Done(request_id, "cancelled"))

    def close_context(self, context_id: str) -> None:
        """Cancel what runs in a context and forget its voice and prosody. Unknown ids are ignored."""
        worker = self._context_workers.pop(context_id, None)
        if worker is None:
            return
        worker.contexts.discard(context_id)
        for stream in [stream for stream in worker.requests.values() if stream.context_id == context_id]:
            self.cancel(stream.request_id)
        worker.supervisor.send(frames.CloseContext(context_id))

    def playback(self, context_id: str, played_ms: float, paused: bool = False) -> None:
        """Tell how much of a context has been heard."""
        if worker := self._context_workers.get(context_id):
            worker.supervisor.send(frames.Playback(context_id, played_ms, paused))

    def set_priority(self, context_id: str, priority: int) -> None:
        """Smaller is more urgent; −8 … 8."""
        if worker := self._context_workers.get(context_id):
            worker.supervisor.send(frames.SetPriority(context_id, priority))

    # ---- voices --------------------------------------------------------------------------------------------------

    async def encode_voice(self, message: frames.EncodeVoice) -> frames.VoiceEncoded:
        """Have one worker make latents of recordings. Cancelled, it leaves nothing behind.

        Raises:
            RealtimeTTSError: what the worker made of it, e.g. AudioDecodeError; VoiceNotFound: removed meanwhile.
            Draining: the engine is shutting down.
            EngineLost: no worker is ready, or it was lost over it. Not tried on another one: if the recording is what
                brings workers down, it must not take them all.
        """
        worker = min(self._ready_workers(), key=lambda worker: (len(worker.encodings), *_load(worker)))
        answer: asyncio.Future[frames.VoiceEncoded] = asyncio.get_running_loop().create_future()
        worker.encodings[message.voice_id] = answer
        worker.supervisor.send(message)
        try:
            return await answer
        finally:
            if worker.encodings.pop(message.voice_id, None) is not None:  # no answer yet, and none is wanted
                worker.supervisor.send(frames.RemoveVoice(message.voice_id))

    def add_voice(self, voice: frames.AddVoice) -> None:
        """Make a voice known to every worker, present and future. A request submitted from now on finds it: frames
        arrive in order, and a worker is told of all voices before it is given its first request."""
        self._voices[voice.voice_id] = voice
        for worker in self._workers:
            worker.supervisor.send(voice)

    def remove_voice(self, voice_id: str) -> None:
        """Forget a voice, its latents and its cached KV everywhere, or stop encoding it. Unknown ids are ignored."""
        self._voices.pop(voice_id, None)
        for worker in self._workers:
            self._answer(worker, voice_id, VoiceNotFound("the voice was removed while it was being added"))
            worker.supervisor.send(frames.RemoveVoice(voice_id))

    # ---- from the workers ----------------------------------------------------------------------------------------

    def _receive(self, worker: _Worker, message: frames.Message) -> None:
        if isinstance(message, frames.Audio):
            if stream := worker.requests.get(message.request_id):
                stream.put(message)
                if stream.buffered_bytes > self._max_buffered_bytes:
                    worker.supervisor.send(frames.Cancel(message.request_id))
                    stream.drop_audio()
                    self._fail(worker, message.request_id, SlowConsumer("the audio was not read in time"))
        elif isinstance(message, (frames.Done, frames.Failed)):
            if stream := worker.requests.pop(message.request_id, None):
                stream.put(message)
        elif isinstance(message, frames.Stats):
            for name in COUNTED:
                self.totals[name] += getattr(message, name) - getattr(worker.counted, name)
            worker.counted = message
        elif isinstance(message, frames.VoiceEncoded):
            self._answer(worker, message.voice_id, message)
        elif isinstance(message, frames.VoiceFailed):
            self._answer(worker, message.voice_id, error_from_code(message.code, message.message))
            if message.voice_id in self._voices:
                logger.error("worker %s refused a voice: %s", worker.supervisor.spec.name, message.message)

    def _answer(self, worker: _Worker, voice_id: str, outcome: frames.VoiceEncoded | RealtimeTTSError) -> None:
        """To whoever waits for an encoding; one who was cancelled may not have left yet."""
        answer = worker.encodings.pop(voice_id, None)
        if answer is None or answer.done():
            return
        if isinstance(outcome, frames.VoiceEncoded):
            answer.set_result(outcome)
        else:
            answer.set_exception(outcome)

    def _fail(self, worker: _Worker, request_id: str, error: RealtimeTTSError) -> None:
        worker.requests.pop(request_id).put(frames.Failed(request_id, error.code, error.message))

    def _worker_ready(self, worker: _Worker) -> None:
        self.ready = self.ready or worker.supervisor.ready
        for voice in self._voices.values():
            worker.supervisor.send(voice)  # before any request
        if self._started is not None and not self._started.done():
            self._started.set_result(None)
        if self.state in (EngineState.STARTING, EngineState.DOWN):
            self.state = EngineState.READY

    def _worker_lost(self, worker: _Worker) -> None:
        lost = EngineLost("the engine worker was lost")
        for request_id in list(worker.requests):
            self._fail(worker, request_id, lost)
        for context_id in worker.contexts:
            self._context_workers.pop(context_id, None)
        worker.contexts.clear()
        for voice_id in list(worker.encodings):
            self._answer(worker, voice_id, lost)
        if self.state is EngineState.READY and self.num_ready == 0:
            self.state = EngineState.DOWN
        worker.was_lost, worker.counted = True, frames.Stats()
        if self._started is not None and not self._started.done():
            self._fail_start(worker)

    def _supervision_failed(self, worker: _Worker) -> None:
        """Without its supervisor a worker is as good as lost, for ever."""
        self._worker_lost(worker)
        self.on_failed()

    def _fail_start(self, worker: _Worker) -> None:
        """Give up starting once every worker has ended without getting ready."""
        assert self._started is not None
        if all(other.was_lost for other in self._workers):
            error = worker.supervisor.start_error
            self._started.set_exception(error or EngineStartError("no engine worker became ready; see its log"))
