"""Default number of gateway processes of a host.

As many as the streams of its devices need, limited by the CPU cores that the workers leave free.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import os
from pathlib import Path

from realtime_tts.config import Settings
from realtime_tts.contract.cores import usable_cores

GPU_STREAMS = 712  # measured capacity of one H200: docs/lab/benchmarks.md
# CPU time for each second of speech with Opus: 12.5 ms where its text is written live (docs/lab/gpu.md), and a quarter
# more, since a gateway that needs its whole core is late.
GATEWAY_MS = 16.0
WORKER_CORES = 2  # for each GPU: one thread runs the steps, another serves the worker's clients


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayCount:
    """Number of gateways, and the reason for it in words."""

    number: int
    reason: str


def gateway_count(settings: Settings) -> GatewayCount:
    """Return the configured number of gateways, or the default for this machine."""
    if wanted := settings.server.gateways:
        return GatewayCount(wanted, "as configured")
    names = settings.engine.devices
    num_gpus = sum(name.startswith("cuda") or (name == "auto" and has_gpu()) for name in names)
    return choose(usable_cores(), num_gpus, settings.engine.max_streams)


def choose(num_cores: int, num_gpus: int, max_streams: int = 0) -> GatewayCount:
    """Return the number of gateways for a machine that serves nothing else.

    Args:
        max_streams: streams of each GPU; 0: the measured capacity.
    """
    if num_gpus == 0:
        return GatewayCount(1, "on a CPU speech is made for fewer listeners than one process can feed")
    num_streams = num_gpus * (max_streams or GPU_STREAMS)
    needed = math.ceil(num_streams * GATEWAY_MS / 1000)
    left = max(0, num_cores - num_gpus * WORKER_CORES)
    reason = f"{num_streams} streams of {_counted(num_gpus, 'GPU')} take {_counted(needed, 'core')}"
    if left >= needed:
        return GatewayCount(needed, reason)
    return GatewayCount(max(1, left), f"{reason}; of the {num_cores} here, {left} are left beside the workers")


def has_gpu() -> bool:
    """Return whether a worker will find an NVIDIA GPU, judged without loading torch."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    if importlib.metadata.version("torch").endswith("+cpu"):
        return False
    return any(Path("/dev").glob("nvidia[0-9]*"))


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
