"""Creation of workers from settings."""

from __future__ import annotations

import sys
from dataclasses import replace

from realtime_tts.config import EngineConfig, ServerConfig
from realtime_tts.workers.supervisor import WorkerSpec


def worker_specs(config: EngineConfig, server: ServerConfig | None = None) -> list[WorkerSpec]:
    """Return the specification of one worker for each device.

    Args:
        server: the settings of the workers' log. None: no log and no warnings, for interactive commands; a download
            still shows its progress.
    """
    specs = [WorkerSpec(config.options(device), f"worker-{index}") for index, device in enumerate(config.devices)]
    if server is None:
        command = (sys.executable, "-W", "ignore", *specs[0].command[1:])
        specs = [replace(spec, command=command) for spec in specs]
        level, style = "critical", "text"
    else:
        # A worker has no records of level debug; those of libraries are about their requests for a model's files.
        level, style = "info" if server.log_level == "debug" else server.log_level, server.log_format
    return [
        replace(spec, options=replace(spec.options, worker_log_level=level, worker_log_format=style)) for spec in specs
    ]
