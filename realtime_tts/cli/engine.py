"""Creation of workers from settings."""

from __future__ import annotations

import sys
from dataclasses import replace

from realtime_tts.config import EngineConfig
from realtime_tts.workers.supervisor import WorkerSpec


def worker_specs(config: EngineConfig, *, quiet: bool = False) -> list[WorkerSpec]:
    """Return the specification of one worker for each device.

    Args:
        quiet: no log and no warnings, for interactive commands; a download still shows its progress.
    """
    specs = [WorkerSpec(config.options(device), f"worker-{index}") for index, device in enumerate(config.devices)]
    if not quiet:
        return specs
    command = (sys.executable, "-W", "ignore", *specs[0].command[1:])
    options = [replace(spec.options, worker_log_level="critical") for spec in specs]
    return [replace(spec, command=command, options=own) for spec, own in zip(specs, options, strict=True)]
