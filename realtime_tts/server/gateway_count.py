"""How many gateway processes a host is to have, where nobody has said it: as many as the listeners of its devices need,
of the cores that the workers leave."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import os
from pathlib import Path

from realtime_tts.config import Settings
from realtime_tts.workers.cores import usable_cores

GPU_STREAMS = 712  # held by one H200: docs/benchmarks.md
GATEWAY_MS = 8.0  # of processor time for a second of speech with Opus: docs/benchmarks.md
WORKER_CORES = 2  # beside a GPU: one thread has its steps, another its clients


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayCount:
    """`reason`: for a person."""

    number: int
    reason: str


def gateway_count(settings: Settings) -> GatewayCount:
    """What is wanted, or what this machine is given."""
    if wanted := settings.server.gateways:
        return GatewayCount(wanted, "as configured")
    names = settings.engine.devices
    num_gpus = sum(name.startswith("cuda") or (name == "auto" and has_gpu()) for name in names)
    return choose(usable_cores(), num_gpus, settings.engine.max_streams)


def choose(num_cores: int, num_gpus: int, max_streams: int = 0) -> GatewayCount:
    """For a host of its own.

    Args:
        max_streams: of each GPU; 0: as many as one carries.
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
    """Whether a worker finds an NVIDIA GPU, as far as can be told without loading torch."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    if importlib.metadata.version("torch").endswith("+cpu"):
        return False
    return any(Path("/dev").glob("nvidia[0-9]*"))


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
