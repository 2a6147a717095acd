"""Gateway side of the engine: requests go in, audio comes out. asyncio, no torch.

`EngineClient` has a link to each worker, sends each context to one of them, and turns the loss of a worker into a
`Failed` for each of its requests. Starting and restarting the workers is the task of `pool.Workers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence

from realtime_tts.contract import frames
from realtime_tts.contract.policy import ServingPolicy
from realtime_tts.contract.watch import until
from realtime_tts.errors import (
    Draining,
    EngineLost,
    RealtimeTTSError,
    SlowConsumer,
    VoiceNotFound,
    error_from_code,
)
from realtime_tts.workers.adapters import AdapterLoads
from realtime_tts.workers.link import WorkerLink
from realtime_tts.workers.placement import place
from realtime_tts.workers.pool import WorkerPool, Workers
from realtime_tts.workers.stream import RequestStream
from realtime_tts.workers.supervisor import WorkerSpec
from realtime_tts.workers.worker_view import WorkerView

logger = logging.getLogger(__name__)

__all__ = ["EngineClient", "RequestStream"]

MAX_BUFFERED_BYTES = 8 * 1024 * 1024  # unread PCM of one request


class EngineClient:
    """Client of all workers, seen as one engine.

    Args:
        workers: one spec per device to start own workers; or their keeper.
    """

    def __init__(self, workers: Sequence[WorkerSpec] | Workers) -> None:
        self.ready: frames.Ready | None = None  # the first worker's, once one was ready
        self.policy = ServingPolicy()  # the model's, once a worker was ready
        self.on_failed: Callable[[], None] = lambda: None  # called when an internal error has ended a task
        self._voices: dict[str, frames.AddVoice] = {}  # for every worker, future ones included
        self._openings: Sequence[frames.Opening] = ()  # as the voices
        self._context_workers: dict[str, WorkerView | None] = {}  # None: it was lost
        self._draft_workers: dict[str, WorkerView] = {}  # of contexts that have a draft and no request yet
        self._start_error: RealtimeTTSError | None = None  # why no worker is waited for any more
        self._is_closing = False
        self._is_loading = False  # until the first worker after the model was unloaded has the adapters
        self.keeper: Workers = WorkerPool(workers) if isinstance(workers, Sequence) else workers
        self.keeper.on_ready = self._link
        self.keeper.on_lost = self._worker_ended
        self.keeper.on_start_failed = self._start_failed
        self.keeper.on_failed = self.worker_failed
        self.workers = [WorkerView(name) for name in self.keeper.names]
        self.adapters = AdapterLoads(self.workers)
        self.adapters.on_settled = self._note_loaded

    # ---- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start every worker; return when the first is ready.

        Raises:
            EngineStartError, CheckpointError: no worker could be started.
        """
        await self.keeper.start()
        try:
            await self.until_ready()
        except BaseException:
            await self.close()
            raise

    async def until_ready(self) -> None:
        """Return when a worker is ready. For the start of a server: later the wait may have no end.

        Raises:
            EngineStartError, CheckpointError: no worker could be started. Draining: closed meanwhile.
        """
        await until(lambda: self._is_any_ready or self._start_error is not None or self._is_closing)
        if self._is_any_ready:
            return
        raise self._start_error or Draining("the engine is shutting down")

    @property
    def _is_any_ready(self) -> bool:
        return any(worker.ready is not None for worker in self.workers)

    async def close(self) -> None:
        """Refuse new contexts and end the workers; running requests fail. Idempotent."""
        self._is_closing = True
        await self.keeper.stop()
        links = [worker.link.task for worker in self.workers if worker.link is not None]
        for worker in self.workers:
            if worker.link is not None and not worker.link.is_ending:
                self._unlink(worker)
        await asyncio.gather(*links, return_exceptions=True)

    @property
    def is_unloaded(self) -> bool:
        """True if the model is unloaded, or is being loaded again."""
        is_unloaded = self.keeper.is_unloaded or self._is_loading
        return is_unloaded and self.ready is not None and not self._is_closing

    async def load(self, timeout_s: float) -> None:
        """Load the model if it is unloaded; return when a worker is ready or was lost, at the latest after
        `timeout_s`."""
        if self.is_unloaded:
            self.keeper.load()
            await until(lambda: not self.is_unloaded, timeout_s)

    @property
    def num_ready(self) -> int:
        """Number of workers that take new contexts."""
        return sum(worker.takes_contexts for worker in self.workers)

    @property
    def num_streams(self) -> int:
        """Number of streams that the ready workers can carry in real time; at least one for each of them."""
        return sum(worker.num_streams for worker in self.workers)

    def device_words(self, ready: frames.Ready) -> str:
        """Return device and settings of a worker, for people, with the streams that it can carry in real time."""
        num_streams = self.num_streams // max(1, self.num_ready)
        settings = f"{ready.device}, {ready.dtype}, attention {ready.backend}"
        return f"{settings}, up to {num_streams} streams in real time"

    @property
    def num_requests(self) -> int:
        """Number of requests without a terminal message."""
        return sum(len(worker.requests) for worker in self.workers)

    @property
    def stats(self) -> list[frames.Stats]:
        """Latest heartbeat of each ready worker."""
        return [worker.stats for worker in self.workers if worker.stats is not None]

    # ---- requests ------------------------------------------------------------------------------------------------

    def submit(self, request: frames.Generate) -> RequestStream:
        """Send a request and return the stream of its audio.

        Raises:
            Draining: the engine is shutting down and this is a new context.
            EngineLost: no worker is ready, or no ready one has the adapter yet. The call can be retried. Or the worker
                of the context was lost: another one has neither its voice and prosody nor its playback position.
            AdapterNotFound: the adapter is not loaded.
        """
        if self._context_workers.get(request.context_id, ...) is None:
            raise EngineLost("the engine worker was lost")
        drafting = self._draft_workers.pop(request.context_id, None)
        if drafting is not None and not drafting.takes_contexts:  # it leaves, and the context begins elsewhere
            drafting.send(frames.CloseContext(request.context_id))
            drafting = None
        worker = drafting or self._context_workers.get(request.context_id) or self._place(request)
        stream = worker.requests[request.request_id] = RequestStream(request.request_id, request.context_id)
        self._context_workers[request.context_id] = worker
        worker.send(request)
        return stream

    def draft(self, request: frames.Generate) -> None:
        """Have a worker make ahead what a new context may begin with, which will be spoken there. Without a worker
        that could, nothing happens."""
        with contextlib.suppress(RealtimeTTSError):  # the context's first request reports it
            self._draft_workers[request.context_id] = worker = self._place(request)
            worker.send(request)

    def _place(self, request: frames.Generate) -> WorkerView:
        """Return the worker for a new context, which stays there."""
        keys, now = frames.prefix_keys(request), asyncio.get_running_loop().time()
        open_there = Counter(worker.name for worker in self._context_workers.values() if worker is not None)
        candidates = [each.candidate(keys, open_there[each.name], now) for each in self._able(request.adapter)]
        return self._named(place(candidates, keys[0] if keys else b"").name)

    def _able(self, adapter: str | None) -> list[WorkerView]:
        """Return the ready workers that have the adapter."""
        ready = self._ready_workers()
        if adapter is None:
            return ready
        self.adapters.check(adapter)
        able = [worker for worker in ready if isinstance(worker.adapters.get(adapter), frames.AdapterAdded)]
        if not able:
            raise EngineLost("no worker that is ready has loaded the adapter yet")
        return able

    def _ready_workers(self) -> list[WorkerView]:
        if self._is_closing:
            raise Draining("the engine is shutting down")
        if ready := [worker for worker in self.workers if worker.takes_contexts]:
            return ready
        self.keeper.load()
        raise EngineLost("no engine worker is ready")

    def extend(self, request_id: str, text: str, final: bool) -> None:
        """Replace the text of a request that was not final by a longer one that begins with it. Unknown ids are
        ignored."""
        for worker in self.workers:
            if request_id in worker.requests:
                worker.send(frames.Extend(request_id, text, final))

    def close_context(self, context_id: str) -> None:
        """End the requests of a context now, and release its voice and prosody. Their streams yield `Done("cancelled")`
        and nothing after it. Unknown ids are ignored."""
        worker = self._context_workers.pop(context_id, None) or self._draft_workers.pop(context_id, None)
        if worker is None:
            return
        for stream in [stream for stream in worker.requests.values() if stream.context_id == context_id]:
            del worker.requests[stream.request_id]
            stream.drop_audio()
            stream.put(frames.Done(stream.request_id, "cancelled"))
        worker.send(frames.CloseContext(context_id))

    def playback(self, context_id: str, played_ms: float, paused: bool = False) -> None:
        """Report the playback position of a context."""
        if worker := self._context_workers.get(context_id):
            worker.send(frames.Playback(context_id, played_ms, paused))

    def set_priority(self, context_id: str, priority: int) -> None:
        """Set the priority of a context: −8 … 8; smaller is more urgent."""
        if worker := self._context_workers.get(context_id):
            worker.send(frames.SetPriority(context_id, priority))

    # ---- voices --------------------------------------------------------------------------------------------------

    async def encode_voice(self, message: frames.EncodeVoice) -> frames.VoiceEncoded:
        """Have one worker make latents of recordings. If cancelled, nothing is kept.

        Raises:
            RealtimeTTSError: the worker's error, e.g. AudioDecodeError; VoiceNotFound: removed meanwhile.
            Draining: the engine is shutting down.
            EngineLost: no worker is ready, or it was lost meanwhile. Not retried on another worker: a recording that
                crashes one worker must not crash them all.
        """
        worker = min(self._ready_workers(), key=lambda worker: (len(worker.encodings), worker.num_working))
        answer: asyncio.Future[frames.VoiceEncoded] = asyncio.get_running_loop().create_future()
        worker.encodings[message.voice_id] = answer
        worker.send(message)
        try:
            return await answer
        finally:
            if worker.encodings.pop(message.voice_id, None) is not None:  # cancelled before the answer came
                worker.send(frames.RemoveVoice(message.voice_id))

    def add_voice(self, voice: frames.AddVoice) -> None:
        """Add a voice to every worker, present and future. Requests submitted from now on can use it: frames arrive in
        order, and a new worker receives all voices before its first request."""
        self._voices[voice.voice_id] = voice
        for worker in self.workers:
            worker.send(voice)

    def speak_ahead(self, openings: Sequence[frames.Opening]) -> None:
        """Have every worker, present and future, speak openings and keep them. Called once."""
        self._openings = openings
        for worker in self.workers:
            for opening in openings:
                worker.send(opening)

    def remove_voice(self, voice_id: str) -> None:
        """Remove a voice, its latents and its cached KV from every worker, or stop encoding it. Unknown ids are
        ignored."""
        self._voices.pop(voice_id, None)
        for worker in self.workers:
            self._answer(worker, voice_id, VoiceNotFound("the voice was removed while it was being added"))
            worker.send(frames.RemoveVoice(voice_id))

    # ---- from the workers ----------------------------------------------------------------------------------------

    def receive(self, worker: WorkerView, message: frames.Message) -> None:
        """Take a worker's message; the first one of each connection is its `Ready`."""
        if isinstance(message, frames.Audio):
            if stream := worker.requests.get(message.request_id):
                stream.put(message)
                if stream.buffered_bytes > MAX_BUFFERED_BYTES:
                    worker.send(frames.Cancel(message.request_id))
                    stream.drop_audio()
                    self._fail(worker, message.request_id, SlowConsumer("the audio was not read in time"))
        elif isinstance(message, (frames.Done, frames.Failed)):
            if stream := worker.requests.pop(message.request_id, None):
                stream.put(message)
        elif isinstance(message, (frames.Stats, frames.Load, frames.Prefixes)):
            worker.note(message, asyncio.get_running_loop().time())
        elif isinstance(message, (frames.AdapterAdded, frames.AdapterFailed)):
            self.adapters.take(worker, message)
        elif isinstance(message, frames.Ready):
            self._worker_ready(worker, message)
        elif isinstance(message, frames.VoiceEncoded):
            self._answer(worker, message.voice_id, message)
        elif isinstance(message, frames.VoiceFailed):
            self._answer(worker, message.voice_id, error_from_code(message.code, message.message))
            if message.voice_id in self._voices:
                logger.error("worker %s refused a voice: %s", worker.name, message.message)

    def _answer(self, worker: WorkerView, voice_id: str, outcome: frames.VoiceEncoded | RealtimeTTSError) -> None:
        answer = worker.encodings.pop(voice_id, None)
        if answer is None or answer.done():
            return  # its caller was cancelled
        if isinstance(outcome, RealtimeTTSError):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    def _fail(self, worker: WorkerView, request_id: str, error: RealtimeTTSError) -> None:
        if stream := worker.requests.pop(request_id, None):
            stream.put(frames.Failed(request_id, error.code, error.message))

    # ---- links ---------------------------------------------------------------------------------------------------

    def _link(self, name: str, path: str) -> None:
        """Connect to a worker that takes clients."""
        worker = self._named(name)
        self._unlink(worker)
        self._is_loading = self._is_loading or self.keeper.is_unloaded
        worker.link = WorkerLink(path, worker, self)

    def _unlink(self, worker: WorkerView) -> None:
        link, worker.link = worker.link, None
        if link is not None:
            link.drop()
            self.worker_lost(worker)

    def _named(self, name: str) -> WorkerView:
        return next(worker for worker in self.workers if worker.name == name)

    def _worker_ready(self, worker: WorkerView, ready: frames.Ready) -> None:
        worker.ready = ready
        if self.ready is None:
            self.ready, self.policy = ready, ServingPolicy.from_map(ready.policy)
        worker.last_progress_s = asyncio.get_running_loop().time()
        for voice in self._voices.values():
            worker.send(voice)  # before any request
        for opening in self._openings:
            worker.send(opening)
        self.adapters.worker_ready(worker)
        self._note_loaded()

    def _note_loaded(self) -> None:
        """Note the end of the model's load if a worker has all adapters."""
        if any(worker.takes_contexts and not worker.is_loading for worker in self.workers):
            self._is_loading = False

    def worker_lost(self, worker: WorkerView) -> None:
        """Note that the connection to a worker is gone or could not be made."""
        worker.forget()
        lost = EngineLost("the engine worker was lost")
        for request_id in list(worker.requests):
            self._fail(worker, request_id, lost)
        lost_contexts = [name for name, other in self._context_workers.items() if other is worker]
        self._context_workers |= dict.fromkeys(lost_contexts)
        self._draft_workers = {name: other for name, other in self._draft_workers.items() if other is not worker}
        for voice_id in list(worker.encodings):
            self._answer(worker, voice_id, lost)

    def _worker_ended(self, name: str) -> None:
        """Handle the end of a worker's process."""
        worker = self._named(name)
        if worker.link is not None:
            worker.link.finish()  # messages sent before still count
        self._is_loading = False

    def _start_failed(self, error: RealtimeTTSError) -> None:
        self._start_error = error

    def worker_failed(self, name: str) -> None:
        """Treat a worker as lost for good: its keeper or its link has failed."""
        self._unlink(self._named(name))
        self.on_failed()
