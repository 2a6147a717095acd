"""The worker process of one device: ``python -m realtime_tts.engine.worker --clients PATH --control FD --options JSON``

The main thread does socket I/O in asyncio. One thread loads the engine and runs it; another encodes voices and reads
adapters. The supervisor has the other end of the socket FD: it receives the worker's state and sends nothing. Clients
connect to a unix socket at PATH. On SIGTERM the worker reports to all clients that it takes no new contexts, and exits
when the existing ones are closed. On a second SIGTERM it exits when the running requests have ended. Exit status: 0
after that or when the supervisor disconnects, 1 if the engine failed, 3 if it could not start (the reason was sent).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from realtime_tts.contract import frames
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.contract.heap import GIVE_BACK_EVERY_S, HeapKeeper, resident_bytes
from realtime_tts.contract.location import check_location
from realtime_tts.contract.logs import log_to_stderr
from realtime_tts.contract.watch import end_tasks, watch
from realtime_tts.engine.calibrate import with_text_head
from realtime_tts.engine.client_channels import ClientChannels
from realtime_tts.engine.engine import Engine, refusal
from realtime_tts.engine.setup import choose_device, choose_threads, make_engine, ready_message
from realtime_tts.engine.voices import encode_voice
from realtime_tts.errors import EngineError, EngineStartError, RealtimeTTSError
from realtime_tts.model.adapter_file import AdapterWeights, read_adapter
from realtime_tts.model.checkpoint import LoadedModel, load_model, resolve_directory

logger = logging.getLogger("realtime_tts.engine.worker")

HEARTBEAT_S = 0.5
_SEND_S = 0.005  # longest time that the engine leaves the interpreter to the thread that sends a step's audio
_LEAVE_AFTER_S = 1.0  # by then every client has received that no new contexts are taken
_MAX_UNSENT_STATS_BYTES = 64 * 1024  # limit for a supervisor that does not read


class Worker:
    """Connections to supervisor and clients, and the threads behind them.

    Args:
        writer: stream to the supervisor.
        thread: the engine's only thread; closed with the worker. It has loaded the engine: state that libraries set up
            per thread (OpenMP's team, CUDA's handles) is ready.
    """

    def __init__(
        self, engine: Engine, writer: asyncio.StreamWriter, ready: frames.Ready, thread: ThreadPoolExecutor
    ) -> None:
        self.engine, self.writer, self._ready, self._thread = engine, writer, ready, thread
        self.channels = ClientChannels(ready, self._take)
        self._loop = asyncio.get_running_loop()
        self._heap = HeapKeeper()  # for the engine's thread
        self._wake = threading.Event()
        self._has_room = threading.Event()  # set while clients read the audio
        self._has_room.set()
        self._outbox: list[frames.Message] = []
        self._outbox_lock = threading.Lock()
        self._is_sent = threading.Event()  # the outbox is empty
        self._is_sent.set()
        self._finished = asyncio.Event()
        self._stopping = False
        self._leaves_s: float | None = None  # time from which the worker may exit
        self._failure: BaseException | None = None
        # Encodings of voices and readings of adapters, by the message that ends each.
        self._jobs: dict[frames.Message, asyncio.Task[None]] = {}
        self._encoder = ThreadPoolExecutor(1, thread_name_prefix="voices")

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Serve until drained, disconnected from the supervisor, or failed.

        Raises:
            EngineError: the engine's thread died.
        """
        for number in (signal.SIGTERM, signal.SIGINT):  # first: the supervisor may signal as soon as it is ready
            self._loop.add_signal_handler(number, self.leave)
        self.writer.write(frames.encode(self._ready))
        self._thread.submit(self._run_engine)
        parts = {"receive": self._receive(reader), "beat": self._beat(), "finish": self._finished.wait()}
        tasks: list[asyncio.Task[object]] = [watch(part, name, self._finished.set) for name, part in parts.items()]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                self._failure = self._failure or task.exception()
        finally:
            self._stopping = True
            self._wake.set()
            self._has_room.set()
            tasks += self._jobs.values()
            await end_tasks(*tasks)
            self._encoder.shutdown(wait=False, cancel_futures=True)
            self._thread.shutdown(wait=False)
            await self.channels.close()
        if self._failure is not None:
            raise EngineError("the engine stopped") from self._failure

    def post(self, message: frames.Message | AdapterWeights) -> None:
        """Hand a message to the engine and wake it up."""
        self.engine.post(message)
        if not self._wake.is_set():  # it takes a lock
            self._wake.set()

    def leave(self) -> None:
        """Take no new context and exit when all are closed; the second call: when all running requests have ended."""
        if self._leaves_s is not None:
            self.engine.is_draining = True
            self._wake.set()
            return
        self._leaves_s = time.monotonic() + _LEAVE_AFTER_S
        self.engine.listed.is_stopped = True
        self._send_stats()
        self._loop.call_later(_LEAVE_AFTER_S, self._wake.set)

    # ---- engine thread -------------------------------------------------------------------------------------------

    def _run_engine(self) -> None:
        try:
            while not self._stopping:
                self._has_room.wait()
                self._wake.clear()
                if self.engine.step():
                    # Two busy threads would share the interpreter, and each system call of the one that sends would
                    # wait for the other.
                    self._is_sent.wait(_SEND_S)
                    continue
                if self.engine.is_idle and (self.engine.is_draining or self._may_leave):
                    break
                self._heap.keep(time.monotonic())  # not between two steps, which it would delay
                idle_s = self.engine.idle_s()
                self._wake.wait(GIVE_BACK_EVERY_S if idle_s is None else min(idle_s, GIVE_BACK_EVERY_S))
        except BaseException as error:
            logger.exception("the engine failed")
            self._failure = error
        with contextlib.suppress(RuntimeError):  # the loop may be gone already
            self._loop.call_soon_threadsafe(self._finished.set)

    @property
    def _may_leave(self) -> bool:
        if self._leaves_s is None or time.monotonic() < self._leaves_s:
            return False
        return not (self.engine.scheduler.num_contexts or self._jobs)

    def emit(self, message: frames.Message) -> None:
        """Hand a message from the engine's thread to the socket without blocking. One wake-up serves a whole step."""
        with self._outbox_lock:
            self._outbox.append(message)
            if len(self._outbox) > 1:
                return
            self._is_sent.clear()
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._flush)

    # ---- event loop ----------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        with self._outbox_lock:
            messages, self._outbox = self._outbox, []
        self.channels.send(messages)
        self._is_sent.set()
        if not self.channels.relieve():
            self._has_room.clear()

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        """Return when the supervisor's connection ends."""
        with contextlib.suppress(ConnectionError):
            await reader.read()

    def _take(self, message: frames.Message) -> None:
        if isinstance(message, frames.EncodeVoice):
            self._begin(self._encode(message), frames.RemoveVoice(message.voice_id))
        elif isinstance(message, frames.AddAdapter):
            self._begin(self._read_adapter(message), frames.RemoveAdapter(message.name))
        else:
            if isinstance(message, frames.RemoveVoice | frames.RemoveAdapter) and message in self._jobs:
                self._jobs.pop(message).cancel()  # what has not begun never runs; the result of what has is dropped
            self.post(message)

    def _begin(self, job: Coroutine[Any, Any, None], ended_by: frames.Message) -> None:
        task = self._jobs[ended_by] = self._loop.create_task(job)
        task.add_done_callback(lambda _: self._jobs.get(ended_by) is task and self._jobs.pop(ended_by))

    async def _read_adapter(self, message: frames.AddAdapter) -> None:
        """Read an adapter off the engine's thread, since this is slow; only putting it into the model runs there."""

        def read() -> AdapterWeights:
            limits = self.engine.adapters.limits
            return read_adapter(message.name, Path(message.directory), self.engine.loaded.model, limits)

        try:
            self.post(await self._loop.run_in_executor(self._encoder, read))
        except Exception as error:
            reason = refusal(error, EngineError("the adapter could not be read"))
            self.channels.send([frames.AdapterFailed(message.name, *reason)])

    async def _encode(self, message: frames.EncodeVoice) -> None:
        answer: frames.Message
        try:
            answer = await self._loop.run_in_executor(self._encoder, encode_voice, self.engine.loaded, message)
        except Exception as error:
            answer = frames.VoiceFailed(
                message.voice_id, *refusal(error, EngineError("the recording could not be encoded"))
            )
        self.channels.send([answer])

    async def _beat(self) -> None:
        while True:
            self.channels.relieve()
            if self.channels.is_caught_up:
                self._has_room.set()
            self._send_stats()
            await asyncio.sleep(HEARTBEAT_S)

    def _send_stats(self) -> None:
        stats = dataclasses.replace(
            self.engine.stats(),
            num_clients=self.channels.num_connected,
            leaving=self._leaves_s is not None,
            rss_bytes=resident_bytes(),
            kept_bytes=self._heap.kept_bytes,
        )
        if self._has_room.is_set():
            self.channels.beat(stats)
        else:  # it waits for a client to read, which is no fault of the worker
            stats = dataclasses.replace(stats, running=0, parked=stats.parked + stats.running)
        if self.writer.transport.get_write_buffer_size() <= _MAX_UNSENT_STATS_BYTES:
            self.writer.write(frames.encode(stats))


