"""The host process: it owns the workers and the port, and supervises the gateway processes that serve clients.

Each new connection goes to the gateway with the fewest connections. A gateway that dies loses its own connections only.
The host forwards the characters that each gateway has charged to all others, so that limits hold for the whole host.
No text and no audio passes through the host process.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable

from prometheus_client.multiprocess import mark_process_dead

from realtime_tts.config import Settings, build, flatten
from realtime_tts.contract.cores import usable_cores
from realtime_tts.contract.watch import end_tasks, watch
from realtime_tts.errors import InternalError, RealtimeTTSError, WireError, error_from_code
from realtime_tts.server.admission.auth import Authenticator
from realtime_tts.server.admission.connection_limiter import Acceptor, ConnectionLimiter
from realtime_tts.server.admission.peers import Charge
from realtime_tts.server.admission.quota import Quotas
from realtime_tts.server.admission.slots import SlotRequest
from realtime_tts.server.host import messages
from realtime_tts.server.host.handover import hand_over
from realtime_tts.server.host.link import SIGN_OF_LIFE_S, receiver_path
from realtime_tts.server.host.slot_table import SlotTable
from realtime_tts.server.logs import log_event
from realtime_tts.server.run import Address, bind
from realtime_tts.speech.voice_store import open_store
from realtime_tts.workers.child import end_child, signal_child, start_child, until_one_ends, until_silent
from realtime_tts.workers.pool import WorkerPool
from realtime_tts.workers.socket_directory import SocketDirectory
from realtime_tts.workers.watchdog import Watchdog

_GATEWAY_COMMAND = (sys.executable, "-m", "realtime_tts.server.host.gateway_process")
_TELL_AFTER_S = 0.01  # changes within this time are sent together
_HANG_S = 5.0
_START_S = 60.0  # time limit for a gateway's first report
_SILENT_S = 4 * SIGN_OF_LIFE_S
_BACKOFF_S = 0.5
_DEAL_AGAIN_S = 0.005
_END_S = 10.0  # after the drain timeout


@dataclasses.dataclass(eq=False, slots=True)
class _Gateway:
    """One gateway process.

    Attributes:
        watchdog: set when the process was started.
        heard_at: loop time of its last report; None while it takes no connections.
        num_given, num_told: connections that were given to it; how many of them its last report includes.
        num_open: open connections in its last report.
        untold: charges of others that were not sent to it yet.
        is_serving, has_served: this process is ready for clients; this or an earlier one of its index was.
    """

    index: int
    process: asyncio.subprocess.Process | None = None
    writer: asyncio.StreamWriter | None = None
    watchdog: Watchdog = dataclasses.field(init=False)
    heard_at: float | None = None
    num_given: int = 0
    num_told: int = 0
    num_open: int = 0
    untold: list[Charge] = dataclasses.field(default_factory=list)
    is_serving: bool = False
    has_served: bool = False

    @property
    def num_connections(self) -> int:
        return self.num_open + self.num_given - self.num_told

    def send(self, message: messages.Message) -> None:
        if self.writer is not None and not self.writer.transport.is_closing():
            self.writer.write(messages.encode(message))


class Host:
    """Gateways and workers of one machine.

    Args:
        settings: settings with `gateways` not 0. Without a token secret or a voices directory, the gateways share
            temporary ones that are removed with the host.
        on_ready: called once when all gateways serve, with the rows to print at the start.
    """

    def __init__(self, settings: Settings, workers: WorkerPool, on_ready: Callable[[dict[str, str]], None]) -> None:
        num_keys = Authenticator(settings.server).num_keys  # raises for invalid settings now
        store = open_store(settings.server.voices.voices_dir, settings.server.voices.voice_consent)
        self._keeps_voices = store is not None
        if store is not None:
            store.close()
        self.workers, self._on_ready = workers, on_ready
        self._settings = settings
        self._gateways = [_Gateway(index) for index in range(settings.server.gateways)]
        quotas = Quotas(settings.server.limits, num_keys)
        self._slot_table = SlotTable(settings.server.gateways, quotas.max_sessions)
        self._adapters = dict(settings.engine.adapters)  # directories of the loaded adapters, by name
        self._directory: SocketDirectory
        self._address: Address
        self._limiter = ConnectionLimiter(asyncio.Protocol, (), 0)
        self._acceptors: list[Acceptor] = []
        self._is_accepting = False
        self._is_stopping, self._ended = False, asyncio.Event()
        self._error: RealtimeTTSError | None = None
        self._telling: asyncio.TimerHandle | None = None
        self._has_been_ready = False

    @property
    def gateway_pids(self) -> list[int]:
        """Process ids of the running gateways, by index."""
        return [gateway.process.pid for gateway in self._gateways if gateway.process is not None]

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. The first signal lets running speech end, the second one does not.

        Raises:
            ConfigError: an address cannot be bound.
            RealtimeTTSError: the engine did not start.
            InternalError: a part of the host failed, so it shut down.
        """
        self._address, listeners = bind(self._settings)
        self._acceptors = [Acceptor(listener) for listener in listeners]
        self._directory = SocketDirectory()
        self._settings = self._shared(self._settings)
        self.workers.on_ready, self.workers.on_lost = self._worker_ready, self._worker_lost
        self.workers.on_start_failed = self._start_failed
        self.workers.on_failed = lambda name: self.fail()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        tasks = [watch(self._keep(index), f"keep gateway {index}", self.fail) for index in range(len(self._gateways))]
        telling = watch(self._tell_regularly(), "tell gateways", self.fail)
        try:
            await self.workers.start()
            await self._ended.wait()
            await asyncio.wait(tasks)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            await end_tasks(*tasks, telling)
            if self._telling is not None:
                self._telling.cancel()
            for source in self._acceptors:
                source.close()
            self._limiter.close()
            await self.workers.stop()
            self._directory.remove()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Drain, then end. The second call ends the gateways at once."""
        if not self._is_stopping:
            self._is_stopping = True
            asyncio.get_running_loop().call_later(
                self._settings.server.timeouts.drain_timeout_s + _END_S, self._end_now
            )
        for gateway in self._gateways:
            _signal(gateway, signal.SIGTERM)  # the second one ends a gateway at once
        self._ended.set()

    def fail(self) -> None:
        """Shut down with an error: a required task has ended, or a worker is no longer supervised."""
        self._error = self._error or InternalError("a part of the server failed; its log says which")
        if not self._is_stopping:
            self.stop()

    def _end_now(self) -> None:
        for gateway in self._gateways:
            _signal(gateway, signal.SIGKILL)

    def _shared(self, settings: Settings) -> Settings:
        """Return the settings for the gateways: shared files instead of per-process state, and the cores divided."""
        path = self._directory.path
        os.mkdir(os.path.join(path, "figures"))
        values = flatten(settings)
        if not values["token_secret_file"]:
            secret = os.path.join(path, "token-secret")
            with open(secret, "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe(48))
            values["token_secret_file"] = secret
        if not self._keeps_voices:
            values["voices_dir"] = os.path.join(path, "voices")
        values["encoder_threads"] = max(1, min(8, usable_cores() // values["gateways"]))
        return build(Settings, values)

    # ---- gateways ------------------------------------------------------------------------------------------------

    async def _keep(self, index: int) -> None:
        while not self._is_stopping:
            try:
                await self._run_gateway(self._gateways[index])
            except (OSError, WireError) as error:
                log_event("gateway_failed", logging.ERROR, gateway=index, error=type(error).__name__)
            if not self._is_stopping:
                log_event("gateway_ended", logging.WARNING, gateway=index)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), _BACKOFF_S)

    async def _run_gateway(self, gateway: _Gateway) -> None:
        """Run one gateway process from its start to its end."""
        for source in ("gateway", "metrics"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(receiver_path(self._directory.path, source, gateway.index))
        figures = os.path.join(self._directory.path, "figures")
        command = (*_GATEWAY_COMMAND, "--directory", os.path.join(self._directory.path, ""))
        process, reader, writer = await start_child(command, {**os.environ, "PROMETHEUS_MULTIPROC_DIR": figures})
        gateway.process, gateway.writer = process, writer
        gateway.watchdog = Watchdog(_START_S, asyncio.get_running_loop().time())
        try:
            if self._is_stopping:
                _signal(gateway, signal.SIGTERM)
            self._directory.note_worker(*self.gateway_pids)
            self._greet(gateway)
            # Until the process ends, sends an invalid message, or is silent for too long.
            await until_one_ends(self._listen(gateway, reader), self._watch(gateway), process.wait())
        finally:
            writer.transport.abort()
            await end_child(process)
            mark_process_dead(gateway.index, figures)
            self._slot_table.clear(gateway.index)
            self._tell_soon()
            self._gateways[gateway.index] = _Gateway(gateway.index, has_served=gateway.has_served)

    def _greet(self, gateway: _Gateway) -> None:
        engine = self._settings.engine
        if self._has_been_ready:  # a replacement must start even if an adapter can no longer be loaded
            engine = dataclasses.replace(engine, adapters=())
        settings = dataclasses.replace(self._settings, engine=engine)
        gateway.send(messages.Begin(settings, self.workers.names, gateway.index, self._address))
        for supervisor in self.workers.announced:
            gateway.send(messages.WorkerReady(supervisor.spec.name, supervisor.clients_path))
        for name in {**dict(engine.adapters), **self._adapters}:
            gateway.send(messages.AdapterChanged(name, self._adapters.get(name, ""), -1))
        self._tell(gateway)

    async def _listen(self, gateway: _Gateway, reader: asyncio.StreamReader) -> None:
        while (message := await messages.read(reader)) is not None:
            self._take(gateway, message)
        if self._is_stopping:
            await asyncio.Event().wait()  # the process is shutting down

    async def _watch(self, gateway: _Gateway) -> None:
        await until_silent(gateway.watchdog)
        if self._is_stopping:
            await asyncio.Event().wait()  # the process is shutting down
        log_event("gateway_silent", logging.ERROR, gateway=gateway.index)

    def _take(self, gateway: _Gateway, message: messages.Message) -> None:
        if isinstance(message, messages.Report):
            gateway.heard_at = asyncio.get_running_loop().time()
            gateway.watchdog.sign_of_life(_HANG_S)
            gateway.num_told, gateway.num_open = message.num_given, message.num_open
            for other in self._others(gateway):
                other.untold += message.charges
            if self._slot_table.report(gateway.index, message.counts, message.num_answers) or message.charges:
                self._tell_soon()
            self._start_accepting()
        elif isinstance(message, SlotRequest):
            gateway.send(self._slot_table.answer(gateway.index, message))
        elif isinstance(message, messages.LoadModel):
            self.workers.load()
        elif isinstance(message, messages.VoicesChanged):
            for other in self._others(gateway):
                other.send(message)
        elif isinstance(message, messages.AdapterChanged):
            self._adapter_changed(message)
        elif isinstance(message, messages.GatewayFailed):
            self._gateway_failed(gateway, message)
        elif isinstance(message, messages.Serving):
            gateway.is_serving = gateway.has_served = True
            if not self._has_been_ready and all(one.has_served for one in self._gateways):
                self._has_been_ready = True
                ending = {} if self._keeps_voices else {"Added voices": "0, which end with the server"}
                self._on_ready(message.rows | ending)

    def _gateway_failed(self, gateway: _Gateway, message: messages.GatewayFailed) -> None:
        """Log why a gateway ends. Before the host has been ready, shut down for an error that a retry would repeat."""
        error = error_from_code(message.code, message.message)
        if self._has_been_ready or error.retryable:
            log_event("gateway_failed", logging.ERROR, gateway=gateway.index, error=error.code, message=error.message)
        elif not self._is_stopping:
            self._error = error
            self.stop()

    def _adapter_changed(self, message: messages.AdapterChanged) -> None:
        if message.directory:
            self._adapters[message.name] = message.directory
        else:
            self._adapters.pop(message.name, None)
        for gateway in self._gateways:
            gateway.send(message)

    # ---- what each holds -----------------------------------------------------------------------------------------

    def _others(self, gateway: _Gateway) -> list[_Gateway]:
        return [other for other in self._gateways if other is not gateway]

    def _tell_soon(self) -> None:
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(_TELL_AFTER_S, self._tell_all)

    def _tell_all(self) -> None:
        self._telling = None
        for gateway in self._gateways:
            self._tell(gateway)

    def _tell(self, gateway: _Gateway) -> None:
        charges, gateway.untold = gateway.untold, []
        gateway.send(
            messages.PeerNews(
                charges,
                self._slot_table.others(gateway.index),
                self.workers.num_restarts,
                self.workers.totals,
                self.workers.devices,
                self.workers.is_unloaded,
            )
        )

    async def _tell_regularly(self) -> None:
        """Unload an unused model, and send the engine's counters, which change without a message from a gateway."""
        while True:
            await asyncio.sleep(SIGN_OF_LIFE_S)
            # A gateway that starts waits for a worker.
            is_used = self._slot_table.is_used or not all(gateway.is_serving for gateway in self._gateways)
            self.workers.note_use(is_used, asyncio.get_running_loop().time())
            self._tell_all()

    # ---- connections ---------------------------------------------------------------------------------------------

    def _start_accepting(self) -> None:
        """Start accepting connections, when the first gateway can take them."""
        if not self._is_accepting:
            self._is_accepting = True
            for source, name in zip(self._acceptors, ("gateway", "metrics"), strict=False):
                source.start(functools.partial(self._deal, name))

    def _deal(self, source: str, connection: socket.socket, received: bytes = b"") -> None:
        """Give a connection to the gateway with the fewest connections."""
        now = asyncio.get_running_loop().time()
        are_busy = False
        for gateway in sorted(self._gateways, key=functools.partial(_rank, now)):
            if gateway.heard_at is None:
                continue
            try:
                path = receiver_path(self._directory.path, source, gateway.index)
                is_taken = hand_over(path, connection.fileno(), received)
            except OSError:  # the process has just ended
                continue
            if is_taken:
                gateway.num_given += source == "gateway"
                connection.close()
                return
            are_busy = True
        if are_busy:
            asyncio.get_running_loop().call_later(_DEAL_AGAIN_S, self._deal, source, connection)
        else:
            self._limiter.refuse(connection)

    # ---- workers -------------------------------------------------------------------------------------------------

    def _worker_ready(self, name: str, path: str) -> None:
        for gateway in self._gateways:
            gateway.send(messages.WorkerReady(name, path))

    def _worker_lost(self, name: str) -> None:
        self._tell_all()  # first: the model may no longer be unloaded
        for gateway in self._gateways:
            gateway.send(messages.WorkerLost(name))

    def _start_failed(self, error: RealtimeTTSError) -> None:
        if not self._has_been_ready and not self._is_stopping:
            self._error = error
            self.stop()


def _rank(now: float, gateway: _Gateway) -> tuple[bool, bool, int, int]:
    """Return the sort key of a gateway for new connections; the smallest is preferred."""
    is_silent = gateway.heard_at is None or now - gateway.heard_at > _SILENT_S
    return is_silent, not gateway.is_serving, gateway.num_connections, gateway.num_given


def _signal(gateway: _Gateway, number: signal.Signals) -> None:
    if gateway.process is not None:
        signal_child(gateway.process, number)
