"""Supervision of one engine worker process: spawn, wait until ready, watch, respawn. asyncio, no torch.

The worker inherits a connection, reports its state on it, and exits when it closes. Its clients use a unix socket in a
private directory. Whatever ends the worker (a crash, a kill, a damaged frame, five seconds without a step) or prevents
its start (a full disk, no descriptor left), it is reported to the pool at once and a new worker is started after a
pause. No failure of a worker ends the supervision. Failures that should end the start of a server are reported, too: an
error that the worker reports itself, a start that takes too long, and more crashes than `recovery.FORGIVEN`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from realtime_tts.contract import frames
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.contract.watch import stack_of, watch
from realtime_tts.errors import EngineStartError, RealtimeTTSError, error_from_code
from realtime_tts.workers.child import end_child, start_child, until_one_ends, until_silent
from realtime_tts.workers.recovery import FORGIVEN, DeviceState, Recovery
from realtime_tts.workers.socket_directory import SocketDirectory
from realtime_tts.workers.watchdog import Watchdog

if TYPE_CHECKING:
    from realtime_tts.workers.pool import WorkerPool

logger = logging.getLogger(__name__)

_READ_BYTES = 256 * 1024
_HANG_STEPS = 30  # usual steps of one stream in which the longest step, of many streams or a long recording, ends
_HEALTHY_AFTER_S = 60.0  # a worker that ran this long resets the pause before the next respawn


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A worker to start, and the limits of its supervision in seconds.

    Attributes:
        command: ``--options JSON --clients PATH --control FD`` are appended.
        ready_timeout_s: time from the start of a worker, or from the end of its download of a model, until it is ready.
            A worker that takes longer is killed and another one started.
        hang_s: time without a heartbeat, or without a step while there is work, after which a ready worker is killed
            and another one started; on a slow device after `_HANG_STEPS` steps. The default is 30 times the longest
            step of a GPU.
        stop_s: from SIGTERM to SIGKILL.
        backoff_s, max_backoff_s: first and longest pause before a restart.
    """

    options: EngineOptions = dataclasses.field(default_factory=EngineOptions)
    name: str = "worker-0"
    command: tuple[str, ...] = (sys.executable, "-m", "realtime_tts.engine.worker")
    ready_timeout_s: float = 600.0
    hang_s: float = 5.0
    stop_s: float = 5.0
    backoff_s: float = 0.5
    max_backoff_s: float = 30.0


