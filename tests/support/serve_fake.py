"""`realtime-tts serve` with a fake worker, as a process of its own: for tests that send signals, or run in another
environment than the server's.

Arguments: settings as JSON, and the worker's options as JSON if it is to have some; `num_workers` for more than one.
With `model` among the options the worker is a real one, of this model, on the device `device`.
With TELL_FIRSTS in the environment, what modules it loads, what patterns it compiles and what parsers pydantic builds
once it is ready is told on stderr; short patterns take a tenth of a millisecond and are left out.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import json
import os
import sys
import threading

from fake_worker import fake_worker_command
from pydantic import TypeAdapter
from some_settings import make_settings

from realtime_tts.config import Settings
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.server.host.process import Host
from realtime_tts.server.logs import configure_logging
from realtime_tts.server.run import serve
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.pool import WorkerPool
from realtime_tts.workers.supervisor import WorkerSpec

MAX_SHORT_PATTERN = 40  # characters


class ImportTeller:
    """A finder that finds nothing."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        tell(f"loading {name}")


def tell(what: str) -> None:
    sys.stderr.write(f"{what}, thread {threading.current_thread().name}\n")


def tell_firsts() -> None:
    sys.meta_path.insert(0, ImportTeller())
    compiler = importlib.import_module("re._compiler")
    compile_pattern = compiler.compile

    def telling(pattern: object, flags: int = 0) -> object:
        if len(str(pattern)) > MAX_SHORT_PATTERN:
            tell(f"compiling {pattern!r:.80}")
        return compile_pattern(pattern, flags)

    compiler.compile = telling
    build = TypeAdapter.__init__

    def telling_build(self: TypeAdapter[object], *args: object, **kwargs: object) -> None:
        if threading.current_thread() is threading.main_thread():  # the schema of all routes is made in another
            tell(f"building {args[0]!r:.80}")
        build(self, *args, **kwargs)  # type: ignore[arg-type]

    TypeAdapter.__init__ = telling_build  # type: ignore[method-assign]


def announce(url: str, workers: list[int], gateways: list[int]) -> None:
    sys.stdout.write(json.dumps({"url": url, "workers": workers, "gateways": gateways}) + "\n")
    sys.stdout.flush()
    if "TELL_FIRSTS" in os.environ:
        tell_firsts()


async def run(settings: Settings, workers: WorkerPool) -> None:
    def pids() -> list[int]:
        return [supervisor.pid for supervisor in workers.supervisors if supervisor.pid is not None]

    if settings.server.gateways > 1:
        host = Host(settings, workers, lambda rows: announce(rows["Playground"], pids(), host.gateway_pids))
        await host.run()
    else:
        await serve(settings, EngineClient(workers), lambda _, url: announce(url, pids(), [os.getpid()]))


def main() -> None:
    settings = make_settings(json.loads(sys.argv[1]), {"REALTIME_TTS_PORT": "0", **os.environ})
    configure_logging(settings.server.log_level, settings.server.log_format)
    worker_options = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    num_workers = worker_options.pop("num_workers", 1)
    model, device = worker_options.pop("model", ""), worker_options.pop("device", "auto")
    fake = fake_worker_command(**worker_options)
    spec = WorkerSpec(EngineOptions(model, device)) if model else WorkerSpec(command=fake)
    specs = [dataclasses.replace(spec, name=f"worker-{index}", backoff_s=0.1) for index in range(num_workers)]
    asyncio.run(run(settings, WorkerPool(specs, settings.server.timeouts.unload_after_s)))


if __name__ == "__main__":
    main()