def load_checkpoint(options: EngineOptions) -> tuple[LoadedModel, torch.device]:
    """Configure torch and return the model on its device."""
    torch.set_num_threads(choose_threads(options.threads))
    device = choose_device(options.device)
    dtype = None if options.dtype == "auto" else options.dtype
    loaded = load_model(options.model, device, dtype, options.revision or None)
    if options.flow_steps:
        policy = dataclasses.replace(loaded.policy, default_steps=options.flow_steps)
        loaded = dataclasses.replace(loaded, policy=policy)
    return with_text_head(loaded), device


def load(options: EngineOptions) -> tuple[Engine, frames.Ready]:
    """Load, warm up and describe an engine. Its messages are dropped until `emit` is set."""
    started_s = time.monotonic()
    loaded, device = load_checkpoint(options)
    engine = make_engine(loaded, device, options)
    ready = ready_message(engine, device, options, time.monotonic() - started_s)
    # Torch and the model are 300,000 objects: a full collection over them would delay a step by more than a patch.
    gc.collect()
    gc.freeze()
    return engine, ready


async def _load_while_wanted(
    options: EngineOptions, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, thread: ThreadPoolExecutor
) -> tuple[Engine, frames.Ready]:
    """Run `load` in a thread, after the download of a model on the hub. Neither can be interrupted: if the supervisor
    disconnects meanwhile, the process exits."""
    loop = asyncio.get_running_loop()
    gone = asyncio.create_task(reader.read(1))
    gone.add_done_callback(lambda task: None if task.cancelled() else os._exit(0))
    try:
        if check_location(options.model) is None:
            beating = asyncio.create_task(_beat_until_loaded(writer))
            try:
                revision = options.revision or None
                directory = await loop.run_in_executor(thread, resolve_directory, options.model, revision)
            finally:
                await end_tasks(beating)
            options = dataclasses.replace(options, revision=directory.name)
        return await loop.run_in_executor(thread, load, options)
    finally:
        await end_tasks(gone)


