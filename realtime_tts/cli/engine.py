"""From settings to an engine client with its workers."""

from __future__ import annotations

from realtime_tts.config import EngineConfig
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.supervisor import SupervisorConfig, WorkerSpec, worker_command


def make_engine(config: EngineConfig) -> EngineClient:
    """One worker for each device; not started yet."""
    extra = ("--max-load", str(config.max_load)) if config.max_load else ()
    specs = [
        WorkerSpec(
            worker_command(
                config.model,
                device,
                dtype=None if config.dtype == "auto" else config.dtype,
                threads=config.threads or None,
                max_streams=config.max_streams or None,
                num_blocks=config.num_blocks or None,
            )
            + extra,
            name=f"worker-{index}",
        )
        for index, device in enumerate(config.devices)
    ]
    supervision = SupervisorConfig(ready_timeout_s=config.worker_start_timeout_s, hang_s=config.worker_hang_timeout_s)
    return EngineClient(specs, supervision)
