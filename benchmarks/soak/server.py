"""The gateway of a campaign, as a process of its own: `realtime-tts serve` with a census of its resources.

    python -m benchmarks.soak.server '{"fake": false, "settings": {"port": 8123}}'

`/metrics` includes the census: tasks, sessions, requests and the engine's figures at that moment, with the prefix
`soak_`. `worker`: options of the fake worker.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from realtime_tts.cli.engine import worker_specs
from realtime_tts.config_loader import load_settings
from realtime_tts.contract.heap import give_back
from realtime_tts.server.gateway import Gateway
from realtime_tts.server.logs import configure_logging
from realtime_tts.server.run import GatewayServer, serve
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.pool import WorkerPool
from realtime_tts.workers.supervisor import WorkerSpec

GIVE_BACK_EVERY_S = 15.0  # less than a block of the slope's
_FAKE_WORKER = Path(__file__).resolve().parents[2] / "tests" / "support" / "fake_worker.py"


class Census(Collector):
    """Collector of figures that must be as before once no speech is active; `busy_` figures must be 0."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[GaugeMetricFamily]:
        gateway, stats, ready = self._gateway, self._gateway.engine.stats, self._gateway.engine.ready
        figures = {
            "tasks": len(asyncio.all_tasks()),
            "busy_sessions": len(gateway.sessions),
            "busy_sockets": len(gateway.admission.slots.sockets),
            "busy_owners": len(gateway.admission.slots.owners),
            "busy_requests": gateway.engine.num_requests,
            "busy_contexts": sum(len(live.session.contexts.sending()) for live in gateway.sessions.values()),
            "busy_engine_contexts": sum(stat.contexts for stat in stats),
            "busy_streams": sum(stat.running + stat.waiting + stat.parked for stat in stats),
            "busy_blocks": sum(stat.num_blocks - stat.free_blocks for stat in stats),
            "busy_slots": sum(ready.max_streams - stat.free_slots for stat in stats) if ready else 0,
            "workers": len(stats),
        }
        for name, value in figures.items():
            yield GaugeMetricFamily(f"soak_{name}", "Census of the soak", value)


async def give_back_for_ever() -> None:
    """Collect garbage and return free memory, so that growth is growth."""
    while True:
        await asyncio.sleep(GIVE_BACK_EVERY_S)
        await asyncio.to_thread(gc.collect)
        await asyncio.to_thread(give_back)


def main() -> None:
    options: dict[str, Any] = json.loads(sys.argv[1])
    settings = load_settings(options["settings"], {})
    configure_logging(settings.server.log_level, settings.server.log_format)
    if options["fake"]:
        flags = [str(part) for option in options["worker"].items() for part in option]
        engine = EngineClient([WorkerSpec(command=(sys.executable, str(_FAKE_WORKER), *flags))])
    else:
        engine = EngineClient(WorkerPool(worker_specs(settings.engine, settings.server)))
    kept: list[asyncio.Task[None]] = []  # the loop holds tasks weakly

    def on_ready(server: GatewayServer, url: str) -> None:
        server.gateway.metrics.registry.register(Census(server.gateway))
        kept.append(asyncio.get_running_loop().create_task(give_back_for_ever()))

    asyncio.run(serve(settings, engine, on_ready))


if __name__ == "__main__":
    main()