async def _beat_until_loaded(writer: asyncio.StreamWriter) -> None:
    """Tell the supervisor that the model is being downloaded, which may take longer than loading ever does."""
    while True:
        writer.write(frames.encode(frames.Stats()))
        await asyncio.sleep(HEARTBEAT_S)


async def serve(fields: Mapping[str, Any], control: int, clients_path: str) -> int:
    """Load and serve. Return the exit status.

    Args:
        fields: of `EngineOptions`.
        control: descriptor of a socket to the supervisor.
        clients_path: where to create the socket for clients.
    """
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=control))
    thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
    try:
        options = EngineOptions(**fields)
        engine, ready = await _load_while_wanted(options, reader, writer, thread)
        worker = Worker(engine, writer, ready, thread)
        await worker.channels.listen(clients_path)
    except Exception as error:
        if not isinstance(error, RealtimeTTSError):
            logger.exception("the engine could not start")
            error = EngineStartError(f"{type(error).__name__}: {error}")
        writer.write(frames.encode(frames.Failed("", error.code, error.message)))  # the supervisor reports it
        await _close(writer)
        return 3
    engine.output.emit = worker.emit
    try:
        await worker.run(reader)
    except EngineError:
        return 1
    await _close(writer)
    return 0


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close a connection when all is sent."""
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def main() -> None:
    """Run one worker; end the process with its exit status."""
    parser = argparse.ArgumentParser(description="One engine worker; started by its supervisor.")
    parser.add_argument("--options", type=json.loads, default={}, help="fields of `EngineOptions`, a JSON object")
    parser.add_argument("--clients", required=True, help="where to create the unix socket for clients")
    parser.add_argument("--control", type=int, required=True, help="descriptor of a socket to the supervisor")
    logging.getLogger("httpx2").setLevel("WARNING")  # of a download it logs each request, with signed addresses
    arguments = parser.parse_args()
    options = arguments.options
    log_to_stderr(options.get("worker_log_level", "info"), options.get("worker_log_format", "text"))
    status = asyncio.run(serve(options, arguments.control, arguments.clients))
    sys.stdout.flush()
    os._exit(status)  # do not wait for a thread that hangs in the device driver


if __name__ == "__main__":
    main()
