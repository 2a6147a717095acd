"""Run the gateway: uvicorn with this package's protocols, a separate metrics port, and a graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

import uvicorn
from fastapi import FastAPI

from realtime_tts.config import ServerConfig, Settings
from realtime_tts.contract.watch import end_tasks, watch
from realtime_tts.errors import ConfigError, InternalError
from realtime_tts.server.admission.connection_limiter import (
    Acceptor,
    ConnectionLimiter,
    ConnectionSource,
    max_connections,
)
from realtime_tts.server.app import create_app, create_metrics_app, metrics_on_main_port
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.host.heap import limit_arenas
from realtime_tts.server.host.pause import pause
from realtime_tts.server.stream.socket_protocol import protocol_classes
from realtime_tts.workers.client import EngineClient

_CLOSE_CONNECTIONS_S = 3
_DATE_EVERY_S = 1.0
_METRICS_CONNECTIONS = 32
# Every socket write releases the GIL. To get it back, the event loop waits for each other busy thread up to this long;
# with Python's default that is 5 ms a thread.
_SWITCH_INTERVAL_S = 0.0005


class BoundedServer(uvicorn.Server):
    """uvicorn's server with a connection limiter.

    Attributes:
        connected: set when a connection arrives; the task that waits for it clears it.
        should_exit: uvicorn's attribute; setting it wakes `main_loop`.
    """

    def __init__(self, config: uvicorn.Config, source: ConnectionSource, max_connections: int) -> None:
        self._should_exit, self._woken = False, asyncio.Event()
        super().__init__(config)
        self.connected = asyncio.Event()
        self._source = source
        self.limiter = ConnectionLimiter(self._make_protocol, self.server_state.connections, max_connections)
        self.num_new = 0  # connections so far, without those that a peer handed over

    @property
    def should_exit(self) -> bool:
        return self._should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self._should_exit = value
        self._woken.set()

    async def main_loop(self) -> None:
        """Run until `should_exit`. uvicorn's own loop polls it ten times a second."""
        while not await self.on_tick(0):  # updates the date header
            await pause(_DATE_EVERY_S, self._woken)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])  # uvicorn does not listen itself
        self._source.start(self._admit)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._source.close()
        self.limiter.close()
        await super().shutdown(sockets=[])

    def _admit(self, connection: socket.socket, received: bytes) -> None:
        if not received:  # a peer hands a connection over with its handshake, and has counted it before
            self.num_new += 1
        self.connected.set()
        self.limiter.admit(connection, received)

    def _make_protocol(self) -> asyncio.Protocol:
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


class GatewayServer(BoundedServer):
    """Server of a gateway. The first SIGTERM or SIGINT drains, the second one ends at once."""

    def __init__(self, app: FastAPI, source: ConnectionSource, address: Address) -> None:
        self.gateway: Gateway = app.state.gateway
        config = self.gateway.settings.server
        super().__init__(server_config(app, config), source, max_connections(config.limits.max_connections))
        self.address = address
        self._drain_task: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # It also wakes the event loop, which a signal alone does not.
        asyncio.get_running_loop().call_soon_threadsafe(self.stop)

    def stop(self) -> None:
        """Drain, then exit. The second call exits at once."""
        if self._drain_task is None:
            self._drain_task = watch(self._drain(), "drain", self.exit_now)
        else:
            self.exit_now()

    def exit_now(self) -> None:
        """Exit without waiting for running speech."""
        self.force_exit = self.should_exit = True

    async def _drain(self) -> None:
        await self.gateway.drain(self.gateway.settings.server.timeouts.drain_timeout_s)
        self.should_exit = True


class _SideServer(BoundedServer):
    """Second server in the same event loop; the first one handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """Address of the server. `metrics_port`: the separate metrics port; None if it is the main port."""

    url: str
    metrics_port: int | None


async def serve(settings: Settings, engine: EngineClient, on_ready: Callable[[GatewayServer, str], None]) -> None:
    """Serve as the only gateway, until SIGTERM or SIGINT.

    Args:
        on_ready: called once the model is loaded, with the server and its base URL. Its exception ends the server.

    Raises:
        ConfigError: an address cannot be bound, or settings contradict each other.
        RealtimeTTSError: the engine did not start.
        InternalError: a part of the server failed, so it shut down.
    """
    app = create_app(settings, engine)
    address, listeners = bind(settings)
    source, *side_sources = map(Acceptor, listeners)
    await serve_at(GatewayServer(app, source, address), side_sources, on_ready)


async def serve_at(
    server: GatewayServer, side_sources: Sequence[ConnectionSource], on_ready: Callable[[GatewayServer, str], None]
) -> None:
    """Serve the connections of the server's source, and metrics from a side source if there is one. See `serve`."""
    limit_arenas()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gateway = server.gateway
    gateway.on_failed = server.stop
    sides = [_metrics_server(gateway, source) for source in side_sources]
    watcher = asyncio.create_task(_watch_start(gateway, server, on_ready), name="watch start")
    serving_sides = [watch(side.serve(), "serve metrics", gateway.fail) for side in sides]
    try:
        await server.serve()
    finally:
        for side in sides:
            side.should_exit = True
        await asyncio.gather(*serving_sides, return_exceptions=True)
        await end_tasks(watcher)
        if server.started:
            await server.lifespan.shutdown()  # a forced exit skips it, and workers must end too
        await gateway.close()
    if gateway.availability.start_error is not None:
        raise gateway.availability.start_error
    if not watcher.cancelled():
        watcher.result()
    if gateway.has_failed:
        raise InternalError("a part of the server failed; its log says which")


