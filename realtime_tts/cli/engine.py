"""Creation of workers from settings."""

from __future__ import annotations

from realtime_tts.config import EngineConfig
from realtime_tts.workers.pool import WorkerPool
from realtime_tts.workers.supervisor import SupervisorConfig, WorkerSpec, worker_command


def worker_specs(config: EngineConfig, *, quiet: bool = False) -> list[WorkerSpec]:
    """Return the specification of one worker for each device.

    Args:
        quiet: no log and no warnings, for interactive commands; a download still shows its progress.
    """
    extra: tuple[str, ...] = ("--max-load", str(config.max_load)) if config.max_load else ()
    extra += ("--attention", config.attention) if config.attention != "auto" else ()
    extra += ("--eager",) if config.eager else ()
    extra += ("--fp8", config.fp8) if config.fp8 != "off" else ()
    extra += ("--steps", str(config.steps)) if config.steps else ()
    extra += ("--guidance-from", str(config.guidance_from)) if config.guidance_from != 1.0 else ()
    extra += ("--guidance-to", str(config.guidance_to)) if config.guidance_to != 0.0 else ()
    if quiet:
        extra += ("--log-level", "critical")
    return [
        WorkerSpec(
            worker_command(
                config.model,
                device,
                dtype=config.dtype,
                threads=config.threads,
                max_streams=config.max_streams,
                num_blocks=config.num_blocks,
                max_adapters=config.adapter_room,
                max_adapter_rank=config.max_adapter_rank,
                adapter_mlp=config.adapter_mlp,
            )
            + extra,
            name=f"worker-{index}",
            env={"PYTHONWARNINGS": "ignore"} if quiet else None,
        )
        for index, device in enumerate(config.devices)
    ]


def make_workers(config: EngineConfig) -> WorkerPool:
    """Return the workers, which are not started yet."""
    supervision = SupervisorConfig(ready_timeout_s=config.worker_start_timeout_s, hang_s=config.worker_hang_timeout_s)
    return WorkerPool(worker_specs(config), supervision)
