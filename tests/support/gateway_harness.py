"""A gateway with a fake worker, on a real socket, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fake_worker import fake_worker_command
from fastapi import FastAPI
from some_settings import make_settings

from realtime_tts.server import gateway as gateway_module
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.run import GatewayServer, serve
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.pool import WorkerPool
from realtime_tts.workers.supervisor import WorkerSpec

T = TypeVar("T")

SETTLE_S = 10.0


async def _keep_heap(run: object) -> None:
    await asyncio.Event().wait()


# Garbage of all tests before would be collected each time, and none of it can be frozen: see `conftest.py`.
gateway_module.settle_heap = lambda: None
gateway_module.keep_heap_small = _keep_heap


@dataclasses.dataclass(frozen=True)
class Usage:
    """What must be as before when a test is over."""

    sessions: int
    connections: int
    requests: int
    engine_contexts: int
    unfinished_contexts: int
    tasks: int


class GatewayHarness:
    """Use as a context manager; `url` and `ws_url` are ready inside."""

    def __init__(
        self,
        worker: dict[str, object] | None = None,
        num_workers: int = 1,
        hang_s: float = 30.0,  # on a busy machine a worker may be silent for seconds
        engine: dict[str, Any] | None = None,
        **server: Any,
    ) -> None:
        quiet = {"port": 0, "metrics_address": "127.0.0.1:0", "max_late_ms": 0.0, "voices_dir": "none"}
        self.settings = make_settings({**quiet, **(engine or {}), **server})
        self._worker_options = worker or {}
        self._num_workers, self._hang_s = num_workers, hang_s
        self.server: GatewayServer
        self.gateway: Gateway
        self.url = ""
        self.error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._ready = threading.Event()
        # A daemon: if the gateway does not stop, the tests end all the same.
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)

    def __enter__(self) -> GatewayHarness:
        self._thread.start()
        if not self._ready.wait(100):
            raise TimeoutError("the gateway did not get ready")
        if self.error is not None:
            self._thread.join()
            raise self.error
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self.server.exit_now)
        self._thread.join(60)
        assert not self._thread.is_alive(), "the gateway did not stop"

    @property
    def ws_url(self) -> str:
        return self.url.replace("http", "ws", 1) + "/v1/stream"

    @property
    def app(self) -> FastAPI:
        app = self.server.config.app
        assert isinstance(app, FastAPI)
        return app

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the gateway's loop."""

        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(60)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the gateway's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def usage(self) -> Usage:
        return self.call(self._usage)

    def settle(self, baseline: Usage) -> Usage:
        """The usage once it is back at the baseline, or what it is after ten seconds."""
        end = time.monotonic() + SETTLE_S
        while (usage := self.usage()) != baseline and time.monotonic() < end:
            time.sleep(0.02)
        return usage

    def metric(self, name: str, **labels: str) -> float:
        value = self.gateway.metrics.registry.get_sample_value(f"realtime_tts_{name}", labels)
        return value or 0.0

    def _usage(self) -> Usage:
        gateway = self.gateway
        return Usage(
            sessions=len(gateway.sessions),
            connections=len(gateway.admission.slots.sockets)
            + sum(live._connection is not None for live in gateway.sessions.values()),
            requests=gateway.engine.num_requests,
            engine_contexts=sum(stats.contexts for stats in gateway.engine.stats),
            unfinished_contexts=sum(len(live.session.contexts.sending()) for live in gateway.sessions.values()),
            tasks=len(asyncio.all_tasks()),
        )

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self.error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        command = fake_worker_command(**self._worker_options)
        specs = [
            WorkerSpec(command=command, name=f"worker-{index}", backoff_s=0.1, hang_s=self._hang_s)
            for index in range(self._num_workers)
        ]
        engine = EngineClient(WorkerPool(specs, self.settings.server.timeouts.unload_after_s))
        await serve(self.settings, engine, self._on_ready)

    def _on_ready(self, server: GatewayServer, url: str) -> None:
        self.server, self.gateway, self.url = server, server.gateway, url
        self._ready.set()