def server_config(app: FastAPI, config: ServerConfig) -> uvicorn.Config:
    """Return uvicorn's settings. No compression: Opus does not shrink, and deflate takes memory for each socket."""
    http, stream = protocol_classes(config.timeouts.handshake_timeout_s, config.timeouts.close_timeout_s)
    return uvicorn.Config(
        app,
        http=http,
        ws=stream,
        # Larger than the message limit, so that a slightly too long message gets an error, not a close.
        ws_max_size=4 * config.limits.max_message_bytes,
        ws_ping_interval=config.timeouts.ping_interval_s,
        ws_ping_timeout=config.timeouts.ping_timeout_s,
        ws_per_message_deflate=False,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_CLOSE_CONNECTIONS_S,
        lifespan="on",
    )


def bind(settings: Settings) -> tuple[Address, list[socket.socket]]:
    """Return the address, and the bound sockets: for clients and, if it has a separate port, for metrics.

    Raises:
        ConfigError: an address cannot be bound.
    """
    config = settings.server
    listener = _bind(config.host, config.port, "port")
    if metrics_on_main_port(settings):
        return Address(base_url(listener), None), [listener]
    try:
        metrics_listener = _bind(config.metrics_host, config.metrics_port, "metrics_address")
    except ConfigError:
        listener.close()
        raise
    return Address(base_url(listener), metrics_listener.getsockname()[1]), [listener, metrics_listener]


def base_url(listener: socket.socket) -> str:
    """Return the base URL, e.g. ``http://127.0.0.1:8000``, with the port that was bound."""
    return _url(*listener.getsockname()[:2])


def _url(host: str, port: int) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def describe(server: GatewayServer) -> dict[str, str]:
    """Return the rows to print when the server is ready, by their names."""
    catalogue, address = server.gateway.catalogue, server.address
    ready = catalogue.ready
    names = ", ".join(voice.id for voice in catalogue.voices().voices)
    needs_key = server.gateway.admission.authenticator.required
    rows = {
        "Playground": address.url,
        "WebSocket": address.url.replace("http", "ws", 1) + "/v1/stream",
        "Interface": f"{address.url}/docs",
        "Model": f"{ready.model}, {ready.sample_rate} Hz, loaded in {ready.load_s:.1f} s",
        "Voices": f"{names} (default: {catalogue.defaults.default_voice})",
        "Added voices": _about_added(server.gateway),
        "Device": server.gateway.engine.device_words(ready),
        "Access": "an API key is needed" if needs_key else "no key is needed, and only this machine can connect",
    }
    if address.metrics_port is not None:
        rows["Metrics"] = _url(server.gateway.settings.server.metrics_host, address.metrics_port) + "/metrics"
    return rows


def _about_added(gateway: Gateway) -> str:
    number = len(gateway.voices.all_added())
    if gateway.store is None:
        return f"{number}, which end with the server"
    shared = (
        " (all servers of this user share it: --voices-dir)"
        if gateway.settings.server.voices.voices_dir == "auto"
        else ""
    )
    return f"{number}, kept in {gateway.store.directory}{shared}"


async def _watch_start(gateway: Gateway, server: GatewayServer, on_ready: Callable[[GatewayServer, str], None]) -> None:
    await gateway.started.wait()
    try:
        if gateway.availability.start_error is not None:
            server.should_exit = True
        else:
            on_ready(server, server.address.url)
    except BaseException:
        server.should_exit = True  # the exception is raised after the server has ended
        raise


def _metrics_server(gateway: Gateway, source: ConnectionSource) -> _SideServer:
    config = server_config(create_metrics_app(gateway), gateway.settings.server)
    config.lifespan, config.ws = "off", "none"
    return _SideServer(config, source, _METRICS_CONNECTIONS)


def _bind(host: str, port: int, field: str) -> socket.socket:
    try:
        infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = infos[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        option = field.replace("_", "-")
        taken = error.errno == errno.EADDRINUSE
        hint = f"; another server may run there: stop it, or choose another --{option}" if taken else ""
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}{hint}", field=field) from error
    return listener
