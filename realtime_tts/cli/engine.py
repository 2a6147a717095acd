"""Creation of workers from settings."""

from __future__ import annotations

import sys
from dataclasses import replace

from realtime_tts.config import EngineConfig
from realtime_tts.workers.pool import WorkerPool
from realtime_tts.workers.supervisor import SupervisorConfig, WorkerSpec


def worker_specs(config: EngineConfig, *, quiet: bool = False) -> list[WorkerSpec]:
    """Return the specification of one worker for each device.

    Args:
        quiet: no log and no warnings, for interactive commands; a download still shows its progress.
    """
    specs = [WorkerSpec(config.options(device), f"worker-{index}") for index, device in enumerate(config.devices)]
    if not quiet:
        return specs
    command = (sys.executable, "-W", "ignore", *specs[0].command[1:])
    return [replace(spec, command=command, options=replace(spec.options, log_level="critical")) for spec in specs]


def make_workers(config: EngineConfig) -> WorkerPool:
    """Return the workers, which are not started yet."""
    supervision = SupervisorConfig(ready_timeout_s=config.worker_start_timeout_s, hang_s=config.worker_hang_timeout_s)
    return WorkerPool(worker_specs(config), supervision)
