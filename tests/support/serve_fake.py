"""`realtime-tts serve` with a fake worker, as a process of its own: for tests that send signals, or run in another
environment than the server's.

Arguments: settings as JSON, and the worker's options as JSON if it is to have some.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from fake_worker import fake_worker_command
from processes import worker_pids

from realtime_tts.config_loader import load_settings
from realtime_tts.server.logs import configure_logging
from realtime_tts.server.run import GatewayServer, serve
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.supervisor import SupervisorConfig, WorkerSpec


def announce(server: GatewayServer, url: str) -> None:
    sys.stdout.write(json.dumps({"url": url, "workers": worker_pids(server.gateway.engine)}) + "\n")
    sys.stdout.flush()


def main() -> None:
    settings = load_settings(json.loads(sys.argv[1]), {**os.environ, "REALTIME_TTS_PORT": "0"})
    configure_logging(settings.server.log_level, settings.server.log_format)
    worker_options = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    engine = EngineClient([WorkerSpec(fake_worker_command(**worker_options))], SupervisorConfig(backoff_s=0.1))
    asyncio.run(serve(settings, engine, announce))


if __name__ == "__main__":
    main()