class Supervisor:
    """Supervisor of the workers of one device, one after the other; it reports to their pool.

    Attributes:
        device: name of the device; "" until a worker has been ready.
        num_lost: number of lost workers, ready or not; those that were asked to end do not count.
        stats: the last heartbeat of the present worker.
    """

    def __init__(self, spec: WorkerSpec, pool: WorkerPool) -> None:
        self.spec, self._pool = spec, pool
        self.ready: frames.Ready | None = None  # None while no worker is ready
        self.clients_path = ""
        self.pid: int | None = None
        self.device = ""
        self.recovery = Recovery()
        self.num_starts = self.num_lost = 0
        self._has_failed = False  # the last worker never became ready
        self.last_exit: int | None = None
        self.start_error: RealtimeTTSError | None = None  # why the last worker did not become ready, if that is known
        self.stats = frames.Stats()
        self.is_unloaded = False  # from `unload` until the next worker is ready
        self._may_start = asyncio.Event()
        self._may_start.set()
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False  # no respawn from now on
        self._stop_now = asyncio.Event()
        self._watchdog: Watchdog

    def start(self) -> None:
        """Begin supervising; returns at once."""
        name, pool = self.spec.name, self._pool
        self._task = watch(self._supervise(), f"supervise {name}", lambda: pool.on_failed(name))

    async def stop(self) -> None:
        """End the worker: SIGTERM, then SIGKILL. Return when it has ended."""
        self._stopping = True
        self._may_start.set()
        if self._task is None:
            return
        self._stop_now.set()  # not a cancellation, which could cut short the reaping of the process
        await asyncio.wait([self._task])

    def leave(self) -> None:
        """Have the worker end when its contexts are closed; another one follows. No effect if none is ready, or if it
        leaves already: a second signal would not wait for its contexts."""
        if self.pid is not None and self.ready is not None and not self.stats.leaving:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def unload(self) -> None:
        """Have the worker end when its contexts are closed; the next one starts after `load`."""
        self.is_unloaded = True
        self._may_start.clear()
        self.leave()

    def load(self) -> None:
        """Start the next worker after `unload`."""
        self._may_start.set()

    def state(self, is_announced: bool, now: float) -> DeviceState:
        """Return the state of the device. `is_announced`: the worker is ready and announced to clients."""
        if self.ready is not None:
            if self.stats.leaving:
                return DeviceState.UNLOADED if self.is_unloaded else DeviceState.LEAVING
            return DeviceState.SERVING if is_announced else DeviceState.RECOVERING
        if self._has_failed or self.recovery.is_failing(now):
            return DeviceState.FAILED
        if self.is_unloaded:
            return DeviceState.STARTING if self._may_start.is_set() else DeviceState.UNLOADED
        if self.num_lost:
            return DeviceState.RESTARTING
        return DeviceState.LEAVING if self.num_starts > 1 else DeviceState.STARTING

    async def _supervise(self) -> None:
        pause_s = self.spec.backoff_s
        clock = asyncio.get_running_loop().time
        while await self._next_may_start():
            started_s = clock()
            reason = await self._run_once()
            if self._stopping:
                return
            if self.stats.leaving and self.last_exit in (0, -signal.SIGTERM):
                logger.info("worker %s has left", self.spec.name)
                pause_s = self.spec.backoff_s
                continue
            if self.start_error is not None:
                self._pool.start_failed(self, self.start_error)
            elif self.num_lost > FORGIVEN:
                crashed = f"the engine worker has crashed {self.num_lost} times ({reason}); see its log"
                self._pool.start_failed(self, EngineStartError(crashed))
            if clock() - started_s > _HEALTHY_AFTER_S:
                pause_s = self.spec.backoff_s
            logger.warning("worker %s ended (%s); next in %.1f s", self.spec.name, reason, pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop_now.wait(), pause_s)
                return
            pause_s = min(2 * pause_s, self.spec.max_backoff_s)

    async def _next_may_start(self) -> bool:
        """Wait while the model is unloaded. Return False if no worker may start any more."""
        await self._may_start.wait()
        return not self._stopping

    async def _run_once(self) -> str:
        """Run one worker from spawn to end; return what ended it. Never raises for a failure of the worker."""
        self.start_error, self.stats = None, frames.Stats()
        directory, process, failure = None, None, ""
        try:
            directory = SocketDirectory()
            self.clients_path = directory.clients_path
            self.num_starts += 1
            options = json.dumps(dataclasses.asdict(self.spec.options))
            command = (*self.spec.command, "--options", options, "--clients", self.clients_path)
            process, reader, self._writer = await start_child(command)
            self.pid = process.pid
            directory.note_worker(process.pid)
            self._watchdog = Watchdog(self.spec.ready_timeout_s, asyncio.get_running_loop().time())
            # Until the process or its connection ends, the watchdog gives up, or this server stops.
            await until_one_ends(process.wait(), self._receive(reader), self._watch(), self._stop_now.wait())
        except (OSError, RealtimeTTSError) as error:
            failure = f"{type(error).__name__}: {error}"
        except Exception as error:
            failure = f"{type(error).__name__} at {stack_of(error)}"
        finally:
            if process is None:
                self.start_error = EngineStartError(f"no engine worker could be started: {failure}")
            try:
                self._lose()
            finally:
                if process is not None:
                    number = signal.SIGTERM if self._stopping or self.stats.leaving else signal.SIGKILL
                    self.last_exit, self.pid = await end_child(process, number, self.spec.stop_s), None
                if directory is not None:
                    directory.remove()
        if process is None:
            return failure
        start_error = "" if self.start_error is None else self.start_error.message
        return ", ".join(filter(None, (failure, start_error, f"exit status {self.last_exit}")))

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        decoder = frames.Decoder()
        while data := await reader.read(_READ_BYTES):
            for message in decoder.feed(data):
                self._take(message)
        if self._stopping or self.stats.leaving:
            await asyncio.sleep(self.spec.stop_s)  # it closes its connection shortly before it ends by itself

    def _take(self, message: frames.Message) -> None:
        if isinstance(message, frames.Ready):
            self.ready, self.device = message, message.device
            self.is_unloaded = self._has_failed = False
            self._watchdog.sign_of_life(self.spec.hang_s)
            self._pool.ready(self)
            return
        if self.ready is None:
            if isinstance(message, frames.Failed):
                self.start_error = error_from_code(message.code, message.message)
            else:  # the model is being downloaded
                self._watchdog.sign_of_life(self.spec.ready_timeout_s)
            return
        if isinstance(message, frames.Stats):
            if message.num_steps != self.stats.num_steps or message.running == 0:
                step_s = (message.fixed_ms + message.stream_ms) / 1000
                self._watchdog.sign_of_life(max(self.spec.hang_s, _HANG_STEPS * step_s))
            self._pool.count(self, message)
            self.stats = message

    async def _watch(self) -> None:
        """Return when the worker does not become ready in time, hangs with work running, or sends no heartbeat."""
        await until_silent(self._watchdog)
        what = "was not ready after" if self.ready is None else "made no step for"
        limit_s = self._watchdog.limit_s
        if self.ready is None:
            self.start_error = EngineStartError(f"the engine worker was not ready after {limit_s:.1f} s")
        logger.error("worker %s %s %.1f s", self.spec.name, what, limit_s)

    def _lose(self) -> None:
        if not self.stats.leaving:
            self.num_lost += 1
            self._has_failed = self.ready is None
            if self.ready is not None:
                self.recovery.lost(asyncio.get_running_loop().time())
        self.ready = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._pool.lost(self)
