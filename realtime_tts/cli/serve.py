"""``realtime-tts serve``"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from realtime_tts.cli.options import (
    ENGINE_ROWS,
    SERVER_ROWS,
    all_settings_option,
    config_option,
    read_settings,
    setting_options,
)

if TYPE_CHECKING:
    from realtime_tts.server.run import GatewayServer

_SHOWN = ("model", "devices", "threads", "host", "port", "api_key_file", "allowed_origins", "log_level", "log_format")
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
--config names. Stop with Ctrl-C: speech that is under way may end; press it twice to stop at once.
"""


@click.command("serve", epilog=_EPILOG)
@setting_options((*ENGINE_ROWS, *SERVER_ROWS), shown=_SHOWN)
@config_option
@all_settings_option
def command(config_path: Path | None, **flags: Any) -> None:
    """Start the server: the playground page, the WebSocket API, health and metrics."""
    settings = read_settings(flags, config_path)
    from realtime_tts.cli.engine import make_engine
    from realtime_tts.server.logs import configure_logging
    from realtime_tts.server.run import serve

    configure_logging(settings.server.log_level, settings.server.log_format)
    click.echo(f"Loading {settings.engine.model} …", err=True)

    async def run() -> None:
        await serve(settings, make_engine(settings.engine), announce)

    asyncio.run(run())


def announce(server: GatewayServer, url: str) -> None:
    """Tell a person at the terminal where to go next."""
    catalogue = server.gateway.catalogue
    ready = catalogue.ready
    names = ", ".join(voice["id"] for voice in catalogue.voices()["voices"])
    needs_key = server.gateway.authenticator.required
    access = "an API key is needed" if needs_key else "no key is needed, and only this machine can connect"
    rows = {
        "Playground": click.style(url, bold=True),
        "WebSocket": url.replace("http", "ws", 1) + "/v1/stream",
        "Interface": f"{url}/docs",
        "Model": f"{ready.model}, {ready.sample_rate} Hz, ready after {ready.load_s + ready.warmup_s:.1f} s",
        "Voices": f"{names} (default: {catalogue.defaults.default_voice})",
        "Device": f"{ready.device}, {ready.dtype}, attention {ready.backend}, up to {ready.max_streams} streams",
        "Access": access,
    }
    if server.metrics_port is not None:
        rows["Metrics"] = f"http://{server.gateway.settings.server.metrics_host}:{server.metrics_port}/metrics"
    width = max(map(len, rows))
    lines = [f"  {name:<{width}}  {value}" for name, value in rows.items()]
    click.echo("\n".join(["", *lines, ""]), err=True)
