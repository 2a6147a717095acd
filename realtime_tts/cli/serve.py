"""``realtime-tts serve``"""

from __future__ import annotations

import asyncio
import dataclasses
import signal
from pathlib import Path

import click

from realtime_tts.cli.options import read_settings, setting_options

_SHOWN = (
    "model",
    "devices",
    "threads",
    "host",
    "port",
    "gateways",
    "api_key_file",
    "allowed_origins",
    "log_level",
    "log_format",
)
_EPILOG = """\b
Examples:
  realtime-tts serve
      The bundled voice, on http://127.0.0.1:8000, for this machine only.
  realtime-tts serve --model openbmb/VoxCPM2 --devices cuda:0,cuda:1
      A large model, one worker on each of two GPUs. It is downloaded on the first start.
  realtime-tts keys create --append hashes.txt
  realtime-tts serve --host 0.0.0.0 --api-key-file hashes.txt
      For other machines, which then need the key.

Each setting is also an environment variable (--log-level: REALTIME_TTS_LOG_LEVEL) and an entry of the file that
--config names. Stop with Ctrl-C: speech that is under way may end; press it twice to stop at once. SIGHUP replaces
the workers, one after the other, each when its contexts have ended.
"""


@click.command("serve", epilog=_EPILOG)
@setting_options(shown=_SHOWN)
def command(config_path: Path | None, **flags: object) -> None:
    """Start the server: the playground page, the WebSocket API, health and metrics."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there are workers to replace; it would end the process
    settings = read_settings(flags, config_path)
    from realtime_tts.cli.checks import check_engine
    from realtime_tts.cli.engine import worker_specs
    from realtime_tts.server.host.gateway_count import gateway_count
    from realtime_tts.server.host.process import Host
    from realtime_tts.server.logs import configure_logging, log_event
    from realtime_tts.server.run import describe, serve
    from realtime_tts.workers.client import EngineClient
    from realtime_tts.workers.pool import WorkerPool

    configure_logging(settings.server.log_level, settings.server.log_format)
    check_engine(settings.engine)
    is_json = settings.server.log_format == "json"
    if is_json:
        log_event("loading", model=settings.engine.model)
    else:
        click.echo(f"Loading {settings.engine.model} …", err=True)

    count = gateway_count(settings)
    about_gateways = {"Gateways": f"{count.number} process{'es' * (count.number > 1)}: {count.reason}"}

    def tell(rows: dict[str, str]) -> None:
        rows |= about_gateways
        if is_json:
            log_event("serving", **{name.lower().replace(" ", "_"): value for name, value in rows.items()})
        else:
            show(rows)

    async def run() -> None:
        workers = WorkerPool(worker_specs(settings.engine, settings.server), settings.server.timeouts.unload_after_s)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, workers.replace_all)
        if count.number > 1:
            server = dataclasses.replace(settings.server, gateways=count.number)
            resolved = dataclasses.replace(settings, server=server)
            await Host(resolved, workers, tell).run()
        else:
            await serve(settings, EngineClient(workers), lambda server, _: tell(describe(server)))

    asyncio.run(run())


def show(rows: dict[str, str]) -> None:
    """Print the addresses and properties of the server on stderr."""
    width = max(map(len, rows))
    first, *others = rows.items()
    lines = [f"  {name:<{width}}  {value}" for name, value in ((first[0], click.style(first[1], bold=True)), *others)]
    click.echo("\n".join(["", *lines, ""]), err=True)
